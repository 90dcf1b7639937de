"""Elected chores: one holder, takeover after the ttl, fencing after every pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure.clock import Clock, VirtualClock
from perdure.fleet import Chore, ChoreLost, InvalidSetting
from perdure.ids import Id
from perdure.kv import Database, Subspace, Transaction
from perdure.kv.errors import CorruptValue, TransactionConflict

Make = Callable[..., Chore]


@pytest.fixture
def make(db: Database, space: Subspace, clock: VirtualClock, nodes: list[Id]) -> Make:
    def make_chore(number: int, name: str = "gauges", own_clock: Clock = clock) -> Chore:
        return Chore(db, space, name, nodes[number], own_clock, ttl=30)

    return make_chore


def still_held(chore: Chore) -> bool:
    return chore.held


async def test_exactly_one_of_many_holds_it(make: Make) -> None:
    chores = [make(number) for number in range(5)]
    held = await asyncio.gather(*(chore.hold() for chore in chores))
    assert sum(held) == 1
    assert [chore.held for chore in chores] == held
    assert [chore.epoch for chore in chores] == [1 if one else None for one in held]


async def test_chores_of_different_names_are_independent(make: Make) -> None:
    assert await make(0, "gauges").hold()
    assert await make(1, "pruning").hold()


async def test_renewing_keeps_it_and_its_epoch(make: Make, clock: VirtualClock) -> None:
    one, two = make(0), make(1)
    for _ in range(10):
        assert await one.hold()
        assert not await two.hold()
        clock.advance(20_000)
    assert one.epoch == 1


async def test_silent_holder_is_replaced_after_the_ttl(make: Make, clock: VirtualClock) -> None:
    one, two = make(0), make(1)
    assert await one.hold()
    assert not await two.hold()
    clock.advance(29_999)
    assert not await two.hold()
    assert still_held(one)
    clock.advance(1)
    assert not still_held(one)
    assert await two.hold()
    assert two.epoch == 2
    assert not await one.hold()
    assert one.epoch is None


async def test_late_holder_may_go_on_when_nobody_took_over(make: Make, clock: VirtualClock) -> None:
    one = make(0)
    assert await one.hold()
    clock.advance(300_000)
    assert not one.held
    assert await one.hold()
    assert one.epoch == 1


async def test_released_chore_is_free_at_once_and_the_epoch_goes_on(make: Make) -> None:
    one, two = make(0), make(1)
    assert await one.hold()
    await one.release()
    assert not one.held
    assert await two.hold()
    assert two.epoch == 2
    await two.release()
    assert await one.hold()
    assert one.epoch == 3


async def test_release_frees_only_its_own(make: Make, clock: VirtualClock) -> None:
    one, two, three = make(0), make(1), make(2)
    assert await one.hold()
    clock.advance(30_000)
    assert await two.hold()
    await one.release()
    await one.release()
    assert not await three.hold()
    assert await two.hold()


async def test_fence_lets_the_holder_pass_and_stops_everyone_else(
    make: Make, db: Database, clock: VirtualClock
) -> None:
    one, two = make(0), make(1)
    await one.hold()
    await db.run(one.fence, name="chore")
    with pytest.raises(ChoreLost):
        await db.run(two.fence, name="chore")
    clock.advance(30_000)
    await two.hold()
    with pytest.raises(ChoreLost) as caught:
        await db.run(one.fence, name="chore")
    assert (caught.value.chore, caught.value.node) == ("gauges", one.node)


async def test_takeover_between_fence_and_commit_makes_the_commit_fail(
    make: Make, db: Database, clock: VirtualClock
) -> None:
    one, two = make(0), make(1)
    await one.hold()
    clock.advance(30_000)
    tx = db.transaction("chore")
    await one.fence(tx)
    tx.set(b"work", b"")
    assert await two.hold()
    with pytest.raises(TransactionConflict):
        await tx.commit()


async def test_restarted_node_gets_a_new_epoch(make: Make) -> None:
    before, after = make(0), make(0)
    await before.hold()
    assert await after.hold()
    assert (before.epoch, after.epoch) == (1, 2)


async def test_contender_whose_clock_is_ahead_does_not_steal(make: Make) -> None:
    here, there = VirtualClock(), VirtualClock()
    one, two = make(0, own_clock=here), make(1, own_clock=there)
    assert await one.hold()
    assert not await two.hold()
    there.jump(3_600_000)
    for _ in range(5):
        here.advance(20_000)
        there.advance(20_000)
        assert await one.hold()
        assert not await two.hold()


async def test_holder_whose_clock_was_ahead_is_replaced_all_the_same(make: Make) -> None:
    here, ahead = VirtualClock(), VirtualClock(start_ms=2_000_000_000_000)
    one, two = make(0, own_clock=ahead), make(1, own_clock=here)
    assert await one.hold()
    assert not await two.hold()
    here.advance(30_000)
    assert await two.hold()


async def test_damaged_lock_is_named(make: Make, db: Database, space: Subspace) -> None:
    async def damage(tx: Transaction) -> None:
        tx.set(space.pack(("gauges",)), b"\xc1")

    await db.run(damage, name="damage")
    with pytest.raises(CorruptValue):
        await make(0).hold()


def test_ttl_is_a_positive_time(
    db: Database, space: Subspace, clock: VirtualClock, nodes: list[Id]
) -> None:
    with pytest.raises(InvalidSetting):
        Chore(db, space, "gauges", nodes[0], clock, ttl=0)
