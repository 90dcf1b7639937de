"""The workflows and activities that `client_areas` works with."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

__all__ = ["Chain", "Failing", "Outside", "Talker", "elsewhere", "join", "tokens"]


@workflow.defn
class Talker:
    """Ends with all it was told when it is told to."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: "end" in self.heard)
        return self.heard

    @workflow.signal
    def hear(self, word: str) -> None:
        self.heard.append(word)

    @workflow.query
    def words(self) -> list[str]:
        return self.heard

    @workflow.query
    def wrong(self) -> str:
        raise ApplicationError("no answer", "detail", type="Wrong")

    @workflow.update
    async def say(self, word: str) -> int:
        await asyncio.sleep(0.001)
        if word == "fail":
            raise ApplicationError("update failed", type="Said")
        self.heard.append(word)
        return len(self.heard)

    @say.validator
    def check(self, word: str) -> None:
        if not word:
            raise ApplicationError("say something")


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, left: int) -> int:
        if left:
            workflow.continue_as_new(left - 1)
        return 7


@workflow.defn
class Failing:
    @workflow.run
    async def run(self) -> None:
        raise ApplicationError("on purpose", 1, type="Purpose", non_retryable=True)


@workflow.defn
class Outside:
    """Waits for an activity that somebody else completes."""

    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            elsewhere,
            start_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


tokens: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()


@activity.defn
async def elsewhere() -> str:
    info = activity.info()
    tokens.put_nowait((info.task_token, info.activity_id))
    activity.raise_complete_async()


@activity.defn
async def join(first: str, second: str) -> str:
    if not second:
        raise ApplicationError("nothing to join", type="Empty", non_retryable=True)
    return first + second
