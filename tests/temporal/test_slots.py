"""Slots: dealers, their limits, and suppliers of the SDK's users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure.temporal.bridge.logs import Log
from perdure.temporal.bridge.slots import (
    ActivitySlotInfo,
    CustomSlotSupplier,
    Dealer,
    SlotReserveCtx,
    supplier,
)
from perdure.temporal.errors import NotBuilt


class Fixed:
    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots


def context(sticky: bool) -> SlotReserveCtx:
    return SlotReserveCtx("workflow", "queue", "me", "build", None, sticky)


def dealer(config: Any, limit: int | None = None) -> Dealer:
    return Dealer(supplier(config, Log(None)), context, limit)


async def test_a_released_slot_goes_to_who_waits_longest() -> None:
    slots = dealer(Fixed(1))
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
    slots = dealer(Fixed(1))
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
    slots = dealer(Fixed(1))
    permit = await slots.reserve()
    cancelled = asyncio.create_task(slots.reserve())
    patient = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    cancelled.cancel()
    (await patient).release()


async def test_slot_provider_cant_hand_out_more_permits_than_cache_size() -> None:
    slots = dealer(Fixed(10), limit=2)
    permits = [slots.try_reserve() for _ in range(3)]
    assert [permit is None for permit in permits] == [False, False, True]
    assert permits[0] is not None
    permits[0].release()
    assert slots.try_reserve() is not None


async def test_waiting_for_the_last_permit() -> None:
    slots = dealer(Fixed(2))
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.all_returned())
    await asyncio.sleep(0)
    assert not waiting.done()
    permit.release()
    await waiting


class Recording:
    """What the SDK wraps around a supplier of its user."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.failures = 0

    async def reserve_slot(self, ctx: SlotReserveCtx, reserved: Callable[[Any], None]) -> str:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no")
        task = asyncio.ensure_future(asyncio.sleep(0, f"permit for {ctx.slot_type}"))
        reserved(task)
        return await task

    def try_reserve_slot(self, ctx: SlotReserveCtx) -> str | None:
        return "now" if ctx.is_sticky else None

    def mark_slot_used(self, ctx: Any) -> None:
        self.calls.append((ctx.slot_info, ctx.permit))

    def release_slot(self, ctx: Any) -> None:
        self.calls.append(("released", ctx.slot_info, ctx.permit))


async def test_a_custom_supplier_is_told_everything() -> None:
    inner = Recording()
    slots = dealer(CustomSlotSupplier(inner))
    info = ActivitySlotInfo("greet")
    permit = await slots.reserve()
    permit.mark_used(info)
    permit.release()
    (await slots.reserve()).release()
    assert inner.calls == [
        (info, "permit for workflow"),
        ("released", info, "permit for workflow"),
        ("released", None, "permit for workflow"),
    ]
    assert slots.try_reserve() is None
    assert slots.try_reserve(sticky=True) is not None


async def test_a_failing_reserve_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.temporal.bridge.slots._RETRY_PAUSE", 0.0)
    inner = Recording()
    inner.failures = 2
    assert await dealer(CustomSlotSupplier(inner)).reserve() is not None


def test_no_slots_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        dealer(Fixed(0))


def test_a_resource_based_supplier_says_that_it_is_not_built() -> None:
    with pytest.raises(NotBuilt, match="resource based"):
        dealer(object())


async def test_every_change_of_the_slots_is_shown() -> None:
    """A slot counts as used only while it has a task; a slot that waits for one is available."""
    seen: list[tuple[int, int | None]] = []
    slots = Dealer(
        supplier(Fixed(3), Log(None)),
        context,
        on_change=lambda used, available: seen.append((used, available)),
    )
    permit = await slots.reserve()
    permit.mark_used(ActivitySlotInfo("a"))
    permit.mark_used(ActivitySlotInfo("a"))
    permit.release()
    permit.release()
    assert seen == [(0, 3), (1, 2), (1, 2), (0, 3)]
