"""Assignment: one owner at once, an understudy soon, anyone at last; newest code per name."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, strategies as st

from perdure.fleet import Assignment, Member
from perdure.fleet.assignment import stable_hash
from perdure.ids import Id

NOW = 1_700_000_000_000
NAMES = frozenset({"order"})


def node(number: int) -> Id:
    return Id(b"\x01" + number.to_bytes(18, "big"))


def fleet(size: int, *, version: int = 0) -> list[Member]:
    return [Member(node(number), NAMES, version) for number in range(size)]


def takers(
    members: Sequence[Member], entity: bytes, *, waited: int = 0, pin: int | None = None
) -> list[Member]:
    return [
        member
        for member in members
        if Assignment(members, member, version_pin=pin).takes("order", entity, NOW - waited, NOW)
    ]


@given(st.binary(min_size=19, max_size=19), st.integers(1, 9))
def test_exactly_one_owner_then_a_second_then_everyone(entity: bytes, size: int) -> None:
    members = fleet(size)
    owners = takers(members, entity)
    assert len(owners) == 1
    assert takers(members, entity, waited=1999) == [members[stable_hash(entity, NOW - 1999) % size]]
    early, late, last = (takers(members, entity, waited=w) for w in (0, 2000, 10_000))
    assert len(early) == 1
    assert len(late) == min(size, 2)
    assert last == members


def test_understudy_is_the_next_node_in_order() -> None:
    members = fleet(5)
    for number in range(50):
        entity = number.to_bytes(19, "big")
        owner = stable_hash(entity, NOW - 2000) % 5
        both = takers(members, entity, waited=2000)
        assert sorted(m.node for m in both) == sorted({node(owner), node((owner + 1) % 5)})


def test_order_in_which_members_are_listed_does_not_matter() -> None:
    members = fleet(5)
    shuffled = random.Random(1).sample(members, 5)
    for number in range(50):
        entity = number.to_bytes(19, "big")
        assert takers(members, entity) == [m for m in members if m in takers(shuffled, entity)]


def test_items_due_in_the_same_millisecond_spread_over_the_fleet() -> None:
    members = fleet(4)
    shares = Counter(takers(members, n.to_bytes(19, "big"))[0].node for n in range(2000))
    assert len(shares) == 4
    assert min(shares.values()) > 400


def test_hash_is_the_same_in_every_process() -> None:
    assert stable_hash(b"entity", NOW) == 13528885684678222776
    code = "from perdure.fleet.assignment import stable_hash; print(stable_hash(b'entity', %d))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code % NOW],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == stable_hash(b"entity", NOW)


def test_nobody_active_means_take_it() -> None:
    own = fleet(1)[0]
    assert Assignment([], own).takes("order", b"x", NOW, NOW)
    assert not Assignment([], own).takes("unserved", b"x", NOW, NOW)
    others = [Member(node(7), frozenset({"other"}), 3)]
    assert Assignment(others, own).takes("order", b"x", NOW, NOW)


def test_node_outside_of_the_view_helps_only_at_last() -> None:
    members = fleet(1)
    absent = Member(node(9), NAMES)
    assignment = Assignment(members, absent)
    assert not assignment.takes("order", b"x", NOW - 9999, NOW)
    assert assignment.takes("order", b"x", NOW - 10_000, NOW)


def test_only_the_newest_version_takes_however_long_it_lies() -> None:
    old, new = fleet(2), [Member(node(10), NAMES, 2), Member(node(11), NAMES, 2)]
    members = [*old, *new]
    for number in range(20):
        entity = number.to_bytes(19, "big")
        assert takers(members, entity, waited=60_000) == new
        assert len(takers(members, entity)) == 1


def test_older_node_outside_of_the_view_never_takes() -> None:
    assignment = Assignment(fleet(2, version=5), Member(node(9), NAMES, 4))
    assert not assignment.takes("order", b"x", NOW - 60_000, NOW)


def test_gate_is_per_name() -> None:
    canary = Member(node(10), frozenset({"invoice"}), 99)
    assert takers([*fleet(2), canary], b"x", waited=60_000) == fleet(2)


def test_pin_overrides_the_newest_version() -> None:
    old, new = fleet(2, version=1), [Member(node(10), NAMES, 99)]
    members = [*old, *new]
    assert takers(members, b"x", waited=60_000) == new
    assert takers(members, b"x", waited=60_000, pin=1) == old
    assert takers(members, b"x", waited=60_000, pin=50) == old


def test_pin_below_every_version_starves_nobody() -> None:
    members = [*fleet(2, version=3), Member(node(10), NAMES, 4)]
    assert takers(members, b"x", waited=60_000, pin=0) == fleet(2, version=3)


def test_items_due_in_the_future_belong_to_their_owner_already() -> None:
    assert len(takers(fleet(3), b"x", waited=-5000)) == 1
