"""The workflows that the measurements of the engine run.

`count_to` is the same work the peer gets in `peer_dbos_script`: so many activities, one after the
other, each adding one.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from perdure import ActivityContext, Engine, WorkflowContext, activity, workflow

__all__ = ["activity_gate", "count_to", "hibernate", "hold", "step_latencies", "until_asleep"]

_YEAR = 365 * 24 * 3600.0

_begun: set[int] = set()

step_latencies: list[float] = []
"""Seconds from calling an activity to having its durable result; the caller clears it."""


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:  # noqa: ARG001
    return number + 1


@workflow
async def count_to(ctx: WorkflowContext, target: int) -> int:
    number = 0
    for _ in range(target):
        before = perf_counter()
        number = await ctx.activity(add_one, number)
        step_latencies.append(perf_counter() - before)
    return number


@workflow
async def hibernate(ctx: WorkflowContext, number: int) -> int:
    """Sleep for a year: what most stored workflows do at any one moment."""
    _begun.add(number)
    await ctx.sleep(_YEAR)
    return number


class _Gate:
    """Holds activities until it is opened."""

    def __init__(self) -> None:
        self.waiting = 0
        self._changed = asyncio.Event()
        self._opened = asyncio.Event()

    async def hold(self) -> None:
        """Wait for the gate to open."""
        self.waiting += 1
        self._changed.set()
        await self._opened.wait()

    async def reached(self, count: int) -> None:
        """Return when `count` activities wait at the same time."""
        while self.waiting < count:
            self._changed.clear()
            await self._changed.wait()

    def open(self) -> None:
        """Let all pass, now and later."""
        self._opened.set()


activity_gate = _Gate()


@activity(timeout=_YEAR)
async def wait_at_gate(ctx: ActivityContext, number: int) -> int:  # noqa: ARG001
    await activity_gate.hold()
    return number


@workflow
async def hold(ctx: WorkflowContext, number: int) -> int:
    """Stay running, in the middle of an activity."""
    return await ctx.activity(wait_at_gate, number)


async def until_asleep(engine: Engine, count: int) -> None:
    """Return when `count` workflows `hibernate`, dispatched with different numbers, have gone to
    sleep. A workflow that has not begun yet counts as sleeping in the store, so both are asked."""
    while True:
        if len(_begun) >= count:
            phases = (await engine.admin.stats()).workflows.get(hibernate.name, {})
            if phases.get("sleeping", 0) >= count:
                return
        await asyncio.sleep(0.05)
