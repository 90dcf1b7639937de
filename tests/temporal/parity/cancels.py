"""Cancellation of everything that can be waited for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)


@activity.defn
async def beats() -> str:
    try:
        while True:
            activity.heartbeat("beat")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if activity.info().activity_id == "stubborn":
            return f"stubborn {details}"
        raise


@activity.defn
async def never_beats() -> str:
    await asyncio.sleep(1.0)
    return "done anyway"


@workflow.defn
class Nothing:
    @workflow.run
    async def run(self, seconds: float = 100) -> str:
        await asyncio.sleep(seconds)
        return "slept"


async def activity_waits(kind: ActivityCancellationType, identifier: str | None = None) -> Any:
    return await workflow.execute_activity(
        beats,
        start_to_close_timeout=SECONDS,
        heartbeat_timeout=timedelta(seconds=20),
        cancellation_type=kind,
        activity_id=identifier,
    )


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.ready = False

    @workflow.run
    async def run(self, what: str) -> Any:
        self.ready = True
        if what == "sleep":
            await asyncio.sleep(1000)
        elif what == "condition":
            await workflow.wait_condition(lambda: False)
        elif what == "condition with timeout":
            await workflow.wait_condition(lambda: False, timeout=1000)
        elif what == "try cancel":
            await activity_waits(ActivityCancellationType.TRY_CANCEL)
        elif what == "wait":
            await activity_waits(ActivityCancellationType.WAIT_CANCELLATION_COMPLETED)
        elif what == "stubborn":
            return await activity_waits(
                ActivityCancellationType.WAIT_CANCELLATION_COMPLETED, "stubborn"
            )
        elif what == "abandon":
            await activity_waits(ActivityCancellationType.ABANDON)
        elif what == "local":
            await workflow.execute_local_activity(beats, start_to_close_timeout=SECONDS)
        elif what == "child":
            await workflow.execute_child_workflow(
                Nothing.run,
                id=f"{workflow.info().workflow_id}-child",
                parent_close_policy=ParentClosePolicy.TERMINATE,
            )
        elif what == "shielded":
            task = asyncio.create_task(asyncio.sleep(0.5, "slept"))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                return f"shielded {await task}"
        elif what == "cleanup":
            try:
                await asyncio.sleep(1000)
            finally:
                await workflow.execute_activity(never_beats, start_to_close_timeout=SECONDS)
        elif what == "swallow":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError as error:
                return ["swallowed", str(error), workflow.cancellation_reason()]
        elif what == "replaced":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                raise ApplicationError("instead", type="Other") from None
        elif what == "twice":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(1000)
        elif what == "gather":
            await asyncio.gather(
                asyncio.sleep(1000),
                workflow.wait_condition(lambda: False),
                activity_waits(ActivityCancellationType.WAIT_CANCELLATION_COMPLETED),
            )
        elif what == "wait_for":
            await asyncio.wait_for(asyncio.sleep(1000), timeout=900)
        elif what == "task group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                group.create_task(activity_waits(ActivityCancellationType.TRY_CANCEL))
        return "end"

    @workflow.query
    def is_ready(self) -> bool:
        return self.ready


def _cancel(what: str) -> Any:
    async def cancelled(stage: Stage) -> Any:
        async with stage.worker([Waits, Nothing], [beats, never_beats]):
            handle = await stage.start(Waits, what, suffix=what.replace(" ", "-"))
            await handle.query(Waits.is_ready)
            if what in {"try cancel", "wait", "stubborn", "abandon", "gather", "task group"}:
                while not (await handle.describe()).raw_description.pending_activities:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.3)
            if what == "child":
                await stage.until(handle, "CHILD_WORKFLOW_EXECUTION_STARTED")
                await asyncio.sleep(0.3)
            await handle.cancel(reason="the reason")
            if what == "twice":
                await asyncio.sleep(0.3)
                found = await outcome(handle.cancel())
                await asyncio.sleep(0.3)
                await handle.terminate()
                return found
            return [
                await outcome(handle.result()),
                (await handle.describe()).status,
                await stage.history(handle),
            ]

    cancelled.__name__ = f"of_{what.replace(' ', '_')}"
    return scenario(cancelled)


for _what in [
    "sleep",
    "condition",
    "condition with timeout",
    "try cancel",
    "wait",
    "stubborn",
    "abandon",
    "local",
    "child",
    "shielded",
    "cleanup",
    "swallow",
    "replaced",
    "twice",
    "gather",
    "wait_for",
]:
    _cancel(_what)


@scenario
async def before_the_first_task(stage: Stage) -> Any:
    handle = await stage.start(Waits, "sleep")
    await handle.cancel()
    async with stage.worker([Waits]):
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class Unsent:
    """Everything is cancelled in the task that starts it."""

    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = []
        for start in (
            lambda: asyncio.create_task(asyncio.sleep(100)),
            lambda: workflow.start_activity(never_beats, start_to_close_timeout=SECONDS),
            lambda: workflow.start_local_activity(never_beats, start_to_close_timeout=SECONDS),
            lambda: asyncio.create_task(
                workflow.start_child_workflow(
                    Nothing.run, id=f"{workflow.info().workflow_id}-child"
                )
            ),
            lambda: asyncio.create_task(
                workflow.get_external_workflow_handle("nobody").signal("x")
            ),
            lambda: asyncio.create_task(workflow.wait_condition(lambda: False, timeout=5)),
        ):
            task: Any = start()
            for _ in range(3):
                await self.turn()
            task.cancel()
            try:
                await task
                found.append("nothing raised")
            except BaseException as error:
                found.append([is_cancelled_exception(error), *chain(error)])
        return found

    async def turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waiter.set_result, None)
        await waiter


@scenario
async def before_anything_is_sent(stage: Stage) -> Any:
    async with stage.worker([Unsent, Nothing], [never_beats]):
        handle = await stage.start(Unsent, suffix="unsent")
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class AcrossTasks:
    """Everything is cancelled one task after it was started."""

    @workflow.run
    async def run(self, kind: int) -> list[Any]:
        types = list(ActivityCancellationType)
        found: list[Any] = []
        scheduled = workflow.start_activity(
            beats,
            task_queue="nobody polls this",
            schedule_to_close_timeout=SECONDS,
            cancellation_type=types[kind],
        )
        started = workflow.start_activity(
            beats,
            start_to_close_timeout=SECONDS,
            heartbeat_timeout=timedelta(seconds=20),
            cancellation_type=types[kind],
        )
        await asyncio.sleep(1)
        for handle in (scheduled, started):
            handle.cancel()
            handle.cancel()
            try:
                found.append(await handle)
            except BaseException as error:
                found.append(chain(error))
        await asyncio.sleep(0.5)
        return found


def _across(kind: int) -> None:
    async def across(stage: Stage) -> Any:
        async with stage.worker([AcrossTasks], [beats]):
            return await stage.run(AcrossTasks, kind)

    across.__name__ = f"scheduled_and_started_{kind}"
    scenario(across)


for _kind in range(3):
    _across(_kind)


@workflow.defn
class RetriesCancelled:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(
            fails_always,
            start_to_close_timeout=SECONDS,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=50)),
        )
        await asyncio.sleep(1)
        handle.cancel()
        return await handle


@activity.defn
async def fails_always() -> None:
    raise ApplicationError("always", type="Always")


@scenario
async def of_an_activity_between_attempts(stage: Stage) -> Any:
    async with stage.worker([RetriesCancelled], [fails_always]):
        handle = await stage.start(RetriesCancelled)
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class RaisesCancelled:
    @workflow.run
    async def run(self, how: str) -> None:
        if how == "asyncio":
            raise asyncio.CancelledError("own")
        raise CancelledError("temporal", "detail")


@scenario
async def raised_without_a_request(stage: Stage) -> Any:
    async with stage.worker([RaisesCancelled]):
        return [await stage.run(RaisesCancelled, how) for how in ("asyncio", "temporal")]
