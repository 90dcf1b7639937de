"""Activities of the server, those of workflows and those of their own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    UnpauseActivityRequest,
)
from temporalio.client import AsyncActivityCancelledError, WorkflowHandle
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
)

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)
ONCE = RetryPolicy(maximum_attempts=1)


async def said(awaitable: Any) -> Any:
    try:
        return await awaitable
    except BaseException as error:
        return chain(error)


@workflow.defn
class Runs:
    """Runs one activity by name with options made of plain values."""

    @workflow.run
    async def run(self, name: str, arguments: list[Any], options: dict[str, Any]) -> Any:
        for key in list(options):
            if key.endswith("_timeout"):
                options[key] = timedelta(seconds=options[key])
        options.setdefault("start_to_close_timeout", SECONDS)
        attempts = options.pop("attempts", 1)
        policy = RetryPolicy(maximum_attempts=attempts, initial_interval=timedelta(milliseconds=10))
        cancel_after = options.pop("cancel_after", None)
        kind = options.pop("cancel", 1)
        handle = workflow.start_activity(
            name,
            args=arguments,
            retry_policy=policy,
            cancellation_type=list(workflow.ActivityCancellationType)[kind],
            **options,
        )
        if cancel_after is not None:
            await asyncio.sleep(cancel_after)
            handle.cancel()
        return await said(handle)


async def run(
    stage: Stage, function: Any, *arguments: Any, suffix: str = "", **options: Any
) -> Any:
    name = function if isinstance(function, str) else function.__name__
    return await stage.run(Runs, name, list(arguments), options, suffix=suffix)


@activity.defn
async def fails(how: str) -> Any:
    if how == "application":
        raise ApplicationError(
            "text",
            "a",
            [1],
            type="T",
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )
    if how == "plain":
        raise ValueError("plain")
    if how == "cause":
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ApplicationError("outer") from error
    if how == "cancelled":
        raise CancelledError("own", "detail")
    if how == "asyncio cancelled":
        raise asyncio.CancelledError
    if how == "delay":
        raise ApplicationError("wait", next_retry_delay=timedelta(milliseconds=1))
    if how == "unserialisable":
        return object()
    return how


@scenario
async def failures(stage: Stage) -> Any:
    with stage.logs() as lines:
        async with stage.worker([Runs], [fails]):
            kinds = ("application", "plain", "cause", "delay", "unserialisable", "ok")
            found = [[how, await run(stage, fails, how)] for how in kinds]
            found.append(await run(stage, fails, "delay", attempts=3))
            found.append(await run(stage, "unknown", 1))
            found.append(await run(stage, fails))
            return [found, [line.split(" ['")[0] for line in lines]]


@activity.defn
async def beats_and_fails(times: int) -> Any:
    info = activity.info()
    seen = list(info.heartbeat_details)
    if info.attempt <= times:
        activity.heartbeat("attempt", info.attempt, seen)
        raise ApplicationError("again")
    return seen


@activity.defn
async def hangs(beat: bool = False) -> Any:
    try:
        while True:
            if beat:
                activity.heartbeat("beat")
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        if activity.info().activity_id == "tells":
            return str(activity.cancellation_details())
        raise


@scenario
async def heartbeats_and_time_outs(stage: Stage) -> Any:
    async with stage.worker([Runs], [beats_and_fails, hangs]):
        cases = [
            run(stage, beats_and_fails, 2, attempts=4),
            run(stage, beats_and_fails, 5, attempts=2),
            run(stage, hangs, start_to_close_timeout=1),
            run(stage, hangs, heartbeat_timeout=1),
            run(stage, hangs, schedule_to_close_timeout=1),
            run(stage, hangs, True, heartbeat_timeout=20, start_to_close_timeout=1.5),
            run(
                stage,
                hangs,
                schedule_to_start_timeout=1,
                task_queue="a queue that nobody polls",
            ),
            run(stage, hangs, True, cancel_after=0.6, heartbeat_timeout=20, activity_id="tells"),
        ]
        return await asyncio.gather(*cases)


@activity.defn
def threaded(how: str) -> Any:
    try:
        while True:
            activity.heartbeat()
            if how == "shielded":
                with activity.shield_thread_cancel_exception():
                    while not activity.is_cancelled():
                        time.sleep(0.02)
                    time.sleep(0.1)
            if how == "waits":
                activity.wait_for_cancelled_sync(10)
                return ["waited", activity.is_cancelled()]
            time.sleep(0.02)
    except CancelledError as error:
        return [how, str(error), str(activity.cancellation_details())]


@activity.defn(no_thread_cancel_exception=True)
def threaded_without_exception() -> Any:
    while not activity.is_cancelled():
        activity.heartbeat()
        time.sleep(0.02)
    return ["noticed", threading.current_thread() is threading.main_thread()]


@activity.defn
def threaded_plain(value: int) -> Any:
    return [value + 1, activity.in_activity(), activity.info().attempt]


@scenario
async def in_threads(stage: Stage) -> Any:
    async with stage.worker(
        [Runs],
        [threaded, threaded_plain, threaded_without_exception],
        activity_executor=stage.threads,
    ):
        options: dict[str, Any] = {"cancel_after": 0.5, "heartbeat_timeout": 20}
        return await asyncio.gather(
            run(stage, threaded_plain, 1),
            run(stage, threaded, "raises", **options),
            run(stage, threaded, "shielded", **options),
            run(stage, threaded, "waits", **options),
            run(stage, threaded_without_exception, **options),
            run(stage, threaded, "times out", start_to_close_timeout=1),
        )


class Later:
    """Activities that are completed by somebody else."""

    def __init__(self) -> None:
        self.tokens: asyncio.Queue[bytes] = asyncio.Queue()

    @activity.defn
    async def later(self) -> str:
        await self.tokens.put(activity.info().task_token)
        activity.raise_complete_async()


@scenario
async def completed_from_outside(stage: Stage) -> Any:
    later = Later()
    found: list[Any] = []
    async with stage.worker([Runs], [later.later]):
        for how in ("complete", "fail", "cancel", "by id", "heartbeat", "cancelled heartbeat"):
            options: dict[str, Any] = {"heartbeat_timeout": 10, "activity_id": "the-id"}
            if how == "cancelled heartbeat":
                options["cancel_after"] = 0.3
            handle = await stage.start(Runs, "later", [], options)
            token = await later.tokens.get()
            by_token = stage.client.get_async_activity_handle(task_token=token)
            by_id = stage.client.get_async_activity_handle(
                workflow_id=handle.id, run_id=None, activity_id="the-id"
            )
            if how == "complete":
                await by_token.complete("value")
                found.append(await outcome(by_token.complete("again")))
            elif how == "fail":
                await by_token.fail(
                    ApplicationError("failed outside", 1, type="Out"),
                    last_heartbeat_details=["last"],
                )
            elif how == "cancel":
                found.append(await outcome(by_token.report_cancellation("detail")))
                await by_token.complete("not cancelled")
            elif how == "by id":
                await by_id.heartbeat("beat")
                await by_id.complete("by id")
            elif how == "heartbeat":
                await by_token.heartbeat("one", 2)
                await by_id.fail(ValueError("by id"))
            else:
                while True:
                    try:
                        await by_token.heartbeat("x")
                    except AsyncActivityCancelledError as error:
                        found.append([str(error), str(error.details)])
                        break
                    await asyncio.sleep(0.1)
                await by_token.report_cancellation("reported")
            found.append([how, await outcome(handle.result())])
    return found


async def _act(stage: Stage, kind: Any, workflow_id: str, **fields: Any) -> None:
    calls: dict[Any, Any] = {
        PauseActivityRequest: stage.client.workflow_service.pause_activity,
        UnpauseActivityRequest: stage.client.workflow_service.unpause_activity,
        ResetActivityRequest: stage.client.workflow_service.reset_activity,
    }
    await calls[kind](
        kind(
            namespace="default",
            execution=WorkflowExecution(workflow_id=workflow_id),
            id="act",
            identity="somebody",
            **fields,
        )
    )


async def _pending(handle: WorkflowHandle[Any, Any]) -> Any:
    description = (await handle.describe()).raw_description
    return description.pending_activities[0] if description.pending_activities else None


@activity.defn
async def is_told() -> Any:
    try:
        while True:
            activity.heartbeat(activity.info().attempt)
            await asyncio.sleep(0.05)
            if activity.info().attempt > 1:
                return ["again", activity.info().attempt, list(activity.info().heartbeat_details)]
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        assert details
        if details.paused or details.reset:
            raise ApplicationError(f"told {details}") from None
        return str(details)


@scenario
async def paused_and_reset(stage: Stage) -> Any:
    found: list[Any] = []
    options = {"activity_id": "act", "heartbeat_timeout": 20, "attempts": 5}
    async with stage.worker([Runs], [is_told]):
        for kind in (PauseActivityRequest, ResetActivityRequest):
            handle = await stage.start(Runs, "is_told", [], options)

            while not (p := await _pending(handle)) or not p.HasField("heartbeat_details"):
                await asyncio.sleep(0.05)
            await _act(stage, kind, handle.id)
            if kind is PauseActivityRequest:
                while not (p := await _pending(handle)) or not p.HasField("last_failure"):
                    await asyncio.sleep(0.05)
                found.append([p.paused, p.last_failure.message, p.state])
                await _act(stage, UnpauseActivityRequest, handle.id)
            found.append(await outcome(handle.result()))
    return found


@activity.defn
async def until_shutdown() -> Any:
    try:
        if activity.info().activity_id == "waits":
            await activity.wait_for_worker_shutdown()
            return ["shut down", activity.is_worker_shutdown(), activity.is_cancelled()]
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        if activity.info().activity_id == "raises":
            raise
        return str(activity.cancellation_details())


@scenario
async def worker_shutdown(stage: Stage) -> Any:
    found: list[Any] = []
    for name, grace in (("waits", 5), ("told", 0.1), ("raises", 0)):
        handle = await stage.start(Runs, "until_shutdown", [], {"activity_id": name, "attempts": 1})
        async with stage.worker(
            [Runs], [until_shutdown], graceful_shutdown_timeout=timedelta(seconds=grace)
        ):
            await stage.until(handle, "WORKFLOW_TASK_COMPLETED")
            while not (await handle.describe()).raw_description.pending_activities[0].attempt:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
        async with stage.worker([Runs], [until_shutdown]):
            found.append(await outcome(handle.result()))
    return found


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


class Methods:
    def __init__(self, name: str) -> None:
        self.name = name

    @activity.defn(name="a method")
    async def method(self, value: int) -> str:
        VARIABLE.set(self.name)
        return f"{self.name} {value} {VARIABLE.get()}"

    @activity.defn
    def sync_method(self) -> str:
        return f"{self.name} {VARIABLE.get()}"


@activity.defn(name="callable")
class CalledObject:
    async def __call__(self, value: str) -> str:
        return f"called {value}"


@activity.defn(dynamic=True)
async def dynamic(arguments: Sequence[RawValue]) -> Any:
    payloads = [activity.payload_converter().from_payload(a.payload) for a in arguments]
    return [activity.info().activity_type, payloads]


@scenario
async def all_kinds_of_callables(stage: Stage) -> Any:
    methods = Methods("object")
    async with stage.worker(
        [Runs],
        [methods.method, methods.sync_method, CalledObject(), dynamic],
        activity_executor=stage.threads,
    ):
        return [
            await run(stage, "a method", 3),
            await run(stage, "sync_method"),
            await run(stage, "callable", "x"),
            await run(stage, "never heard", 1, "b"),
        ]


@activity.defn
async def double(value: int) -> int:
    activity.logger.warning("doubling", extra={"own": 1})
    activity.metric_meter().create_counter("doubled").add(1)
    return value * 2


@scenario
async def of_their_own(stage: Stage) -> Any:
    """Activities without a workflow."""
    async with stage.worker([], [double, fails, hangs, beats_and_fails]):
        start = stage.client.start_activity
        common: dict[str, Any] = {
            "task_queue": stage.queue,
            "start_to_close_timeout": SECONDS,
            "retry_policy": ONCE,
        }
        found = [
            await outcome(stage.client.execute_activity(double, 4, id=stage.name("a"), **common)),
            await outcome(
                stage.client.execute_activity(fails, "application", id=stage.name("b"), **common)
            ),
            await outcome(
                stage.client.execute_activity(fails, "plain", id=stage.name("c"), **common)
            ),
        ]
        handle = await start(
            hangs, True, id=stage.name("d"), heartbeat_timeout=timedelta(seconds=20), **common
        )
        found.append(await outcome(start(hangs, True, id=stage.name("d"), **common)))
        while (await handle.describe()).last_heartbeat_time is None:
            await asyncio.sleep(0.05)
        await handle.cancel(reason="the reason")
        found.append(await outcome(handle.result()))
        found.append((await handle.describe()).status)
        terminated = await start(hangs, id=stage.name("e"), **common)
        await terminated.terminate(reason="enough")
        found.append(await outcome(terminated.result()))
        common["start_to_close_timeout"] = timedelta(seconds=1)
        timed_out = await start(hangs, id=stage.name("f"), **common)
        found.append(await outcome(timed_out.result()))
        return found


@activity.defn
async def reads_headers() -> Any:
    return activity.info().workflow_type


@workflow.defn
class EagerOnes:
    @workflow.run
    async def run(self, count: int) -> list[int]:
        return await asyncio.gather(
            *(
                workflow.execute_activity(double, n, start_to_close_timeout=SECONDS)
                for n in range(count)
            )
        )


@scenario
async def eagerly(stage: Stage) -> Any:
    found: list[Any] = []
    for options in (
        {},
        {"disable_eager_activity_execution": True},
        {"max_concurrent_activities": 1},
    ):
        async with stage.worker([EagerOnes], [double], **options):
            handle = await stage.start(EagerOnes, 5)
            found.append(await outcome(handle.result()))
            found.append(
                sum(
                    event.activity_task_started_event_attributes.scheduled_event_id > 0
                    for event in (await handle.fetch_history()).events
                )
            )
    return found


@scenario
async def only_activities_and_only_workflows(stage: Stage) -> Any:
    async with stage.worker([EagerOnes]), stage.worker([], [double], task_queue=stage.queue):
        return await stage.run(EagerOnes, 3)


@scenario
async def no_remote_activities(stage: Stage) -> Any:
    async with stage.worker([EagerOnes], [double], no_remote_activities=True):
        handle = await stage.start(EagerOnes, 1, execution_timeout=timedelta(seconds=1))
        return await outcome(handle.result())


@scenario
async def one_at_a_time(stage: Stage) -> Any:
    async with stage.worker(
        [EagerOnes],
        [double],
        max_concurrent_activities=1,
        max_concurrent_workflow_tasks=2,
        max_concurrent_activity_task_polls=1,
        max_activities_per_second=50,
        max_task_queue_activities_per_second=50,
    ):
        return await stage.run(EagerOnes, 6)


@scenario
async def logged(stage: Stage) -> Any:
    import logging

    with stage.logs(logging.DEBUG) as lines:
        async with stage.worker([Runs], [double, fails]):
            await run(stage, double, 2, suffix="logged")
            await run(stage, fails, "application", suffix="fails")
            await run(stage, fails, "plain", suffix="fails2")
    return sorted(line for line in lines if "temporalio.activity" in line or "_activity" in line)
