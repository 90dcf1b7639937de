"""Continue-as-new, resets, terminations and the ways to start."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowContinuedAsNewError
from temporalio.common import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

KEYWORD = SearchAttributeKey.for_keyword("ParityKeyword")
NUMBER = SearchAttributeKey.for_int("ParityInt")


@workflow.defn
class Continues:
    @workflow.run
    async def run(self, how: str, turn: int = 0) -> Any:
        info = workflow.info()
        if turn == 1:
            return [
                how,
                {key: workflow.memo_value(key) for key in sorted(workflow.memo())},
                str(info.typed_search_attributes),
                str(info.retry_policy),
                str(info.run_timeout),
                str(info.task_timeout),
                str(info.execution_timeout),
                str(info.priority),
                info.attempt,
                sorted(info.headers),
            ]
        if how == "upserts":
            workflow.upsert_memo({"added": 2, "memo": None})
            workflow.upsert_search_attributes([KEYWORD.value_set("new"), NUMBER.value_set(5)])
        if how == "everything":
            workflow.continue_as_new(
                args=[how, 1],
                workflow="Continues",
                task_queue=info.task_queue,
                run_timeout=timedelta(seconds=50),
                task_timeout=timedelta(seconds=6),
                retry_policy=RetryPolicy(maximum_attempts=9),
                memo={"own": "memo"},
                search_attributes=TypedSearchAttributes(
                    [SearchAttributePair(KEYWORD, "continued")]
                ),
                backoff_start_interval=timedelta(milliseconds=10),
            )
        if how == "other type":
            workflow.continue_as_new("other", workflow=Ends.run)
        if how == "with pending":
            self.pending = asyncio.ensure_future(asyncio.sleep(100))
            workflow.start_activity(noop, start_to_close_timeout=timedelta(seconds=5))
        workflow.continue_as_new(args=[how, 1])


@workflow.defn
class Ends:
    @workflow.run
    async def run(self, value: str) -> str:
        return value


@activity.defn
async def noop() -> int:
    return 1


@scenario
async def continue_as_new(stage: Stage) -> Any:
    found = []
    async with stage.worker([Continues, Ends], [noop]):
        for how in ("plain", "upserts", "everything", "other type", "with pending"):
            handle = await stage.start(
                Continues,
                how,
                memo={"memo": "m"},
                search_attributes=TypedSearchAttributes([SearchAttributePair(KEYWORD, "v")]),
                retry_policy=RetryPolicy(maximum_attempts=3),
                run_timeout=timedelta(seconds=40),
                execution_timeout=timedelta(seconds=80),
            )
            found.append(await outcome(handle.result()))
            first = stage.client.get_workflow_handle(
                handle.id, run_id=handle.first_execution_run_id
            )
            found.append(await stage.history(first))
            found.append((await stage.history(stage.client.get_workflow_handle(handle.id)))[:1])
            try:
                await first.result(follow_runs=False)
            except WorkflowContinuedAsNewError as error:
                found.append(str(error))
    return found


@workflow.defn
class Random:
    def __init__(self) -> None:
        self.go = False
        self.seen: list[Any] = []

    @workflow.run
    async def run(self) -> list[Any]:
        random = workflow.random()
        own = workflow.new_random()
        named = workflow.new_random("name")
        self.seen.append([random.random() for _ in range(2)])
        self.seen.append(str(workflow.uuid4()))
        before = workflow.random_seed()
        workflow.register_random_seed_callback(lambda seed: self.seen.append("seed changed"))
        await workflow.execute_activity(noop, start_to_close_timeout=timedelta(seconds=5))
        own.random()
        named.random()
        self.seen.append(before == workflow.random_seed())
        self.seen.append(str(workflow.uuid4()))
        await workflow.wait_condition(lambda: self.go)
        return self.seen

    @workflow.signal
    def finish(self) -> None:
        self.go = True

    @workflow.query
    def read(self) -> list[Any]:
        return self.seen


@scenario
async def reset(stage: Stage) -> Any:
    async with stage.worker([Random], [noop]):
        handle = await stage.start(Random, suffix="r")
        while len(await handle.query(Random.read)) < 4:
            await asyncio.sleep(0.05)
        await handle.signal(Random.finish)
        first = await handle.result()
        started = [
            event.event_id
            for event in (await handle.fetch_history()).events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        answer = await stage.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace="default",
                workflow_execution=WorkflowExecution(
                    workflow_id=handle.id, run_id=handle.first_execution_run_id or ""
                ),
                reason="again",
                workflow_task_finish_event_id=started[0],
                request_id="reset",
            )
        )
        again = stage.client.get_workflow_handle(handle.id, run_id=answer.run_id)
        second = await outcome(again.result())
        history = await stage.history(again)
        query = await again.query(Random.read)
    async with stage.worker([Random], [noop], max_cached_workflows=0):
        replayed = await again.query(Random.read)
    return [
        first[0] == second[0],
        first[1] == second[1],
        first[-1] == second[-1],
        [x for x in second if not isinstance(x, list)],
        query == second,
        query == replayed,
        history[:-1],
    ]


@scenario
async def reset_with_an_update(stage: Stage) -> Any:
    async with stage.worker([UpdatedOnce]):
        handle = await stage.start(UpdatedOnce)
        value = await handle.execute_update(UpdatedOnce.set, "value", id="once")
        result = await handle.result()
        answer = await stage.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace="default",
                workflow_execution=WorkflowExecution(
                    workflow_id=handle.id, run_id=handle.first_execution_run_id or ""
                ),
                reason="again",
                workflow_task_finish_event_id=4,
                request_id="reset",
            )
        )
        again = stage.client.get_workflow_handle(handle.id, run_id=answer.run_id)
        return [value, result, await outcome(again.result()), await stage.history(again)]


@workflow.defn
class UpdatedOnce:
    def __init__(self) -> None:
        self.value = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.value != "")
        return self.value

    @workflow.update
    def set(self, value: str) -> str:
        self.value = value
        return f"set {value}"


@workflow.defn
class Idle:
    @workflow.run
    async def run(self, seconds: float = 0) -> str:
        if seconds:
            await asyncio.sleep(seconds)
        else:
            await workflow.wait_condition(lambda: False)
        return "slept"


@scenario
async def time_outs_and_terminations(stage: Stage) -> Any:
    async with stage.worker([Idle]):
        handle = await stage.start(Idle)
        await stage.until(handle, "WORKFLOW_TASK_COMPLETED")
        await handle.terminate("one", 2, reason="the reason")
        found = [await outcome(handle.result())]
        for options in (
            {"execution_timeout": timedelta(seconds=1)},
            {"run_timeout": timedelta(seconds=1)},
            {
                "run_timeout": timedelta(seconds=1),
                "retry_policy": RetryPolicy(
                    maximum_attempts=2, initial_interval=timedelta(milliseconds=1)
                ),
            },
        ):
            found.append(await stage.run(Idle, **options))
        found.append(await outcome(handle.cancel()))
        found.append(await outcome(handle.signal("x")))
        found.append(await outcome(handle.terminate()))
        return found


@scenario
async def ids_in_use(stage: Stage) -> Any:
    async with stage.worker([Idle, Ends]):
        first = await stage.start(Idle, suffix="id")
        found = [
            await outcome(stage.start(Idle, suffix="id")),
            await outcome(
                stage.start(Idle, suffix="id", id_conflict_policy=WorkflowIDConflictPolicy.FAIL)
            ),
        ]
        same = await stage.start(
            Idle, suffix="id", id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
        )
        found.append(same.first_execution_run_id == first.first_execution_run_id)
        other = await stage.start(
            Idle, suffix="id", id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING
        )
        found.append(other.first_execution_run_id != first.first_execution_run_id)
        found.append(await outcome(first.result()))
        await other.terminate()
        for policy in WorkflowIDReusePolicy:
            if policy is WorkflowIDReusePolicy.TERMINATE_IF_RUNNING:
                continue
            found.append(
                [policy.name, await stage.run(Ends, "x", suffix="id", id_reuse_policy=policy)]
            )
        return found


@scenario
async def delayed_and_eager_starts(stage: Stage) -> Any:
    async with stage.worker([Ends]):
        delayed = await stage.start(Ends, "later", start_delay=timedelta(seconds=1))
        eager = await stage.start(Ends, "eager", request_eager_start=True)
        return [
            await outcome(delayed.result()),
            await outcome(eager.result()),
            eager.__dict__.get("__temporal_eagerly_started"),
            await stage.history(eager),
            (await stage.history(delayed))[1:],
        ]


@scenario
async def eager_without_a_worker(stage: Stage) -> Any:
    handle = await stage.start(Ends, "x", request_eager_start=True)
    async with stage.worker([Ends]):
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class FailsFirst:
    @workflow.run
    async def run(self) -> Any:
        if workflow.info().attempt == 1:
            raise ApplicationError("first", type="T", next_retry_delay=timedelta(milliseconds=5))
        return [str(workflow.get_last_failure()), workflow.info().attempt]


@scenario
async def retried_by_its_own_delay(stage: Stage) -> Any:
    async with stage.worker([FailsFirst]):
        return [
            await stage.run(FailsFirst, retry_policy=RetryPolicy(maximum_attempts=2)),
            await stage.run(
                FailsFirst,
                retry_policy=RetryPolicy(maximum_attempts=2, non_retryable_error_types=["T"]),
            ),
        ]
