"""Judges a record of concurrent transactions: could they have run one after the other?

Owns the proof, not the recording (`perdure.testing.recorder`), and does no I/O. The record passes
only if four independent questions have the right answer:

1. **Testimony.** Everything acknowledged left exactly one mark in the store, with the stamp that
   its owner was told; nothing refused left any. An unknown outcome is decided by its mark.
2. **One state.** Every attempt, refused ones included, saw exactly the state of its read version,
   plus its own writes. A transaction that is doomed must not see nonsense on the way.
3. **Replay.** Run alone, one by one in commit order, on an empty model, all committed transactions
   get the answers they really got.
4. **No cycle.** In the graph of who wrote what whom read, including who was known to have ended
   before whom began, nobody comes before himself. This repeats 3 by another route, and adds real
   time: an order that contradicts what clients could see is refused. Its cycles name the guilty.

Snapshot reads claim nothing about the commit order, so only question 2 is asked of them.

For question 4 a value must tell which write it came from. Writers therefore use a value once per
key, and only add positive numbers; removals may repeat.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias

from sortedcontainers import SortedDict

from perdure.errors import WorldError
from perdure.testing.recorder import Add, Attempt, Clear, Get, GetRange, Outcome, Set

__all__ = ["NotSerializable", "State", "assert_serializable", "find_anomalies"]

_SHOWN: Final = 20


class NotSerializable(WorldError):
    """The store let transactions see each other in a way no order of them explains."""

    code = "testing.not_serializable"

    def __init__(self, anomalies: Sequence[str]) -> None:
        more = len(anomalies) - _SHOWN
        lines = [*anomalies[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        super().__init__("\n".join(["the history is not serializable:", *lines]))
        self.anomalies = tuple(anomalies)


class State:
    """A plain model of the store: rows in order, one operation at a time."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.rows = SortedDict(rows)

    def copy(self) -> State:
        return State(self.rows.items())

    def answer(self, read: Get | GetRange) -> bytes | tuple[tuple[bytes, bytes], ...] | None:
        """What a read gives here."""
        if isinstance(read, Get):
            value: bytes | None = self.rows.get(read.key)
            return value
        keys = self.rows.irange(read.begin, read.end, (True, False), read.reverse)
        limited = itertools.islice(keys, read.limit or None)
        return tuple((key, self.rows[key]) for key in limited)

    def apply(self, write: Set | Clear | Add) -> None:
        """Do what a write does."""
        match write:
            case Set(key, value):
                self.rows[key] = value
            case Clear(begin, end):
                for key in list(self.rows.irange(begin, end, (True, False))):
                    del self.rows[key]
            case Add(key, delta):
                number = int.from_bytes(self.rows.get(key, b"")[:8], "little") + delta
                self.rows[key] = (number % (1 << 64)).to_bytes(8, "little")


def assert_serializable(attempts: Sequence[Attempt], marks: Sequence[tuple[bytes, int]]) -> None:
    """Raise `NotSerializable` unless the record passes all four questions."""
    anomalies = find_anomalies(attempts, marks)
    if anomalies:
        raise NotSerializable(anomalies)


def find_anomalies(attempts: Sequence[Attempt], marks: Sequence[tuple[bytes, int]]) -> list[str]:
    """Return what is wrong with the record, one line each; nothing is wrong if it is empty."""
    attempts, anomalies = _hear_testimony(attempts, marks)
    anomalies += _check_states(attempts)
    anomalies += _replay(attempts)
    anomalies += _Graph(attempts).find_anomalies()
    return anomalies


