"""What a workflow is told about itself."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import (
    Priority,
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

MINUTE = timedelta(minutes=1)


def everything() -> dict[str, Any]:
    info = workflow.info()
    found = {field.name: str(getattr(info, field.name)) for field in fields(info)}
    for volatile in ("start_time", "workflow_start_time", "headers"):
        found.pop(volatile)
    found["raw_memo"] = str(sorted(info.raw_memo))
    found["same start"] = str(info.start_time >= info.workflow_start_time)
    return found


@workflow.defn
class TellsInfo:
    @workflow.run
    async def run(self, child: bool = False) -> list[Any]:
        found: list[Any] = [everything()]
        if child:
            found += await workflow.execute_child_workflow(
                TellsInfo.run, id=f"{workflow.info().workflow_id}-child"
            )
            found.append(
                await workflow.execute_child_workflow(
                    Grandparent.run, id=f"{workflow.info().workflow_id}-mid"
                )
            )
        return found


@workflow.defn
class Grandparent:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_child_workflow(
            TellsInfo.run, id=f"{workflow.info().workflow_id}-leaf", priority=Priority(2, "f", 1.5)
        )


@scenario
async def plain(stage: Stage) -> Any:
    async with stage.worker([TellsInfo, Grandparent]):
        return await stage.run(TellsInfo, suffix="one")


@scenario
async def with_everything(stage: Stage) -> Any:
    async with stage.worker([TellsInfo, Grandparent]):
        handle = await stage.start(
            TellsInfo,
            True,
            suffix="all",
            execution_timeout=timedelta(hours=3),
            run_timeout=timedelta(hours=2),
            task_timeout=timedelta(seconds=12),
            retry_policy=RetryPolicy(maximum_attempts=3, non_retryable_error_types=["X"]),
            memo={"a": 1, "b": ["x"]},
            priority=Priority(priority_key=4, fairness_key="key", fairness_weight=2.5),
            search_attributes=TypedSearchAttributes(
                [SearchAttributePair(SearchAttributeKey.for_keyword("ParityKeyword"), "v")]
            ),
        )
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class Grows:
    @workflow.run
    async def run(self) -> list[Any]:
        seen: list[Any] = []
        info = workflow.info()
        sizes = [info.get_current_history_size()]
        for _ in range(11):
            seen.append([info.get_current_history_length(), info.is_continue_as_new_suggested()])
            await workflow.execute_activity(
                tells_activity,
                1,
                start_to_close_timeout=MINUTE,
            )
            sizes.append(info.get_current_history_size())
        return [seen, sizes == sorted(sizes), sizes[0] > 0]

    @workflow.query
    def now(self) -> list[Any]:
        info = workflow.info()
        return [
            info.get_current_history_length(),
            info.is_continue_as_new_suggested(),
            info.get_current_history_size() > 1000,
            info.get_current_build_id(),
            info.is_target_worker_deployment_version_changed(),
            str(info.get_current_deployment_version()),
        ]


@scenario
async def length_and_suggestion(stage: Stage) -> Any:
    async with stage.worker([Grows], [tells_activity], build_id="build-7"):
        handle = await stage.start(Grows)
        found = [await outcome(handle.result()), await handle.query(Grows.now)]
    async with stage.worker([Grows], [tells_activity], max_cached_workflows=0, build_id="build-8"):
        found.append(await handle.query(Grows.now))
        found.append(await stage.run(Grows))
    return found


@workflow.defn
class RetriedWhole:
    @workflow.run
    async def run(self) -> Any:
        info = workflow.info()
        found = [
            info.attempt,
            info.run_id == info.first_execution_run_id,
            info.original_execution_run_id == info.run_id,
            info.continued_run_id is not None,
            workflow.has_last_completion_result(),
            str(workflow.get_last_failure()),
        ]
        if info.attempt < 3:
            raise workflow_error(str(found))
        return found


def workflow_error(text: str) -> Exception:
    from temporalio.exceptions import ApplicationError

    return ApplicationError(text, "detail", type="Again")


@scenario
async def retried_workflow(stage: Stage) -> Any:
    async with stage.worker([RetriedWhole]):
        handle = await stage.start(
            RetriedWhole,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )
        found = await outcome(handle.result())
        first = stage.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        return [found, await stage.history(first), await stage.history(handle)]


@workflow.defn
class Scheduled:
    @workflow.run
    async def run(self) -> Any:
        info = workflow.info()
        self.found: Any = None
        last = (
            workflow.get_last_completion_result(type_hint=int)
            if workflow.has_last_completion_result()
            else 0
        )
        if last == 0:
            return 1
        if workflow.get_last_failure() is None:
            raise workflow_error("second")
        self.found = [info.cron_schedule, str(workflow.get_last_failure()), last]
        await workflow.wait_condition(lambda: False)
        return 7

    @workflow.query
    def ask(self) -> Any:
        return getattr(self, "found", None)


@scenario
async def cron(stage: Stage) -> Any:
    async with stage.worker([Scheduled]):
        handle = await stage.start(Scheduled, cron_schedule="@every 1s")
        current = stage.client.get_workflow_handle(handle.id)
        while not (found := await outcome(current.query(Scheduled.ask))) or "refused" in str(found):
            await asyncio.sleep(0.2)
        history = (await stage.history(current))[:1]
        await current.terminate()
        return [found, history]


@activity.defn
async def tells_activity(_: int) -> dict[str, str]:
    info = activity.info()
    found = {field.name: str(getattr(info, field.name)) for field in fields(info)}
    for volatile in (
        "current_attempt_scheduled_time",
        "scheduled_time",
        "started_time",
        "task_token",
    ):
        found.pop(volatile)
    return found


@workflow.defn
class AsksActivities:
    @workflow.run
    async def run(self) -> Any:
        return [
            await workflow.execute_activity(
                tells_activity,
                1,
                schedule_to_close_timeout=MINUTE,
                schedule_to_start_timeout=MINUTE / 2,
                start_to_close_timeout=MINUTE / 3,
                heartbeat_timeout=MINUTE / 4,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=2),
                    backoff_coefficient=1.5,
                    maximum_interval=timedelta(seconds=9),
                    maximum_attempts=4,
                    non_retryable_error_types=["A"],
                ),
                activity_id="mine",
                priority=Priority(3, "fair", 0.5),
                summary="the summary",
            ),
            await workflow.execute_activity(tells_activity, 1, start_to_close_timeout=MINUTE),
            await workflow.execute_local_activity(
                tells_activity,
                1,
                schedule_to_close_timeout=MINUTE,
                schedule_to_start_timeout=MINUTE / 2,
                retry_policy=RetryPolicy(maximum_attempts=2),
                activity_id="near",
                summary="local summary",
            ),
            await workflow.execute_local_activity(tells_activity, 1, start_to_close_timeout=MINUTE),
        ]


@scenario
async def of_activities(stage: Stage) -> Any:
    async with stage.worker([AsksActivities], [tells_activity]):
        handle = await stage.start(AsksActivities)
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class Clock:
    @workflow.run
    async def run(self) -> Any:
        before, before_ns = workflow.time(), workflow.time_ns()
        loop = asyncio.get_running_loop()
        same = loop.time() == before
        await asyncio.sleep(1.2)
        return [
            workflow.now() >= workflow.info().start_time,
            same,
            workflow.time() - before >= 1.0,
            before_ns // 10**9 == int(before),
            workflow.unsafe.is_replaying(),
        ]


@scenario
async def clock(stage: Stage) -> Any:
    async with stage.worker([Clock]):
        return await stage.run(Clock)


@scenario
async def continued_run(stage: Stage) -> Any:
    async with stage.worker([Continues]):
        return await stage.run(Continues, 0)


@workflow.defn
class Continues:
    @workflow.run
    async def run(self, turn: int, seen: list[Any] | None = None) -> Any:
        info = workflow.info()
        seen = [
            *(seen or []),
            [
                info.run_id == info.first_execution_run_id,
                info.continued_run_id is None,
                info.original_execution_run_id == info.run_id,
                info.attempt,
                info.start_time == info.workflow_start_time,
                str(info.parent),
                str(info.root),
            ],
        ]
        if turn < 2:
            workflow.continue_as_new(args=[turn + 1, seen])
        return seen


@workflow.defn
class BuildIds:
    def __init__(self) -> None:
        self.done = False
        self.seen: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        self.note()
        await workflow.wait_condition(lambda: self.done)
        self.note()
        return self.seen

    def note(self) -> None:
        self.seen.append(
            f"{workflow.info().get_current_build_id()}"
            f" {workflow.info().get_current_deployment_version()}"
        )

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.query
    def ask(self) -> list[str]:
        return [*self.seen, workflow.info().get_current_build_id()]


@scenario
async def build_ids_over_time(stage: Stage) -> Any:
    async with stage.worker([BuildIds], build_id="1.0"):
        handle = await stage.start(BuildIds)
        found = [await handle.query(BuildIds.ask)]
    async with stage.worker([BuildIds], build_id="1.1"):
        found.append(await handle.query(BuildIds.ask))
        await handle.signal(BuildIds.finish)
        found.append(await outcome(handle.result()))
        found.append(await handle.query(BuildIds.ask))
    async with stage.worker([BuildIds], build_id="1.2"):
        found.append(await handle.query(BuildIds.ask))
    return found
