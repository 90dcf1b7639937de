"""Membership: the active view, loss and return, clocks that lie, rows that must not stay."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from perdure.clock import Clock, VirtualClock
from perdure.fleet import Fleet, InvalidSetting
from perdure.ids import Id
from perdure.kv import Database, Subspace, Transaction
from perdure.kv.errors import CorruptValue

NAMES = frozenset({"order", "invoice"})


@pytest.fixture
def make(db: Database, space: Subspace, clock: VirtualClock, nodes: list[Id]) -> Any:
    def make_fleet(number: int, **settings: Any) -> Fleet:
        own_clock: Clock = settings.pop("clock", clock)
        return Fleet(db, space, nodes[number], own_clock, **{"names": NAMES, **settings})

    return make_fleet


async def rows(db: Database, space: Subspace) -> list[tuple[Any, ...]]:
    async def body(tx: Transaction) -> list[tuple[bytes, bytes]]:
        return await tx.get_range(*space.range())

    return [space.unpack(key) for key, _ in await db.run(body, name="rows")]


async def test_members_see_each_other_with_names_and_version(make: Any, nodes: list[Id]) -> None:
    one, two = make(0), make(1, names=frozenset({"x"}), version=3)
    await one.join()
    await two.join()
    await one.ping()
    assert one.members == two.members == (one.own, two.own)
    assert [member.node for member in one.members] == nodes[:2]
    assert two.own.names == {"x"}
    assert two.own.version == 3


async def test_record_of_another_node_is_read_from_the_store(make: Any) -> None:
    one, two = make(0), make(1, names=frozenset({"b", "a"}), version=7)
    await two.join()
    await one.join()
    (_, other) = one.members
    assert other == two.own
    assert other is not two.own


async def test_silent_node_is_active_for_two_pings(make: Any, clock: VirtualClock) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    clock.advance(20_000)
    await one.ping()
    assert one.members == (one.own, two.own)
    clock.advance(1)
    await one.ping()
    assert one.members == (one.own,)


class Attempts:
    """Observes how often transactions had to be tried."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        self.counts.append(attempts)


async def test_pings_never_conflict(make: Any, db: Database, clock: VirtualClock) -> None:
    nodes = [make(number) for number in range(5)]
    for node in nodes:
        await node.join()
    clock.advance(1)
    db.observer = attempts = Attempts()
    await asyncio.gather(*(node.ping() for node in nodes))
    assert attempts.counts == [1] * 5


async def test_pings_leave_exactly_one_active_row(
    make: Any, db: Database, space: Subspace, clock: VirtualClock
) -> None:
    one = make(0)
    await one.join()
    joined = await rows(db, space)
    for _ in range(5):
        clock.advance(10_000)
        await one.ping()
    assert len(await rows(db, space)) == len(joined) == 3


async def test_retired_node_stays_alive_but_is_no_member(make: Any, clock: VirtualClock) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    await two.retire()
    await one.ping()
    assert one.members == two.members == (one.own,)
    for _ in range(6):
        clock.advance(10_000)
        await two.ping()
        assert await one.lost() == []
    await two.join()
    assert two.members[-1] == two.own


