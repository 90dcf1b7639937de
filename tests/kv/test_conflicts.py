"""The index of recent writes against a list of all writes, plus its window."""

from __future__ import annotations

import random

import pytest

from perdure.kv.conflicts import WINDOW, RecentWrites
from perdure.kv.driver import CommitRequest, Refusal, Stamped, versionstamp


def request(
    read_version: int,
    *,
    keys: tuple[bytes, ...] = (),
    ranges: tuple[tuple[bytes, bytes], ...] = (),
    writes: tuple[bytes, ...] = (),
    clears: tuple[tuple[bytes, bytes], ...] = (),
    stamped: tuple[Stamped, ...] = (),
) -> CommitRequest:
    return CommitRequest(
        name="test",
        read_version=read_version,
        read_keys=keys,
        read_ranges=ranges,
        clears=clears,
        writes=dict.fromkeys(writes, b""),
        adds={},
        stamped=stamped,
        write_keys=(),
        write_ranges=(),
        size=0,
    )


def test_a_point_read_conflicts_only_with_newer_writes_of_that_key() -> None:
    recent = RecentWrites(0)
    recent.record(request(0, writes=(b"a",)), 5, 0)
    assert recent.check(request(4, keys=(b"a",))) is Refusal.CONFLICT
    assert recent.check(request(5, keys=(b"a",))) is None
    assert recent.check(request(4, keys=(b"b",))) is None


def test_blind_writes_never_conflict() -> None:
    recent = RecentWrites(0)
    recent.record(request(0, writes=(b"a",), clears=((b"a", b"z"),)), 5, 0)
    assert recent.check(request(0, writes=(b"a",), clears=((b"a", b"z"),))) is None


def test_a_range_read_includes_its_begin_and_excludes_its_end() -> None:
    recent = RecentWrites(0)
    recent.record(request(0, writes=(b"b",)), 1, 0)
    assert recent.check(request(0, ranges=((b"b", b"c"),))) is Refusal.CONFLICT
    assert recent.check(request(0, ranges=((b"a", b"b"),))) is None


def test_a_cleared_range_conflicts_with_point_and_range_reads_inside_it() -> None:
    recent = RecentWrites(0)
    recent.record(request(0, clears=((b"b", b"d"),)), 1, 0)
    assert recent.check(request(0, keys=(b"b",))) is Refusal.CONFLICT
    assert recent.check(request(0, keys=(b"d",))) is None
    assert recent.check(request(0, ranges=((b"a", b"b"),))) is None
    assert recent.check(request(0, ranges=((b"a", b"b\0"),))) is Refusal.CONFLICT


def test_a_versionstamped_key_counts_as_written() -> None:
    recent = RecentWrites(0)
    recent.record(request(0, stamped=(Stamped(b"q", b"s", b""),)), 3, 7)
    key = b"q" + versionstamp(3, 7) + b"s"
    assert recent.check(request(0, keys=(key,))) is Refusal.CONFLICT
    assert recent.check(request(0, ranges=((b"q", b"r"),))) is Refusal.CONFLICT


@pytest.mark.parametrize("seed", range(8))
def test_it_agrees_with_a_list_of_all_writes(seed: int) -> None:
    rng = random.Random(seed)

    def key() -> bytes:
        return b"%02d" % rng.randrange(60)

    def some_range() -> tuple[bytes, bytes]:
        begin, end = sorted((key(), key()))
        return begin, end + b"\0"

    recent = RecentWrites(0)
    written: list[tuple[int, bytes, bytes]] = []
    version = 0
    for _ in range(300):
        version += rng.randrange(3) > 0
        keys = tuple(key() for _ in range(rng.randrange(3)))
        clears = tuple(some_range() for _ in range(rng.random() < 0.1))
        recent.record(request(0, writes=keys, clears=clears), version, 0)
        written += [(version, key, key + b"\0") for key in keys]
        written += [(version, *interval) for interval in clears]
        since = rng.randrange(max(0, version - 40), version + 1)
        asked = some_range() if rng.random() < 0.7 else (point := key(), point + b"\0")
        is_point = asked[1] == asked[0] + b"\0"
        expected = any(
            when > since and begin < asked[1] and asked[0] < end for when, begin, end in written
        )
        found = recent.check(
            request(since, keys=(asked[0],)) if is_point else request(since, ranges=(asked,))
        )
        assert found is (Refusal.CONFLICT if expected else None)


def test_what_left_the_window_is_forgotten_and_older_readers_are_too_old() -> None:
    recent = RecentWrites(0)
    for version in range(1, 3001):
        recent.record(request(0, writes=(b"%06d" % version,)), version, 0)
        recent.expire(version * 0.01, version)
        recent.check(request(max(0, version - 100), ranges=((b"", b"000000"),)))
    horizon = 3000 - round(WINDOW / 0.01)
    assert recent.check(request(horizon - 10, keys=(b"a",))) is Refusal.TOO_OLD
    assert recent.check(request(horizon - 10, ranges=((b"a", b"b"),))) is Refusal.TOO_OLD
    assert recent.check(request(horizon + 10, keys=(b"a",))) is None
    newest = b"%06d" % 3000
    assert recent.check(request(horizon + 10, ranges=((newest, newest + b"\0"),))) is (
        Refusal.CONFLICT
    )
    old = b"%06d" % (horizon + 5)
    assert recent.check(request(horizon + 10, ranges=((old, old + b"\0"),))) is None
    assert len(recent._last) < 2000
    assert len(recent._keys._blocks) < 4000


def test_blind_writes_are_never_too_old() -> None:
    recent = RecentWrites(10)
    assert recent.check(request(3, writes=(b"a",))) is None
    assert recent.check(request(3, keys=(b"a",))) is Refusal.TOO_OLD
