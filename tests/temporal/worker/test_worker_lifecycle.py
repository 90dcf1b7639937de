"""Workers of every kind: how they start, fail, share slots and stop."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkerDeploymentVersion
from temporalio.exceptions import ActivityError, TimeoutError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import (
    PollerBehaviorAutoscaling,
    Worker,
    WorkerDeploymentConfig,
)
from tests.temporal.support import sample

from perdure.temporal.sdk_errors import PollShutdownError
from perdure.temporal.slots.dealer import Permit
from perdure.temporal.worker.activities import ActivityShell

LONG = timedelta(seconds=10)


@pytest.fixture
def queue() -> str:
    return str(uuid.uuid4())


def steps_worker(client: Client, queue: str, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=[sample.ManySteps],
        activities=[sample.greet],
        **options,
    )


async def run_steps(client: Client, queue: str) -> None:
    result = await client.execute_workflow(
        sample.ManySteps.run, args=[2, 1], id=str(uuid.uuid4()), task_queue=queue
    )
    assert result == 3


async def test_activities_and_workflows_in_workers_of_their_own(client: Client, queue: str) -> None:
    async with (
        Worker(client, task_queue=queue, workflows=[sample.ManySteps]),
        Worker(client, task_queue=queue, activities=[sample.greet]),
    ):
        await run_steps(client, queue)


async def test_worker_can_shutdown_after_never_polling_ok(client: Client, queue: str) -> None:
    worker = steps_worker(client, queue)
    await worker._bridge_worker.validate()
    worker._bridge_worker.initiate_shutdown()
    worker._bridge_worker.initiate_shutdown()
    await worker._bridge_worker.finalize_shutdown()


async def test_an_idle_worker_stops(client: Client, queue: str) -> None:
    async with asyncio.timeout(10):
        async with steps_worker(client, queue):
            await asyncio.sleep(0.1)


async def test_an_unknown_namespace_is_found_before_polling(server: str, queue: str) -> None:
    client = await Client.connect(server, namespace="nowhere")
    text = "^Worker validation failed: Namespace nowhere was not found or otherwise could not be"
    with pytest.raises(RuntimeError, match=text):
        await steps_worker(client, queue).run()


async def test_two_workers_for_the_same_tasks_are_refused(client: Client, queue: str) -> None:
    async with steps_worker(client, queue):
        with pytest.raises(RuntimeError, match="Failed creating worker") as raised:
            steps_worker(client, queue)
        assert "overlapping worker task types" in str(raised.value)
    async with steps_worker(client, queue):
        await run_steps(client, queue)


async def test_builds_are_told_apart_only_in_deployments(client: Client, queue: str) -> None:
    def deployed(name: str, build: str) -> WorkerDeploymentConfig:
        version = WorkerDeploymentVersion(deployment_name=name, build_id=build)
        return WorkerDeploymentConfig(version=version, use_worker_versioning=False)

    workers = [steps_worker(client, queue, build_id="1")]
    with pytest.raises(RuntimeError, match="overlapping worker task types"):
        steps_worker(client, queue, build_id="2")
    workers.append(steps_worker(client, queue, deployment_config=deployed("one", "1")))
    workers.append(steps_worker(client, queue, deployment_config=deployed("one", "2")))
    with pytest.raises(RuntimeError, match="overlapping worker task types"):
        steps_worker(client, queue, deployment_config=deployed("other", "1"))
    assert len(workers) == 3


async def test_few_slots_and_polls_are_enough(client: Client, queue: str) -> None:
    async with steps_worker(
        client,
        queue,
        max_concurrent_workflow_tasks=2,
        max_concurrent_workflow_task_polls=2,
        max_concurrent_activities=1,
        max_concurrent_activity_task_polls=1,
        max_cached_workflows=1,
    ):
        await asyncio.gather(*(run_steps(client, queue) for _ in range(5)))


@pytest.mark.parametrize(("slots", "cached"), [(2, 10), (1, 10), (1, 0)])
async def test_many_polls_share_few_slots(
    client: Client, queue: str, slots: int, cached: int
) -> None:
    """One slot and a cache stop a worker of the compiled core for good."""
    async with (
        asyncio.timeout(60),
        steps_worker(
            client, queue, max_concurrent_workflow_tasks=slots, max_cached_workflows=cached
        ),
    ):
        await asyncio.gather(*(run_steps(client, queue) for _ in range(10)))


async def test_pollers_may_scale(client: Client, queue: str) -> None:
    behavior = PollerBehaviorAutoscaling(minimum=1, maximum=10, initial=2)
    async with steps_worker(
        client,
        queue,
        workflow_task_poller_behavior=behavior,
        activity_task_poller_behavior=behavior,
    ):
        await asyncio.gather(*(run_steps(client, queue) for _ in range(5)))


async def test_a_worker_of_a_deployment(client: Client, queue: str) -> None:
    """Rows: IT/worker_versioning_tests."""
    version = WorkerDeploymentVersion(deployment_name=queue, build_id="1")
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=False)
    async with steps_worker(client, queue, deployment_config=config):
        handle = await client.start_workflow(
            sample.ManySteps.run, args=[0, 1], id=queue, task_queue=queue
        )
        await handle.result()
    completed = [
        event.workflow_task_completed_event_attributes
        for event in (await handle.fetch_history()).events
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    assert completed[0].worker_deployment_name == queue


async def test_a_workflow_starts_eagerly(client: Client, queue: str) -> None:
    """Rows: IT/workflow_tests/eager. The worker need not have polled yet."""
    async with steps_worker(client, queue):
        handle = await client.start_workflow(
            sample.ManySteps.run,
            args=[1, 0],
            id=queue,
            task_queue=queue,
            request_eager_start=True,
        )
        assert await handle.result() == 1
    started = (await handle.fetch_history()).events[0]
    attributes = started.workflow_execution_started_event_attributes
    assert attributes.eager_execution_accepted


async def test_a_start_from_another_loop_is_not_eager(client: Client, queue: str) -> None:
    """A worker belongs to the loop that polls it; its client may be used from any."""

    async def start() -> None:
        await client.start_workflow(
            sample.ManySteps.run,
            args=[1, 0],
            id=queue,
            task_queue=queue,
            request_eager_start=True,
        )

    async with steps_worker(client, queue):
        await run_steps(client, queue)
        await asyncio.to_thread(asyncio.run, start())
        handle = client.get_workflow_handle(queue)
        assert await handle.result() == 1
    started = (await handle.fetch_history()).events[0]
    attributes = started.workflow_execution_started_event_attributes
    assert not attributes.eager_execution_accepted


async def test_a_worker_is_stopped_from_another_loop(client: Client, queue: str) -> None:
    worker = steps_worker(client, queue)
    polling = threading.Event()
    ended: list[type[BaseException]] = []

    async def poll() -> None:
        bridge = worker._bridge_worker
        assert bridge is not None
        await bridge.validate()
        asyncio.get_running_loop().call_later(0.2, polling.set)
        for poll in (bridge.poll_workflow_activation, bridge.poll_activity_task):
            try:
                await poll()
            except PollShutdownError as error:
                ended.append(type(error))
        await bridge.finalize_shutdown()

    thread = threading.Thread(target=lambda: asyncio.run(poll()))
    thread.start()
    await asyncio.to_thread(polling.wait, 10)
    assert worker._bridge_worker is not None
    worker._bridge_worker.initiate_shutdown()
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
    assert ended == [PollShutdownError, PollShutdownError]


async def test_activity_tasks_from_completion_are_delivered(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catalogue: eager activities."""
    eager: list[str] = []
    deliver = ActivityShell.deliver

    def spy(self: ActivityShell, task: Any, permit: Permit) -> None:
        eager.append(task.activity_type.name)
        deliver(self, task, permit)

    monkeypatch.setattr(ActivityShell, "deliver", spy)
    async with steps_worker(client, queue):
        await run_steps(client, queue)
    assert eager == ["greet", "greet"]
    async with steps_worker(client, queue, disable_eager_activity_execution=True):
        await run_steps(client, queue)
    assert eager == ["greet", "greet"]


