"""Clocks: real time is sane, virtual time moves only on command, waiting never cancels."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from perdure.clock import SYSTEM_CLOCK, VirtualClock, wait, wait_event


def test_system_clock_reads_both_clocks() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SYSTEM_CLOCK.now() <= before + 60_000
    first = SYSTEM_CLOCK.monotonic()
    assert SYSTEM_CLOCK.monotonic() >= first


async def test_system_clock_timers_fire_and_cancel() -> None:
    fired: list[str] = []
    SYSTEM_CLOCK.call_later(0.001, lambda: fired.append("kept"))
    SYSTEM_CLOCK.call_later(0.001, lambda: fired.append("cancelled")).cancel()
    await SYSTEM_CLOCK.sleep(0.01)
    await SYSTEM_CLOCK.sleep(-1)
    assert fired == ["kept"]


def test_virtual_clock_stands_still() -> None:
    clock = VirtualClock(start_ms=1000)
    assert [clock.now(), clock.now()] == [1000, 1000]
    assert clock.monotonic() == 0.0
    assert clock.next_timer_in() is None


def test_timers_fire_in_order_of_due_time_then_of_setting() -> None:
    clock = VirtualClock(start_ms=0)
    fired: list[tuple[str, int]] = []
    for name, seconds in [("c", 3), ("a", 1), ("b", 1), ("never", 9)]:
        clock.call_later(seconds, partial(lambda n: fired.append((n, clock.now())), name))
    assert clock.next_timer_in() == 1.0
    clock.advance(5000)
    assert fired == [("a", 1000), ("b", 1000), ("c", 3000)]
    assert clock.now() == 5000
    assert clock.next_timer_in() == 4.0


def test_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = VirtualClock(start_ms=0)
    fired: list[int] = []

    def tick() -> None:
        fired.append(clock.now())
        clock.call_later(1, tick)

    clock.call_later(1, tick)
    clock.advance(3500)
    assert fired == [1000, 2000, 3000]


def test_cancelled_timer_does_not_fire_and_does_not_count_as_next() -> None:
    clock = VirtualClock()
    clock.call_later(1, lambda: pytest.fail("fired")).cancel()
    assert clock.next_timer_in() is None
    clock.advance(5000)


def test_small_steps_add_up_exactly() -> None:
    clock = VirtualClock(start_ms=0)
    for _ in range(1000):
        clock.advance(0.1)
    assert clock.now() == 100
    assert clock.monotonic() == 0.1


def test_jump_moves_only_the_wall_clock() -> None:
    clock = VirtualClock(start_ms=10_000)
    clock.call_later(1, lambda: pytest.fail("fired"))
    clock.jump(5_000)
    assert clock.now() == 15_000
    clock.jump(-20_000)
    assert clock.now() == -5_000
    assert clock.monotonic() == 0.0


def test_time_never_advances_backwards() -> None:
    with pytest.raises(ValueError, match="use jump"):
        VirtualClock().advance(-1)


async def test_advance_async_lets_tasks_run_between_moments() -> None:
    clock = VirtualClock(start_ms=0)
    seen: list[int] = []

    async def worker() -> None:
        for _ in range(3):
            await clock.sleep(1)
            seen.append(clock.now())

    task = asyncio.ensure_future(worker())
    await clock.advance_async(2500)
    assert seen == [1000, 2000]
    assert clock.now() == 2500
    await clock.advance_async(500)
    assert seen == [1000, 2000, 3000]
    await task


async def test_cancelled_sleep_leaves_no_timer() -> None:
    clock = VirtualClock()
    task = asyncio.ensure_future(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.next_timer_in() is None


async def test_wait_returns_true_when_any_future_is_done() -> None:
    clock = VirtualClock()
    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()
    second: asyncio.Future[None] = loop.create_future()
    loop.call_soon(second.set_result, None)
    assert await wait(clock, first, second, timeout=10) is True
    assert await wait(clock, first, second, timeout=0) is True
    assert clock.next_timer_in() is None
    assert not first.done()


async def test_wait_ends_without_cancelling_what_it_waited_for() -> None:
    clock = VirtualClock()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await wait(clock, future, timeout=0) is False
    waiting = asyncio.ensure_future(wait(clock, future, timeout=2))
    await clock.advance_async(1999)
    assert not waiting.done()
    await clock.advance_async(1)
    assert await waiting is False
    assert not future.done()


async def test_cancelling_the_waiter_does_not_cancel_the_future() -> None:
    clock = VirtualClock()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait(clock, future, timeout=None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not future.done()


async def test_wait_leaves_the_error_in_the_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(KeyError("mine"))
    assert await wait(VirtualClock(), future, timeout=1) is True
    assert isinstance(future.exception(), KeyError)


async def test_wait_event() -> None:
    clock = VirtualClock()
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_event(clock, event, timeout=2))
    await clock.advance_async(2000)
    assert await waiting is False
    waiting = asyncio.ensure_future(wait_event(clock, event, timeout=None))
    await clock.advance_async(100_000)
    event.set()
    assert await waiting is True
    assert await wait_event(clock, event, timeout=0) is True
