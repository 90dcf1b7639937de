"""Every metric of a worker: a worker on the server named by the argument uses all of them.

The workflows go one after the other, so that counts are the same whichever core runs them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ONCE = RetryPolicy(maximum_attempts=1)
SHORT, LONG = timedelta(milliseconds=300), timedelta(seconds=20)
_WAITING = 4
"""Events of a workflow that does nothing, once its first task is done."""

BENIGN = ApplicationErrorCategory.BENIGN


@activity.defn
async def good() -> None:
    activity.metric_meter().create_counter("activity-counter", "counts", "things").add(3)


@activity.defn
async def bad() -> None:
    raise ApplicationError("no")


@activity.defn
async def benign() -> None:
    raise ApplicationError("no", category=BENIGN)


@activity.defn
async def flaky() -> None:
    if activity.info().attempt < 2:
        raise ApplicationError("again")


@activity.defn
async def slow() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.05)


@workflow.defn
class Everything:
    @workflow.query
    def answer(self) -> int:
        return 42

    @workflow.run
    async def run(self) -> None:
        workflow.metric_meter().create_counter("workflow-counter", "counts", "things").add(3)
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=10))
        for each in (good, flaky):
            await workflow.execute_activity(each, start_to_close_timeout=LONG, retry_policy=retry)
            await workflow.execute_local_activity(
                each, start_to_close_timeout=LONG, retry_policy=retry
            )
        for failing in (bad, benign):
            await self._fails(workflow.execute_activity, failing, LONG)
            await self._fails(workflow.execute_local_activity, failing, LONG)
        await self._fails(workflow.execute_local_activity, slow, SHORT)
        handle = workflow.start_activity(
            slow,
            start_to_close_timeout=LONG,
            heartbeat_timeout=timedelta(seconds=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.1)
        handle.cancel()
        with suppress(FailureError):
            await handle

    async def _fails(self, execute: Callable[..., Any], defined: Any, limit: timedelta) -> None:
        with suppress(FailureError):
            await execute(defined, start_to_close_timeout=limit, retry_policy=ONCE)


@workflow.defn
class Fails:
    @workflow.run
    async def run(self, category: int) -> None:
        raise ApplicationError("no", category=ApplicationErrorCategory(category))


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


@workflow.defn
class Again:
    @workflow.run
    async def run(self, again: bool) -> None:
        if again:
            workflow.continue_as_new(False)


@workflow.defn
class FailsATask:
    attempts = 0

    @workflow.run
    async def run(self) -> None:
        FailsATask.attempts += 1
        if FailsATask.attempts == 1:
            raise RuntimeError("once")


async def record(target: str) -> list[dict[str, Any]]:
    """Run it all; every update of a metric, the name of the task queue replaced."""
    buffer = MetricBuffer(100_000)
    runtime = Runtime(
        telemetry=TelemetryConfig(logging=None, metrics=buffer, global_tags={"tag": "value"}),
        worker_heartbeat_interval=None,
    )
    client = await Client.connect(target, runtime=runtime)
    queue = f"queue-{uuid.uuid4()}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Everything, Fails, Waits, Again, FailsATask],
        activities=[good, bad, benign, flaky, slow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await _use(client, queue)
    return [
        {
            "name": update.metric.name,
            "kind": update.metric.kind,
            "unit": update.metric.unit,
            "description": update.metric.description,
            "value": update.value,
            "labels": {
                key: "QUEUE" if value == queue else value
                for key, value in update.attributes.items()
            },
        }
        for update in buffer.retrieve_updates()
    ]


async def _use(client: Client, queue: str) -> None:
    def started(name: Any, *args: Any) -> Coroutine[Any, Any, Any]:
        return client.start_workflow(
            name,
            args=args,
            id=str(uuid.uuid4()),
            task_queue=queue,
        )

    everything = await started(Everything.run)
    await everything.result()
    await everything.query(Everything.answer)
    for category in (ApplicationErrorCategory.UNSPECIFIED, BENIGN):
        failing = await started(Fails.run, category.value)
        with suppress(WorkflowFailureError):
            await failing.result()
    waiting = await started(Waits.run)
    while (await waiting.describe()).history_length < _WAITING:  # noqa: ASYNC110 - a server
        await asyncio.sleep(0.05)
    await waiting.cancel()
    with suppress(WorkflowFailureError):
        await waiting.result()
    for other in (started(Again.run, True), started(FailsATask.run)):
        await (await other).result()
    with suppress(RPCError):
        await client.get_workflow_handle("no such workflow").describe()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(record(sys.argv[1]))))