def _hear_testimony(
    attempts: Sequence[Attempt], marks: Sequence[tuple[bytes, int]]
) -> tuple[list[Attempt], list[str]]:
    """Compare owners' knowledge with the marks; return attempts whose outcome is now certain."""
    stamps: dict[int, list[bytes]] = defaultdict(list)
    for stamp, number in marks:
        stamps[number].append(stamp)
    certain: list[Attempt] = []
    anomalies: list[str] = []
    for attempt in attempts:
        found = stamps.get(attempt.number, [])
        certain.append(_decided(attempt, found))
        if len(found) > 1:
            anomalies.append(f"testimony: {attempt} was applied {len(found)} times")
        if attempt.outcome is Outcome.COMMITTED:
            if attempt.writes and not found:
                anomalies.append(f"testimony: {attempt} was acknowledged but is not in the store")
            elif attempt.writes and attempt.stamp not in found:
                anomalies.append(f"testimony: {attempt} was told {attempt.stamp!r}, not {found}")
        elif attempt.outcome is not Outcome.UNKNOWN and found:
            anomalies.append(f"testimony: {attempt} is {attempt.outcome.value} but was applied")
    return certain, anomalies


def _decided(attempt: Attempt, found: Sequence[bytes]) -> Attempt:
    """Turn an unknown outcome into what the marks say. Its owner never knew when it ended."""
    if attempt.outcome is not Outcome.UNKNOWN:
        return attempt
    if not found:
        return replace(attempt, outcome=Outcome.REFUSED)
    return replace(attempt, outcome=Outcome.COMMITTED, stamp=found[0], ended=None)


def _version(attempt: Attempt) -> int:
    """The version of a commit that wrote: the first 8 bytes of its stamp."""
    assert attempt.stamp is not None
    return int.from_bytes(attempt.stamp[:8], "big")


