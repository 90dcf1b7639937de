"""Alarms: one moment at a time."""

from __future__ import annotations

import asyncio

from perdure.temporal.worker.alarm import Alarm


async def test_only_the_last_moment_counts() -> None:
    rings = 0
    rang = asyncio.Event()

    def ring() -> None:
        nonlocal rings
        rings += 1
        rang.set()

    now = asyncio.get_running_loop().time()
    alarm = Alarm(ring)
    alarm.set(now)
    alarm.set(now + 3600)
    alarm.set(now)
    await rang.wait()
    assert (rings, alarm.is_set) == (1, False)


async def test_none_is_never() -> None:
    alarm = Alarm(lambda: None)
    alarm.set(0.0)
    alarm.set(None)
    assert not alarm.is_set


async def test_a_closed_alarm_is_silent() -> None:
    alarm = Alarm(lambda: None)
    alarm.set(0.0)
    alarm.close()
    alarm.set(0.0)
    assert not alarm.is_set
