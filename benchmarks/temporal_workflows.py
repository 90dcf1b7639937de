"""The workflows that both cores run. Nothing here knows which core it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow

__all__ = ["BATCH", "Batches", "OneActivity", "OneLocalActivity", "Rounds", "Waiting", "add_one"]

BATCH = 50
"""How many activities `Batches` has under way at once."""

_LIMIT = timedelta(seconds=60)


@activity.defn
async def add_one(number: int) -> int:
    return number + 1


@workflow.defn
class Rounds:
    """One thing after the other: an activity, a timer, a signal, and again."""

    def __init__(self) -> None:
        self._signals = 0

    @workflow.run
    async def run(self, rounds: int) -> int:
        total = 0
        for number in range(rounds):
            total += await workflow.execute_activity(add_one, number, start_to_close_timeout=_LIMIT)
            await asyncio.sleep(1)
            await workflow.wait_condition(lambda: self._signals > number)  # noqa: B023
        return total

    @workflow.signal
    def go_on(self) -> None:
        self._signals += 1


@workflow.defn
class Batches:
    """Many activities at once, and again."""

    @workflow.run
    async def run(self, batches: int) -> int:
        total = 0
        for _ in range(batches):
            results = await asyncio.gather(
                *(
                    workflow.execute_activity(add_one, number, start_to_close_timeout=_LIMIT)
                    for number in range(BATCH)
                )
            )
            total += sum(results)
        return total


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(add_one, number, start_to_close_timeout=_LIMIT)


@workflow.defn
class OneLocalActivity:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_local_activity(add_one, number, start_to_close_timeout=_LIMIT)


@workflow.defn
class Waiting:
    """Does nothing until it is told to end."""

    def __init__(self) -> None:
        self._over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._over)

    @workflow.signal
    def end(self) -> None:
        self._over = True
