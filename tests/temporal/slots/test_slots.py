"""Slots: dealers and their limits."""

from __future__ import annotations

import asyncio

import pytest

from perdure.temporal.slots.contexts import SlotDeploymentVersion, SlotReserveCtx
from perdure.temporal.slots.dealer import Dealer
from perdure.temporal.slots.fixed import FixedSlots


def context(sticky: bool) -> SlotReserveCtx:
    return SlotReserveCtx(
        "workflow", "queue", "me", "build", SlotDeploymentVersion("", "build"), sticky
    )


def dealer(slots: int, limit: int | None = None) -> Dealer:
    return Dealer(FixedSlots(slots), context, limit)


async def test_a_released_slot_goes_to_who_waits_longest() -> None:
    slots = dealer(1)
    first = await slots.reserve()
    waiting = [asyncio.create_task(slots.reserve()) for _ in range(2)]
    await asyncio.sleep(0)
    assert slots.try_reserve() is None
    first.release()
    first.release()
    second = await waiting[0]
    assert not waiting[1].done()
    second.release()
    (await waiting[1]).release()
    assert slots.out == 0


async def test_a_cancelled_wait_takes_no_slot() -> None:
    slots = dealer(1)
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = slots.try_reserve()
    assert again is not None
    again.release()


async def test_a_wake_up_lost_to_a_cancel_is_passed_on() -> None:
    slots = dealer(1)
    permit = await slots.reserve()
    cancelled = asyncio.create_task(slots.reserve())
    patient = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    cancelled.cancel()
    (await patient).release()


async def test_slot_provider_cant_hand_out_more_permits_than_cache_size() -> None:
    slots = dealer(10, limit=2)
    permits = [slots.try_reserve() for _ in range(3)]
    assert [permit is None for permit in permits] == [False, False, True]
    assert permits[0] is not None
    permits[0].release()
    assert slots.try_reserve() is not None


async def test_waiting_for_the_last_permit() -> None:
    slots = dealer(2)
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.all_returned())
    await asyncio.sleep(0)
    assert not waiting.done()
    permit.release()
    await waiting


async def test_nobody_overtakes_who_waits() -> None:
    slots = dealer(1)
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    assert slots.try_reserve() is None
    (await waiting).release()


async def test_no_slots_are_never_given() -> None:
    assert dealer(0).try_reserve() is None