async def test_leaving_removes_every_row_and_a_late_ping_does_not_bring_it_back(
    make: Any, db: Database, space: Subspace, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    before = await rows(db, space)
    await asyncio.gather(two.leave(), two.ping(), two.ping())
    await two.ping()
    assert len(await rows(db, space)) == len(before) - 3
    assert two.members == (one.own,)
    assert await one.lost(known=[nodes[1]]) == [nodes[1]]


async def test_concurrent_ping_and_retire_end_retired(make: Any) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    await asyncio.gather(two.ping(), two.retire(), two.ping())
    await one.ping()
    assert one.members == (one.own,)


async def test_node_without_pings_is_lost_after_thirty_seconds(
    make: Any, clock: VirtualClock, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    assert await one.lost() == []
    clock.advance(29_999)
    assert await one.lost() == []
    clock.advance(1)
    assert await one.lost() == [nodes[1]]


async def test_fresh_observer_finds_the_long_dead_at_once(
    make: Any, clock: VirtualClock, nodes: list[Id]
) -> None:
    await make(1).join()
    await make(2).join()
    clock.advance(30_000)
    assert await make(0).lost() == nodes[1:3]


async def test_a_node_never_finds_itself_lost(make: Any, clock: VirtualClock) -> None:
    one = make(0)
    await one.join()
    clock.advance(100_000)
    assert await one.lost(known=[one.node]) == []


async def test_known_nodes_without_rows_are_lost(make: Any, nodes: list[Id]) -> None:
    one = make(0)
    await one.join()
    assert await one.lost(known=[nodes[3], nodes[2], nodes[3]]) == nodes[2:4]


async def test_forgetting_deletes_every_row(
    make: Any, db: Database, space: Subspace, clock: VirtualClock, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await one.join()
    alone = await rows(db, space)
    await two.join()
    clock.advance(30_000)
    assert await one.lost() == [nodes[1]]
    assert await one.forget(nodes[1]) is True
    assert await rows(db, space) == alone
    assert await one.lost() == []
    assert await one.forget(nodes[1]) is True


async def test_node_that_pinged_meanwhile_is_not_forgotten(
    make: Any, clock: VirtualClock, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await two.join()
    clock.advance(30_000)
    assert await one.lost() == [nodes[1]]
    await two.ping()
    assert await one.forget(nodes[1]) is False
    assert await one.lost() == []


async def test_forget_racing_a_ping_never_leaves_half_a_node(
    make: Any, db: Database, space: Subspace, clock: VirtualClock, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await two.join()
    whole = len(await rows(db, space))
    clock.advance(30_000)
    assert await one.lost() == [nodes[1]]
    forgotten, _ = await asyncio.gather(one.forget(nodes[1]), two.ping())
    # Whichever commits last decides: a forget that won deleted all, a ping that won wrote all.
    possible = {0, whole} if forgotten else {whole}
    assert len(await rows(db, space)) in possible
    await two.ping()
    assert len(await rows(db, space)) == whole


async def test_forgotten_node_comes_back_whole(
    make: Any, clock: VirtualClock, nodes: list[Id]
) -> None:
    one, two = make(0), make(1, version=4)
    await two.join()
    clock.advance(30_000)
    await one.join()
    assert await one.lost() == [nodes[1]]
    await one.forget(nodes[1])
    await two.ping()
    await one.ping()
    assert one.members == (one.own, two.own)


async def test_observer_whose_clock_jumps_ahead_declares_nobody_lost(make: Any) -> None:
    here, there = VirtualClock(), VirtualClock()
    one, two = make(0, clock=here), make(1, clock=there)
    await two.join()
    assert await one.lost() == []
    here.jump(3_600_000)
    for _ in range(10):
        for moving in (here, there):
            moving.advance(10_000)
        await two.ping()
        assert await one.lost() == []


async def test_dead_node_whose_clock_was_ahead_is_lost_all_the_same(
    make: Any, clock: VirtualClock, nodes: list[Id]
) -> None:
    ahead = VirtualClock(start_ms=clock.now() + 3_600_000)
    one, two = make(0), make(1, clock=ahead)
    await two.join()
    await one.join()
    assert one.members == (one.own,)
    assert await one.lost() == []
    clock.advance(30_000)
    assert await one.lost() == [nodes[1]]
    assert await one.forget(nodes[1]) is True


async def test_own_clock_jumping_back_leaves_one_active_row(
    make: Any, db: Database, space: Subspace, clock: VirtualClock
) -> None:
    one = make(0)
    await one.join()
    clock.jump(-3_600_000)
    await one.ping()
    assert one.members == (one.own,)
    assert len(await rows(db, space)) == 3


async def test_version_pin_reaches_every_node(make: Any) -> None:
    one, two = make(0), make(1)
    await one.join()
    await two.join()
    seen = [two.version_pin]
    for pin in (3, None):
        await one.pin_version(pin)
        await two.ping()
        seen += [one.version_pin, two.version_pin]
    assert seen == [None, 3, 3, None, None]


async def test_damaged_row_is_named(make: Any, db: Database, space: Subspace) -> None:
    one = make(0)
    await one.join()

    async def damage(tx: Transaction) -> None:
        for key, _ in await tx.get_range(*space.range()):
            tx.set(key, b"\xc1")

    await db.run(damage, name="damage")
    with pytest.raises(CorruptValue):
        await one.ping()
    with pytest.raises(CorruptValue):
        await one.lost()


@pytest.mark.parametrize(
    "settings",
    [
        {"ping_interval": 0},
        {"ping_interval": math.nan},
        {"lost_after": 19.9},
        {"lost_after": math.inf},
    ],
)
def test_senseless_settings_are_refused(make: Any, settings: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting):
        make(0, **settings)


async def test_a_node_known_to_be_dead_is_forgotten_before_its_time(
    make: Any, db: Database, space: Subspace, nodes: list[Id]
) -> None:
    one, two = make(0), make(1)
    await two.join()
    assert await one.others() == [nodes[1]]
    assert await one.lost() == []
    assert not await one.forget(nodes[1])
    assert await one.forget(nodes[1], surely_dead=True)
    assert await one.others() == []
    await one.join()
    assert one.members == (one.own,)
    assert await one.others() == []


async def test_damaged_record_of_another_node_does_not_end_the_pings(
    make: Any, db: Database, space: Subspace
) -> None:
    one, two = make(0), make(1)
    await two.join()

    async def damage(tx: Transaction) -> None:
        for key, _ in await tx.get_range(*space[0].range()):
            tx.set(key, b"\xc1")

    await db.run(damage, name="damage")
    await one.join()
    assert one.members == (one.own,)
