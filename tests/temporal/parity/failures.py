"""What fails a workflow, what fails a task, and how a task recovers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    FailureError,
)
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

SECONDS = timedelta(seconds=20)
SWITCH: dict[str, int] = {}


class Custom(Exception):
    pass


class CustomFailure(FailureError):
    pass


@workflow.defn
class Raises:
    @workflow.run
    async def run(self, how: str) -> Any:
        if how == "application":
            raise ApplicationError(
                "text",
                "a",
                {"b": 1},
                type="T",
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            )
        if how == "chained":
            try:
                raise ValueError("inner")
            except ValueError as error:
                raise ApplicationError("outer") from error
        if how == "failure error":
            raise CustomFailure("own failure")
        if how == "timeout":
            await asyncio.wait_for(asyncio.sleep(100), 0.01)
        if how == "condition timeout":
            await workflow.wait_condition(lambda: False, timeout=0.01)
        if how == "activity":
            await workflow.execute_activity(
                raises,
                start_to_close_timeout=SECONDS,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        if how == "custom":
            raise Custom("custom")
        if how == "group":
            raise ExceptionGroup("several", [ApplicationError("one"), ApplicationError("two")])
        if how == "base":
            raise KeyboardInterrupt("interrupted")
        if how == "exit":
            raise SystemExit(3)
        return "no failure"


@activity.defn
async def raises() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ApplicationError("in the activity", 5, type="Act") from error


@scenario
async def that_end_the_workflow(stage: Stage) -> Any:
    async with stage.worker([Raises], [raises]):
        return [
            [how, await stage.run(Raises, how)]
            for how in (
                "application",
                "chained",
                "failure error",
                "timeout",
                "condition timeout",
                "activity",
            )
        ]


async def task_failure(stage: Stage, handle: WorkflowHandle[Any, Any]) -> list[str]:
    failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
    attributes = failed[0].workflow_task_failed_event_attributes
    await handle.terminate()
    return [
        str(attributes.cause),
        attributes.failure.message,
        str(attributes.failure.cause.message),
    ]


@scenario
async def that_fail_the_task(stage: Stage) -> Any:
    with stage.logs() as lines:
        async with stage.worker([Raises]):
            found: list[Any] = [
                [how, await task_failure(stage, await stage.start(Raises, how))]
                for how in ("custom", "group")
            ]
            handle = await stage.start("Unknown type")
            found.append(await task_failure(stage, handle))
            handle = await stage.start(Raises)
            found.append(await task_failure(stage, handle))
        return [found, sorted(line[:300] for line in set(stage.comparable(lines)))]


@workflow.defn(failure_exception_types=[Custom])
class FailsOnCustom:
    @workflow.run
    async def run(self, how: str) -> None:
        if how == "other":
            raise ValueError("other")
        raise Custom("custom")

    @workflow.update
    def upd(self) -> None:
        raise Custom("in an update")


@scenario
async def failure_exception_types(stage: Stage) -> Any:
    async with stage.worker([FailsOnCustom, Raises]):
        found = [await stage.run(FailsOnCustom, "custom")]
        found.append(await task_failure(stage, await stage.start(FailsOnCustom, "other")))
    async with stage.worker([FailsOnCustom, Raises], workflow_failure_exception_types=[Exception]):
        found.append(await stage.run(FailsOnCustom, "other"))
        found.append(await stage.run(Raises, "custom"))
        found.append(await stage.run(Raises, "group"))
    return found


@workflow.defn
class Recovers:
    @workflow.run
    async def run(self, identifier: str) -> str:
        await asyncio.sleep(0.01)
        with workflow.unsafe.sandbox_unrestricted():
            count = SWITCH[identifier] = SWITCH.get(identifier, 0) + 1
        if count < 3:
            raise RuntimeError(f"attempt {count}")
        return f"attempt {count}"


@scenario
async def that_recover(stage: Stage) -> Any:
    runner = UnsandboxedWorkflowRunner()
    async with stage.worker([Recovers], workflow_runner=runner):
        handle = await stage.start(Recovers, stage.name("count"), task_timeout=timedelta(seconds=2))
        return [await outcome(handle.result(), 20), await stage.history(handle)]


@workflow.defn
class Changes:
    """Another command at every replay."""

    @workflow.run
    async def run(self, identifier: str) -> str:
        with workflow.unsafe.sandbox_unrestricted():
            count = SWITCH[identifier] = SWITCH.get(identifier, 0) + 1
        if count == 1:
            await asyncio.sleep(0.01)
        elif count == 2:
            await workflow.execute_activity(raises, start_to_close_timeout=SECONDS)
        else:
            await asyncio.sleep(0.01)
        await workflow.wait_condition(lambda: False)
        return "end"


@workflow.defn(failure_exception_types=[workflow.NondeterminismError])
class ChangesAndFails(Changes):
    @workflow.run
    async def run(self, identifier: str) -> str:
        return await super().run(identifier)


@scenario
async def nondeterminism(stage: Stage) -> Any:
    found = []
    runner = UnsandboxedWorkflowRunner()
    for options in ({}, {"workflow_failure_exception_types": [workflow.NondeterminismError]}):
        for kind in (Changes, ChangesAndFails):
            async with stage.worker(
                [Changes, ChangesAndFails],
                workflow_runner=runner,
                max_cached_workflows=0,
                **options,
            ):
                name = stage.name()
                handle = await stage.start(kind, name, task_timeout=timedelta(seconds=2))
                if kind is Changes and not options:
                    failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
                    attributes = failed[0].workflow_task_failed_event_attributes
                    found.append([attributes.cause, attributes.failure.message[:33]])
                    await handle.terminate()
                else:
                    found.append([line[:48] for line in await outcome(handle.result())])
                    found.append([e.split(" {")[0] for e in await stage.history(handle)])
    return found


@workflow.defn(dynamic=True)
class DynamicChanges:
    @workflow.run
    async def run(self, arguments: Sequence[RawValue]) -> str:
        identifier = workflow.info().run_id
        with workflow.unsafe.sandbox_unrestricted():
            count = SWITCH[identifier] = SWITCH.get(identifier, 0) + 1
        if count == 1:
            await asyncio.sleep(0.01)
        else:
            await workflow.execute_activity(raises, start_to_close_timeout=SECONDS)
        await workflow.wait_condition(lambda: False)
        return "end"


@scenario
async def nondeterminism_of_dynamic_workflows(stage: Stage) -> Any:
    async with stage.worker(
        [DynamicChanges], workflow_runner=UnsandboxedWorkflowRunner(), max_cached_workflows=0
    ):
        handle = await stage.start("whatever", task_timeout=timedelta(seconds=2))
        return (await task_failure(stage, handle))[0]


@workflow.defn
class Blocks:
    @workflow.run
    async def run(self, how: str) -> str:
        if how == "forever":
            while not workflow.unsafe.is_replaying():
                time.sleep(0.01)
        with workflow.unsafe.sandbox_unrestricted():
            if SWITCH.setdefault(workflow.info().workflow_id, 1) == 1:
                SWITCH[workflow.info().workflow_id] = 2
                threading.Event().wait(3)
        return "unblocked"


@scenario
async def deadlock(stage: Stage) -> Any:
    with stage.logs() as lines:
        async with stage.worker([Blocks], workflow_runner=UnsandboxedWorkflowRunner()):
            handle = await stage.start(Blocks, "once", task_timeout=timedelta(seconds=10))
            failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
            attributes = failed[0].workflow_task_failed_event_attributes
            return [
                attributes.cause,
                attributes.failure.message,
                await outcome(handle.result(), 20),
                [line[:150] for line in lines],
            ]


@scenario
async def deadlock_that_is_interrupted(stage: Stage) -> Any:
    async with stage.worker(
        [Blocks],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        handle = await stage.start(Blocks, "forever", task_timeout=timedelta(seconds=10))
        return await task_failure(stage, handle)


@workflow.defn
class Restricted:
    @workflow.run
    async def run(self, how: str) -> Any:
        if how == "time":
            return time.time()
        if how == "sleep":
            time.sleep(0.1)
        if how == "open":
            return open("/etc/hostname").read()
        if how == "random":
            import random

            return random.random()
        if how == "thread":
            await asyncio.to_thread(time.sleep, 0.1)
        if how == "loop time":
            asyncio.get_running_loop().run_in_executor(None, print)
        return None


@scenario
async def of_the_sandbox(stage: Stage) -> Any:
    async with stage.worker([Restricted]):
        return [
            [how, await task_failure(stage, await stage.start(Restricted, how))]
            for how in ("time", "sleep", "open", "random", "thread")
        ]


@workflow.defn
class BadCommands:
    @workflow.run
    async def run(self, how: str) -> Any:
        if how == "no timeout":
            await workflow.execute_activity(raises)
        if how == "same id":
            one = workflow.start_activity(
                raises, activity_id="same", start_to_close_timeout=SECONDS
            )
            two = workflow.start_activity(
                raises, activity_id="same", start_to_close_timeout=SECONDS
            )
            await one
            await two
        if how == "attribute":
            from temporalio.common import SearchAttributeKey

            workflow.upsert_search_attributes([SearchAttributeKey.for_int("None").value_set(1)])
        if how == "unserialisable":
            return object()
        if how == "empty queue":
            await workflow.execute_activity(raises, start_to_close_timeout=timedelta(seconds=-5))
        await asyncio.sleep(0.01)
        return "end"


@scenario
async def of_commands(stage: Stage) -> Any:
    async with stage.worker([BadCommands], [raises]):
        found = []
        for how in ("no timeout", "same id", "attribute", "unserialisable", "empty queue"):
            handle = await stage.start(BadCommands, how, task_timeout=timedelta(seconds=3))
            found.append([how, await task_failure(stage, handle)])
        return found


@scenario
async def replayed(stage: Stage) -> Any:
    found: list[Any] = []
    async with stage.worker([Raises], [raises]):
        for how in ("activity", "timeout", "application", "none"):
            handle = await stage.start(Raises, how)
            await outcome(handle.result())
            history = await handle.fetch_history()
            result = await Replayer(workflows=[Raises]).replay_workflow(
                history, raise_on_replay_failure=False
            )
            found.append(str(result.replay_failure))
            other = await Replayer(workflows=[RenamedRaises]).replay_workflow(
                history, raise_on_replay_failure=False
            )
            found.append(type(other.replay_failure).__name__)
    return found


@workflow.defn(name="Raises")
class RenamedRaises:
    @workflow.run
    async def run(self, how: str) -> Any:
        await asyncio.sleep(7)
        raise CancelledError("other")


@scenario
async def replayed_without_the_type(stage: Stage) -> Any:
    async with stage.worker([Raises], [raises]):
        handle = await stage.start(Raises, "none")
        await handle.result()
        history = await handle.fetch_history()
    try:
        await Replayer(workflows=[FailsOnCustom]).replay_workflow(history)
    except Exception as error:
        return [type(error).__name__, "is not registered on this worker" in str(error)]
    return "no failure"
