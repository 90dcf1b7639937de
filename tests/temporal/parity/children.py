"""Child workflows and other workflows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import (
    Priority,
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)


@workflow.defn
class Child:
    def __init__(self) -> None:
        self.got: list[Any] = []

    @workflow.run
    async def run(self, how: str = "return") -> Any:
        if how == "fail":
            raise ApplicationError("child failed", 1, type="ChildError", non_retryable=True)
        if how == "wait":
            try:
                await workflow.wait_condition(lambda: bool(self.got))
            except asyncio.CancelledError:
                raise ApplicationError(f"reason {workflow.cancellation_reason()}") from None
        if how == "hang":
            await workflow.wait_condition(lambda: False)
        if how == "slow cancel":
            try:
                await workflow.wait_condition(lambda: False)
            finally:
                await asyncio.sleep(1)
        if how == "ignore cancel":
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                return "ignored"
        if how == "continue":
            workflow.continue_as_new("return")
        return [how, *self.got]

    @workflow.signal
    def note(self, value: Any) -> None:
        self.got.append(value)


async def said(awaitable: Any) -> Any:
    try:
        return await awaitable
    except BaseException as error:
        return chain(error)


def child_id(suffix: str) -> str:
    return f"{workflow.info().workflow_id}-{suffix}"


@workflow.defn
class Outcomes:
    @workflow.run
    async def run(self) -> list[Any]:
        execute = workflow.execute_child_workflow
        found = [
            await said(execute(Child.run, id=child_id("a"))),
            await said(execute(Child.run, "fail", id=child_id("b"))),
            await said(execute(Child.run, "continue", id=child_id("c"))),
            await said(
                execute(Child.run, "hang", id=child_id("d"), execution_timeout=timedelta(seconds=1))
            ),
            await said(
                execute(
                    Child.run,
                    "hang",
                    id=child_id("e"),
                    run_timeout=timedelta(seconds=1),
                    task_timeout=timedelta(seconds=5),
                )
            ),
            await said(
                execute(
                    Child.run,
                    id=child_id("a"),
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                )
            ),
            await said(execute("NoSuchType", id=child_id("f"), run_timeout=timedelta(seconds=1))),
            await said(
                execute(
                    Child.run,
                    "fail",
                    id=child_id("g"),
                    retry_policy=RetryPolicy(maximum_attempts=2),
                )
            ),
        ]
        handle = await workflow.start_child_workflow(Child.run, "hang", id=child_id("h"))
        found.append(handle.id)
        twin = await said(workflow.start_child_workflow(Child.run, id=child_id("h")))
        found.append(twin)
        handle.cancel()
        found.append(await said(handle))
        return found


@scenario
async def outcomes(stage: Stage) -> Any:
    async with stage.worker([Outcomes, Child]):
        return await stage.run(Outcomes, suffix="p")


@workflow.defn
class AllOptions:
    @workflow.run
    async def run(self) -> Any:
        handle = await workflow.start_child_workflow(
            Child.run,
            "wait",
            id=child_id("all"),
            task_queue=workflow.info().task_queue,
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED,
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            execution_timeout=timedelta(minutes=3),
            run_timeout=timedelta(minutes=2),
            task_timeout=timedelta(seconds=7),
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            retry_policy=RetryPolicy(maximum_attempts=2),
            memo={"memo": 1},
            search_attributes=TypedSearchAttributes(
                [SearchAttributePair(SearchAttributeKey.for_keyword("ParityKeyword"), "v")]
            ),
            static_summary="summary",
            static_details="details",
            priority=Priority(1, "f", 2.0),
        )
        await handle.signal(Child.note, "signalled")
        return [await handle, handle.first_execution_run_id is not None]


@scenario
async def all_options(stage: Stage) -> Any:
    async with stage.worker([AllOptions, Child]):
        handle = await stage.start(AllOptions, suffix="p")
        child = stage.client.get_workflow_handle(stage.name("p-all"))
        return [
            await outcome(handle.result()),
            await stage.history(handle),
            (await stage.history(child))[:1],
            await (await child.describe()).static_summary(),
            await (await child.describe()).static_details(),
        ]


@workflow.defn
class Cancels:
    @workflow.run
    async def run(self, kind: int, how: str) -> Any:
        handle = await workflow.start_child_workflow(
            Child.run,
            how,
            id=child_id("child"),
            cancellation_type=ChildWorkflowCancellationType(kind),
            parent_close_policy=ParentClosePolicy.ABANDON,
        )
        await asyncio.sleep(0.01)
        handle.cancel("the message")
        result = await said(handle)
        await asyncio.sleep(0.01)
        return [result, handle.done(), handle.cancelled()]


@workflow.defn
class CancelsStarting:
    @workflow.run
    async def run(self, kind: int) -> Any:
        task = asyncio.create_task(
            workflow.start_child_workflow(
                Child.run,
                "hang",
                id=child_id("child"),
                cancellation_type=ChildWorkflowCancellationType(kind),
                parent_close_policy=ParentClosePolicy.ABANDON,
            )
        )
        local = asyncio.create_task(asyncio.sleep(0))
        await local
        task.cancel()
        return await said(task)


def _cancellation(kind: int) -> None:
    async def cancelled(stage: Stage) -> Any:
        async with stage.worker([Cancels, CancelsStarting, Child]):
            found: list[Any] = []
            for how in ("hang", "slow cancel", "ignore cancel"):
                handle = await stage.start(Cancels, kind, how, suffix=how.replace(" ", "-"))
                found.append(await outcome(handle.result()))
                child = stage.client.get_workflow_handle(handle.id + "-child")
                if ChildWorkflowCancellationType(kind).name == "ABANDON":
                    await child.terminate()
                else:
                    found.append(await outcome(child.result()))
            handle = await stage.start(CancelsStarting, kind, suffix="starting")
            found.append([await outcome(handle.result()), await stage.history(handle)])
            return found

    name = ChildWorkflowCancellationType(kind).name.lower()
    cancelled.__name__ = f"cancellation_{name}"
    scenario(cancelled)


for _kind in range(4):
    _cancellation(_kind)


@workflow.defn
class Closes:
    @workflow.run
    async def run(self, policy: int) -> str:
        await workflow.start_child_workflow(
            Child.run,
            "hang",
            id=child_id("child"),
            parent_close_policy=ParentClosePolicy(policy),
        )
        return "closed"


@scenario
async def parent_close_policies(stage: Stage) -> Any:
    found = []
    async with stage.worker([Closes, Child]):
        for policy in (1, 2, 3):
            handle = await stage.start(Closes, policy, suffix=f"p{policy}")
            await handle.result()
            child = stage.client.get_workflow_handle(handle.id + "-child")
            if policy == 2:
                await child.signal("note", 1)
                await asyncio.sleep(0.2)
                found.append((await child.describe()).status)
                await child.terminate()
            else:
                found.append(await outcome(child.result()))
    return found


@workflow.defn
class Reaches:
    @workflow.run
    async def run(self, other: str) -> list[Any]:
        handle = workflow.get_external_workflow_handle(other)
        typed = workflow.get_external_workflow_handle_for(Child.run, other)
        missing = workflow.get_external_workflow_handle("no such workflow")
        stale = workflow.get_external_workflow_handle(
            other, run_id="00000000-0000-0000-0000-000000000001"
        )
        child = await workflow.start_child_workflow(Child.run, id=child_id("gone"))
        await child
        return [
            await said(handle.signal("note", "plain")),
            await said(typed.signal(Child.note, "typed")),
            await said(missing.signal("note", 1)),
            await said(stale.signal("note", 1)),
            await said(child.signal("note", 1)),
            await said(missing.cancel()),
            await said(stale.cancel()),
            await said(handle.cancel(reason="external reason")),
            await said(missing.cancel(reason="because")),
        ]


@scenario
async def of_other_workflows(stage: Stage) -> Any:
    async with stage.worker([Reaches, Child]):
        other = await stage.start(Child, "hang", suffix="other")
        handle = await stage.start(Reaches, other.id, suffix="reaches")
        return [
            await outcome(handle.result()),
            await outcome(other.result()),
            await stage.history(handle),
            await stage.history(other),
        ]


@workflow.defn
class FailsStarting:
    @workflow.run
    async def run(self, how: str) -> Any:
        start = workflow.start_child_workflow
        if how == "search attribute":
            return await said(
                start(
                    Child.run,
                    id=child_id("x"),
                    search_attributes=TypedSearchAttributes(
                        [SearchAttributePair(SearchAttributeKey.for_keyword("NoSuch"), "v")]
                    ),
                )
            )
        if how == "cron":
            return await said(start(Child.run, id=child_id("x"), cron_schedule="nonsense"))
        return await said(start(Child.run, id="i" * 1001))


@scenario
async def bad_start_options(stage: Stage) -> Any:
    found: list[Any] = []
    async with stage.worker([FailsStarting, Child]):
        for how in ("search attribute", "cron", "id"):
            handle = await stage.start(FailsStarting, how, run_timeout=timedelta(seconds=2))
            failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
            attributes = failed[0].workflow_task_failed_event_attributes
            found.append([attributes.cause, attributes.failure.message])
            await handle.terminate()
    return found


@workflow.defn
class Family:
    @workflow.run
    async def run(self, depth: int) -> Any:
        if depth == 0:
            await asyncio.sleep(0.01)
            return workflow.info().root is not None
        return await asyncio.gather(
            *(
                workflow.execute_child_workflow(Family.run, depth - 1, id=child_id(str(n)))
                for n in range(3)
            )
        )


@scenario
async def generations(stage: Stage) -> Any:
    async with stage.worker([Family]):
        return await stage.run(Family, 2)