def _writers(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The committed attempts that wrote, in commit order."""
    committed = (attempt for attempt in attempts if attempt.outcome is Outcome.COMMITTED)
    return sorted(
        (attempt for attempt in committed if attempt.stamp is not None),
        key=lambda attempt: attempt.stamp or b"",
    )


def _wrong_answers(attempt: Attempt, state: State, *, snapshot: bool) -> Iterator[str]:
    """Run an attempt on a state (changing it) and yield the reads that were answered otherwise."""
    for operation in attempt.operations:
        if isinstance(operation, Set | Clear | Add):
            state.apply(operation)
        elif snapshot or not operation.snapshot:
            expected = state.answer(operation)
            got = operation.value if isinstance(operation, Get) else operation.rows
            if got != expected:
                yield f"{attempt} got {operation}, alone it gets {expected!r}"


def _check_states(attempts: Sequence[Attempt]) -> list[str]:
    """Every attempt saw the state of its read version, and nothing else."""
    anomalies: list[str] = []
    waiting = sorted(attempts, key=lambda attempt: attempt.read_version, reverse=True)
    state = State()

    def observe(below: int | None) -> None:
        while waiting and (below is None or waiting[-1].read_version < below):
            attempt = waiting.pop()
            anomalies.extend(
                f"one state: at version {attempt.read_version} {wrong}"
                for wrong in _wrong_answers(attempt, state.copy(), snapshot=True)
            )

    for writer in _writers(attempts):
        observe(_version(writer))
        for operation in writer.operations:
            if isinstance(operation, Set | Clear | Add):
                state.apply(operation)
    observe(None)
    return anomalies


def _replay(attempts: Sequence[Attempt]) -> list[str]:
    """In commit order, alone, every committed writer gets the answers it really got.

    Those that only read commit at their read version: `_check_states` has replayed them.
    """
    state = State()
    return [
        f"replay: {wrong}"
        for writer in _writers(attempts)
        for wrong in _wrong_answers(writer, state, snapshot=False)
    ]


@dataclass(frozen=True, slots=True)
class _Version:
    """What a key held after one commit. The first version of each key is its absence."""

    value: bytes | None
    writer: int | None
    at: int


_Node: TypeAlias = int | tuple[str, int]


class _Graph:
    """Who must come before whom: one node per committed attempt, one per moment."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = [a for a in attempts if a.outcome is Outcome.COMMITTED]
        self._by_number = {attempt.number: attempt for attempt in self._attempts}
        self._why: dict[tuple[_Node, _Node], str] = {}
        self._versions: dict[bytes, list[_Version]] = {}
        self._anomalies: list[str] = []

    def find_anomalies(self) -> list[str]:
        self._add_writes()
        for attempt in self._attempts:
            for key, value in _foreign_reads(attempt, self._versions):
                self._add_read(attempt, key, value)
        self._add_real_time()
        before: dict[_Node, set[_Node]] = defaultdict(set)
        for earlier, later in self._why:
            before[later].add(earlier)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            self._anomalies.append(self._describe(error.args[1]))
        return self._anomalies

    def _edge(self, earlier: _Node | None, later: _Node | None, why: str) -> None:
        if earlier is not None and later is not None and earlier != later:
            self._why.setdefault((earlier, later), why)

    def _add_writes(self) -> None:
        state = State()
        for writer in _writers(self._attempts):
            touched: set[bytes] = set()
            for operation in writer.operations:
                if isinstance(operation, Clear):
                    touched.update(state.rows.irange(operation.begin, operation.end, (True, False)))
                elif isinstance(operation, Set | Add):
                    touched.add(operation.key)
                if isinstance(operation, Set | Clear | Add):
                    state.apply(operation)
            for key in touched:
                versions = self._versions.setdefault(key, [_Version(None, None, 0)])
                self._edge(versions[-1].writer, writer.number, f"overwrote {key!r}")
                versions.append(_Version(state.rows.get(key), writer.number, _version(writer)))

    def _add_read(self, attempt: Attempt, key: bytes, value: bytes | None) -> None:
        versions = self._versions.get(key, [_Version(None, None, 0)])
        same = [index for index, version in enumerate(versions) if version.value == value]
        if not same:
            self._anomalies.append(
                f"graph: {attempt} read {key!r} = {value!r}, which no committed attempt wrote"
            )
            return
        # Only removals repeat. The newest one that the attempt may have seen is meant; if it saw
        # one that came later, that is a cycle.
        known = [index for index in same if versions[index].at <= attempt.read_version]
        index = known[-1] if known else same[0]
        self._edge(versions[index].writer, attempt.number, f"was read by (at {key!r})")
        if index + 1 < len(versions):
            self._edge(
                attempt.number, versions[index + 1].writer, f"did not see the write of {key!r} by"
            )

    def _add_real_time(self) -> None:
        moments: set[int] = set()
        for attempt in self._attempts:
            moments.add(attempt.began)
            self._edge(("moment", attempt.began), attempt.number, "was before the start of")
            if attempt.ended is not None:
                moments.add(attempt.ended)
                self._edge(attempt.number, ("moment", attempt.ended), "had ended by")
        for earlier, later in itertools.pairwise(sorted(moments)):
            self._edge(("moment", earlier), ("moment", later), "was before")

    def _describe(self, cycle: Sequence[_Node]) -> str:
        steps = [
            f"{self._name(one)} {self._why[one, other]}" for one, other in itertools.pairwise(cycle)
        ]
        return f"graph: nobody comes first: {' '.join(steps)} {self._name(cycle[-1])}"

    def _name(self, node: _Node) -> str:
        return str(self._by_number[node]) if isinstance(node, int) else f"moment {node[1]}"


def _foreign_reads(
    attempt: Attempt, known: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """What an attempt learned about others: keys it read before writing them itself.

    A range tells about every key in it, present or not, as far as the limit let it see.
    """
    keys = SortedDict.fromkeys(known)
    own: set[bytes] = set()
    for operation in attempt.operations:
        match operation:
            case Get(key, value, False) if key not in own:
                yield key, value
            case GetRange(begin, end, limit, reverse, rows, False):
                if limit and len(rows) == limit:
                    last = rows[-1][0]
                    begin, end = (last, end) if reverse else (begin, last + b"\x00")
                seen = dict(rows)
                absent = set(keys.irange(begin, end, (True, False))) - seen.keys()
                for key in sorted(seen.keys() | absent):
                    if key not in own:
                        yield key, seen.get(key)
            case Set(key) | Add(key):
                own.add(key)
            case Clear(begin, end):
                own.update(keys.irange(begin, end, (True, False)))
            case _:
                pass
