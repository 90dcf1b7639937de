"""Local activities."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)


@activity.defn
async def echo(value: Any) -> Any:
    return [value, activity.info().attempt, activity.info().is_local]


@activity.defn
async def fails_until(attempt: int, delay: float | None = None) -> int:
    if activity.info().attempt < attempt:
        raise ApplicationError(
            f"attempt {activity.info().attempt}",
            type="Early",
            next_retry_delay=None if delay is None else timedelta(seconds=delay),
        )
    return activity.info().attempt


@activity.defn
async def fails(non_retryable: bool) -> None:
    raise ApplicationError("failed", "d", type="Bad", non_retryable=non_retryable)


@activity.defn
async def hangs() -> str:
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        if activity.info().activity_id == "stubborn":
            return "stubborn"
        raise
    return "never"


@activity.defn
def in_a_thread() -> str:
    try:
        while not activity.is_cancelled():
            time.sleep(0.02)
    except BaseException as error:
        return f"{type(error).__name__}"
    return "noticed"


@activity.defn(dynamic=True)
async def dynamic(arguments: Sequence[RawValue]) -> Any:
    return [activity.info().activity_type, len(arguments)]


async def said(awaitable: Any) -> Any:
    try:
        return await awaitable
    except BaseException as error:
        return chain(error)


@workflow.defn
class Everything:
    @workflow.run
    async def run(self) -> list[Any]:
        run = workflow.execute_local_activity
        once = RetryPolicy(maximum_attempts=1)
        quick = RetryPolicy(initial_interval=timedelta(milliseconds=5), backoff_coefficient=1.0)
        return [
            await said(run(echo, "a", start_to_close_timeout=SECONDS, activity_id="own id")),
            await said(run("unknown", args=[1, 2], start_to_close_timeout=SECONDS)),
            await said(run(fails, True, start_to_close_timeout=SECONDS)),
            await said(run(fails, False, start_to_close_timeout=SECONDS, retry_policy=once)),
            await said(
                run(
                    fails,
                    False,
                    start_to_close_timeout=SECONDS,
                    retry_policy=RetryPolicy(non_retryable_error_types=["Bad"]),
                )
            ),
            await said(run(fails_until, 3, start_to_close_timeout=SECONDS, retry_policy=quick)),
            await said(
                run(
                    fails_until,
                    args=[3, 0.01],
                    start_to_close_timeout=SECONDS,
                    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=10)),
                )
            ),
        ]


@workflow.defn
class TimesOut:
    @workflow.run
    async def run(self, how: str) -> Any:
        run = workflow.execute_local_activity
        once = RetryPolicy(maximum_attempts=1)
        brief = timedelta(seconds=0.1)
        if how == "start":
            return await said(run(hangs, start_to_close_timeout=brief, retry_policy=once))
        return await said(run(hangs, schedule_to_close_timeout=brief))


@scenario
async def times_out_after_start(stage: Stage) -> Any:
    async with stage.worker([TimesOut], [hangs]):
        handle = await stage.start(TimesOut, "start")
        return [await outcome(handle.result()), await stage.history(handle)]


@scenario
async def times_out_after_schedule(stage: Stage) -> Any:
    async with stage.worker([TimesOut], [hangs]):
        handle = await stage.start(TimesOut, "schedule")
        return [await outcome(handle.result()), await stage.history(handle)]


@scenario
async def results_failures_and_time_outs(stage: Stage) -> Any:
    async with stage.worker([Everything], [echo, fails, fails_until, hangs, dynamic]):
        handle = await stage.start(Everything)
        result = await outcome(handle.result())
        history = await handle.fetch_history()
        replay = await Replayer(workflows=[Everything]).replay_workflow(
            history, raise_on_replay_failure=False
        )
        return [result, await stage.history(handle), str(replay.replay_failure)]


@workflow.defn
class BacksOff:
    @workflow.run
    async def run(self) -> list[Any]:
        return [
            await said(
                workflow.execute_local_activity(
                    fails_until,
                    3,
                    schedule_to_close_timeout=SECONDS,
                    local_retry_threshold=timedelta(milliseconds=50),
                    retry_policy=RetryPolicy(
                        initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0
                    ),
                )
            ),
            workflow.unsafe.is_replaying(),
        ]


@scenario
async def backs_off_with_a_timer(stage: Stage) -> Any:
    async with stage.worker([BacksOff], [fails_until]):
        handle = await stage.start(BacksOff)
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class CancelsLocal:
    @workflow.run
    async def run(self, kind: int, identifier: str) -> list[Any]:
        handle = workflow.start_local_activity(
            hangs,
            start_to_close_timeout=SECONDS,
            cancellation_type=list(ActivityCancellationType)[kind],
            activity_id=identifier,
        )
        await asyncio.sleep(0.3)
        handle.cancel()
        first = await said(handle)
        thread = workflow.start_local_activity(
            in_a_thread,
            start_to_close_timeout=SECONDS,
            cancellation_type=list(ActivityCancellationType)[kind],
        )
        await workflow.execute_local_activity(echo, 1, start_to_close_timeout=SECONDS)
        thread.cancel()
        return [first, await said(thread)]


@scenario
async def cancellation_types(stage: Stage) -> Any:
    found = []
    async with stage.worker(
        [CancelsLocal], [hangs, in_a_thread, echo], activity_executor=stage.threads
    ):
        for kind in range(2):
            for identifier in ("polite", "stubborn"):
                handle = await stage.start(
                    CancelsLocal, kind, identifier, task_timeout=timedelta(seconds=1)
                )
                found.append(await outcome(handle.result()))
                history = await handle.fetch_history()
                replay = await Replayer(workflows=[CancelsLocal]).replay_workflow(
                    history, raise_on_replay_failure=False
                )
                found.append(str(replay.replay_failure))
    return found


@workflow.defn
class Many:
    @workflow.run
    async def run(self) -> list[Any]:
        run = workflow.execute_local_activity
        results = await asyncio.gather(
            *(run(echo, n, start_to_close_timeout=SECONDS) for n in range(25))
        )
        remote = await asyncio.gather(
            run(echo, "local", start_to_close_timeout=SECONDS),
            workflow.execute_activity(echo, "remote", start_to_close_timeout=SECONDS),
            asyncio.sleep(0.01, "timer"),
        )
        return [*results, *remote]


@scenario
async def many_and_mixed(stage: Stage) -> Any:
    found = []
    for options in ({}, {"max_cached_workflows": 0}, {"max_concurrent_local_activities": 1}):
        async with stage.worker([Many], [echo], **options):
            handle = await stage.start(Many)
            found.append(await outcome(handle.result()))
            history = await handle.fetch_history()
            replay = await Replayer(workflows=[Many]).replay_workflow(
                history, raise_on_replay_failure=False
            )
            found.append(str(replay.replay_failure))
    return found


@workflow.defn
class Long:
    def __init__(self) -> None:
        self.signals = 0

    @workflow.run
    async def run(self) -> list[Any]:
        result = await workflow.execute_local_activity(sleeps, 2.5, start_to_close_timeout=SECONDS)
        return [result, self.signals]

    @workflow.signal
    def note(self) -> None:
        self.signals += 1

    @workflow.query
    def read(self) -> int:
        return self.signals

    @workflow.update
    def upd(self) -> int:
        self.signals += 10
        return self.signals


@activity.defn
async def sleeps(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@scenario
async def longer_than_a_task(stage: Stage) -> Any:
    async with stage.worker([Long], [sleeps]):
        handle = await stage.start(Long, task_timeout=timedelta(seconds=1))
        await asyncio.sleep(0.3)
        await handle.signal(Long.note)
        update = await outcome(handle.execute_update(Long.upd))
        query = await outcome(handle.query(Long.read))
        result = await outcome(handle.result())
        kinds = [line.split(" ")[1] for line in await stage.history(handle)]
        return [result, update, query, kinds.count("MARKER_RECORDED"), kinds[-1]]


@workflow.defn
class EndsFirst:
    @workflow.run
    async def run(self) -> str:
        workflow.start_local_activity(hangs, start_to_close_timeout=SECONDS)
        await workflow.execute_local_activity(echo, 1, start_to_close_timeout=SECONDS)
        return "ended"


@scenario
async def the_workflow_ends_first(stage: Stage) -> Any:
    async with stage.worker([EndsFirst], [hangs, echo]):
        handle = await stage.start(EndsFirst)
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class NotRegistered:
    @workflow.run
    async def run(self) -> Any:
        return await said(
            workflow.execute_local_activity(
                "nobody",
                start_to_close_timeout=SECONDS,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        )


@scenario
async def an_unknown_type(stage: Stage) -> Any:
    async with stage.worker([NotRegistered], [echo]):
        return await stage.run(NotRegistered)