async def test_workflows_are_counted(server: str, queue: str) -> None:
    buffer = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    client = await Client.connect(server, runtime=runtime)
    async with steps_worker(client, queue):
        await run_steps(client, queue)
    counts = {u.metric.name: u for u in buffer.retrieve_updates() if u.metric.kind == 0}
    assert counts["temporal_workflow_completed"].attributes == {
        "namespace": "default",
        "task_queue": queue,
        "workflow_type": "ManySteps",
        "service_name": "temporal-core-sdk",
    }
    assert "temporal_sticky_cache_hit" in counts


@activity.defn
async def left_open() -> str:
    activity.raise_complete_async()


@activity.defn
async def until_shutdown() -> str:
    running.set()
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        return f"stopped {bool(details and details.worker_shutdown)}"
    return "finished"


@activity.defn
def blocks_a_thread() -> str:
    pause = threading.Event()
    try:
        while not pause.wait(0.05):
            activity.heartbeat()
    except BaseException as error:
        return type(error).__name__
    return "finished"


running = asyncio.Event()


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, name: str, cancel: bool) -> str:
        handle = workflow.start_activity(
            name,
            activity_id="one",
            result_type=str,
            start_to_close_timeout=LONG,
            heartbeat_timeout=timedelta(seconds=2),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        if cancel:
            await workflow.sleep(0.1)
            handle.cancel()
        return str(await handle)


async def test_an_activity_is_completed_by_a_client(client: Client, queue: str) -> None:
    async with Worker(client, task_queue=queue, workflows=[OneActivity], activities=[left_open]):
        handle = await client.start_workflow(
            OneActivity.run, args=["left_open", False], id=queue, task_queue=queue
        )
        outside = client.get_async_activity_handle(
            workflow_id=queue, run_id=None, activity_id="one"
        )
        for _ in range(100):
            description = await handle.describe()
            if description.raw_description.pending_activities:
                pending = description.raw_description.pending_activities[0]
                if pending.HasField("last_started_time"):
                    break
            await asyncio.sleep(0.02)
        await outside.complete("from outside")
        assert await handle.result() == "from outside"


async def test_graceful_shutdown(client: Client, queue: str) -> None:
    """Activities are told after the graceful period, and their results are still delivered."""
    running.clear()
    async with Worker(client, task_queue=f"{queue}-w", workflows=[OneActivity]):
        async with Worker(
            client,
            task_queue=queue,
            workflows=[OneActivity],
            activities=[until_shutdown],
            graceful_shutdown_timeout=timedelta(milliseconds=50),
        ):
            handle = await client.start_workflow(
                OneActivity.run, args=["until_shutdown", False], id=queue, task_queue=queue
            )
            await asyncio.wait_for(running.wait(), 10)
        async with Worker(client, task_queue=queue, workflows=[OneActivity]):
            assert await handle.result() == "stopped True"


async def test_a_cancel_reaches_an_activity_in_a_thread(client: Client, queue: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        async with Worker(
            client,
            task_queue=queue,
            workflows=[OneActivity],
            activities=[blocks_a_thread],
            activity_executor=threads,
        ):
            result = await client.execute_workflow(
                OneActivity.run, args=["blocks_a_thread", True], id=queue, task_queue=queue
            )
    assert result == "CancelledError"


async def test_an_activity_that_does_not_heartbeat_times_out(client: Client, queue: str) -> None:
    running.clear()
    async with Worker(
        client, task_queue=queue, workflows=[OneActivity], activities=[until_shutdown]
    ):
        handle = await client.start_workflow(
            OneActivity.run,
            args=["until_shutdown", False],
            id=queue,
            task_queue=queue,
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, ActivityError)
    assert isinstance(failed.value.cause.cause, TimeoutError)


async def test_time_is_skipped_by_the_test_server(queue: str) -> None:
    async with (
        await WorkflowEnvironment.start_time_skipping(
            test_server_startup_timeout=timedelta(seconds=60)
        ) as environment,
        Worker(environment.client, task_queue=queue, workflows=[Sleeps]),
    ):
        result = await environment.client.execute_workflow(Sleeps.run, id=queue, task_queue=queue)
    assert result >= 3600


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self) -> float:
        start = workflow.now()
        await workflow.sleep(3600)
        return (workflow.now() - start).total_seconds()
