"""Updates, alone and with a start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import WithStartWorkflowOperation, WorkflowUpdateStage
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

SECONDS = timedelta(seconds=20)


@activity.defn
async def triple(value: int) -> int:
    return value * 3


@workflow.defn
class Updated:
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.done = False
        self.gate = False

    @workflow.run
    async def run(self) -> list[Any]:
        self.log.append("run")
        await workflow.wait_condition(lambda: self.done)
        return self.log

    @workflow.update
    def add(self, value: int) -> int:
        self.log.append(value)
        return len(self.log)

    @add.validator
    def check_add(self, value: int) -> None:
        if value < 0:
            raise ApplicationError("negative", value, type="Invalid")
        if value == 99:
            workflow.upsert_memo({"not": "allowed"})
        if value == 98:
            raise ValueError("plain")

    @workflow.update(name="with activity")
    async def acts(self, value: int, more: int = 1) -> int:
        result = await workflow.execute_activity(
            triple, value + more, start_to_close_timeout=SECONDS
        )
        info = workflow.current_update_info()
        assert info
        self.log.append([info.name, result])
        return result

    @workflow.update
    async def fails(self, how: str) -> None:
        if how == "late":
            await asyncio.sleep(0.01)
        if how == "cancelled":
            raise asyncio.CancelledError
        raise ApplicationError("update failed", how, type="Bad", non_retryable=True)

    @workflow.update
    async def fails_task(self) -> None:
        if not self.gate:
            raise RuntimeError("update fails the task")

    @workflow.update
    async def waits(self) -> str:
        await workflow.wait_condition(lambda: self.gate)
        return "gate"

    @workflow.update(dynamic=True)
    async def any_update(self, name: str, arguments: Sequence[RawValue]) -> Any:
        self.log.append(name)
        return [name, len(arguments)]

    @workflow.update
    async def finish_within(self) -> str:
        self.done = True
        return "finished"

    @workflow.signal
    def open_gate(self) -> None:
        self.gate = True

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.query
    def read(self) -> list[Any]:
        return self.log


@scenario
async def of_all_kinds(stage: Stage) -> Any:
    async with stage.worker([Updated], [triple]):
        handle = await stage.begin(Updated)
        found = [
            await outcome(handle.execute_update(Updated.add, 3, id="u1")),
            await outcome(handle.execute_update(Updated.add, 3, id="u1")),
            await outcome(handle.execute_update(Updated.add, -3)),
            await outcome(handle.execute_update(Updated.add, 98)),
            await outcome(handle.execute_update("add", "text")),
            await outcome(handle.execute_update("with activity", args=[3, 4])),
            await outcome(handle.execute_update(Updated.fails, "now")),
            await outcome(handle.execute_update(Updated.fails, "late")),
            await outcome(handle.execute_update("something else", args=[1, 2, 3])),
            await outcome(handle.execute_update("__temporal_own", 1)),
        ]
        await handle.signal(Updated.finish)
        found.append(await outcome(handle.result()))
        found.append(await outcome(handle.execute_update(Updated.add, 5)))
        found.append(await outcome(handle.get_update_handle("u1").result()))
        return [found, await stage.history(handle)]


@scenario
async def whose_validator_writes(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        await handle.query(Updated.read)
        update = asyncio.create_task(outcome(handle.execute_update(Updated.add, 99), 4))
        failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
        await handle.terminate()
        await update
        return str(failed[0].workflow_task_failed_event_attributes.failure.message)


@workflow.defn
class NoDynamic:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def one(self) -> None: ...

    @workflow.update
    def two(self) -> None: ...


@scenario
async def an_unknown_update(stage: Stage) -> Any:
    async with stage.worker([NoDynamic]):
        handle = await stage.begin(NoDynamic)
        found = await outcome(handle.execute_update("three", 1))
        history = await stage.history(handle)
        await handle.terminate()
        return [found, history]


@scenario
async def before_the_first_task(stage: Stage) -> Any:
    handle = await stage.start(Updated, start_signal="open_gate")
    waiting = [
        asyncio.create_task(outcome(handle.execute_update(Updated.add, n, id=f"u{n}")))
        for n in (1, 2, -1)
    ]
    await asyncio.sleep(0.3)
    await handle.signal(Updated.finish)
    async with stage.worker([Updated]):
        results = [await task for task in waiting]
        await outcome(handle.result())
        return [sorted(map(str, results))]


@scenario
async def rejected_leaves_no_history(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        await handle.query(Updated.read)
        before = await stage.history(handle)
        found = [await outcome(handle.execute_update(Updated.add, -n)) for n in range(1, 4)]
        after = await stage.history(handle)
        accepted = await outcome(handle.execute_update(Updated.add, 1, id="accepted"))
        await handle.signal(Updated.finish)
        result = await outcome(handle.result())
        return [found, before == after, accepted, result, await stage.history(handle)]


@scenario
async def stages(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        update = await handle.start_update(
            Updated.waits, id="w", wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        history = (await stage.history(handle))[-2:]
        await handle.signal(Updated.open_gate)
        result = await outcome(update.result())
        done = await handle.start_update(
            Updated.add, 1, id="done", wait_for_stage=WorkflowUpdateStage.COMPLETED
        )
        admitted = await outcome(
            handle.start_update(Updated.add, 1, wait_for_stage=WorkflowUpdateStage.ADMITTED)
        )
        same = await outcome(handle.get_update_handle_for(Updated.waits, "w").result())
        last = await outcome(handle.execute_update(Updated.finish_within))
        return [
            history,
            result,
            await done.result(),
            admitted,
            same,
            last,
            await outcome(handle.result()),
        ]


@scenario
async def that_fails_a_task_and_recovers(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        update = asyncio.create_task(outcome(handle.execute_update(Updated.fails_task), 25))
        failed = await stage.until(handle, "WORKFLOW_TASK_FAILED")
        await handle.signal(Updated.open_gate)
        text = failed[0].workflow_task_failed_event_attributes.failure.message
        found = [text, await update]
        await handle.terminate()
        return found


@scenario
async def when_the_workflow_is_cancelled(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        waiting = asyncio.create_task(outcome(handle.execute_update(Updated.waits, id="w")))
        await stage.until(handle, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED")
        await handle.cancel()
        return [await waiting, await outcome(handle.result()), await stage.history(handle)]


@scenario
async def terminated_while_waiting(stage: Stage) -> Any:
    async with stage.worker([Updated]):
        handle = await stage.begin(Updated)
        waiting = asyncio.create_task(outcome(handle.execute_update(Updated.waits, id="w")))
        await stage.until(handle, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED")
        await handle.terminate("why", "details")
        return [await waiting, await outcome(handle.result())]


@scenario
async def many_at_once(stage: Stage) -> Any:
    async with stage.worker([Updated], [triple]):
        handle = await stage.begin(Updated)
        await handle.query(Updated.read)
        calls = []
        for n in range(6):
            calls.append(handle.execute_update(Updated.add, n))
            calls.append(handle.execute_update("with activity", n))
        results = await asyncio.gather(*(outcome(call) for call in calls))
        await handle.signal(Updated.finish)
        return [len(results), len(await outcome(handle.result()))]


@scenario
async def without_a_cache(stage: Stage) -> Any:
    async with stage.worker([Updated], [triple], max_cached_workflows=0):
        handle = await stage.begin(Updated)
        found = [
            # Its answer does not tell whether it came before or after the first step of `run`: with
            # the compiled core it is before when it is new, and after in every replay of it.
            await outcome(handle.execute_update("any", 3)),
            await outcome(handle.execute_update(Updated.add, -3)),
            await outcome(handle.execute_update("with activity", 4)),
            await outcome(handle.execute_update(Updated.finish_within)),
        ]
        return [found, await outcome(handle.result()), await stage.history(handle)]


def with_start(
    stage: Stage,
    suffix: str,
    policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
    **options: Any,
) -> WithStartWorkflowOperation[Any, Any]:
    operation = WithStartWorkflowOperation(
        Updated.run,
        id=stage.name(suffix),
        task_queue=stage.queue,
        id_conflict_policy=policy,
        **options,
    )
    # A failed start is kept for who asks for the handle. asyncio would print it when nobody did,
    # from the garbage collector, and printing it inside a compilation breaks Python 3.11.
    operation._workflow_handle.add_done_callback(lambda kept: kept.cancelled() or kept.exception())
    return operation


@scenario
async def with_a_start(stage: Stage) -> Any:
    call = stage.client.execute_update_with_start_workflow
    use = WorkflowIDConflictPolicy.USE_EXISTING
    async with stage.worker([Updated], [triple]):
        first = with_start(stage, "a")
        found = [
            await outcome(call(Updated.add, 1, start_workflow_operation=first)),
            await outcome(call(Updated.add, 2, start_workflow_operation=with_start(stage, "a"))),
            await outcome(
                call(Updated.add, 2, start_workflow_operation=with_start(stage, "a", use))
            ),
            await outcome(
                call(Updated.add, -2, start_workflow_operation=with_start(stage, "b", use))
            ),
            await outcome(
                call(
                    Updated.fails,
                    "now",
                    id="fails",
                    start_workflow_operation=with_start(stage, "b", use),
                )
            ),
            await outcome(
                call("with activity", 2, start_workflow_operation=with_start(stage, "c"))
            ),
        ]
        again = await outcome(call(Updated.add, 5, start_workflow_operation=first))
        handle = await first.workflow_handle()
        await handle.signal(Updated.finish)
        result = await outcome(handle.result())
        closed = await outcome(
            call(
                Updated.add,
                2,
                start_workflow_operation=with_start(
                    stage, "a", id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE
                ),
            )
        )
        refused = with_start(stage, "a", id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE)
        await outcome(call(Updated.add, 2, start_workflow_operation=refused))
        started = await outcome(refused.workflow_handle())
        for suffix in ("b", "c"):
            await stage.client.get_workflow_handle(stage.name(suffix)).terminate()
        return [found, again, result, closed, started, await stage.history(handle)]


@workflow.defn
class CancelsInHandler:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def cancelled_inside(self) -> str:
        task = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "the sleep was cancelled"
        return "never"

    @workflow.update
    async def raises_cancelled(self) -> str:
        await workflow.execute_activity(
            triple, 1, schedule_to_start_timeout=SECONDS, start_to_close_timeout=SECONDS
        )
        raise asyncio.CancelledError("from the handler")


@scenario
async def cancelled_inside_a_handler(stage: Stage) -> Any:
    async with stage.worker([CancelsInHandler], [triple]):
        handle = await stage.begin(CancelsInHandler)
        found = [
            await outcome(handle.execute_update(CancelsInHandler.cancelled_inside)),
            await outcome(handle.execute_update(CancelsInHandler.raises_cancelled), 6),
        ]
        await handle.terminate()
        return found


@workflow.defn
class FirstTask:
    """Finishes in its first task, whatever came."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        self.seen.append("run")
        return self.seen

    @workflow.signal
    async def sig(self) -> None:
        self.seen.append("signal")

    @workflow.update
    async def upd(self) -> list[str]:
        self.seen.append("update")
        return self.seen


@scenario
async def in_a_task_with_everything_else(stage: Stage) -> Any:
    handle = await stage.start(FirstTask, start_signal="sig")
    update = asyncio.create_task(outcome(handle.execute_update(FirstTask.upd, id="u")))
    await asyncio.sleep(0.3)
    async with stage.worker([FirstTask]):
        return [await update, await outcome(handle.result()), await stage.history(handle)]
