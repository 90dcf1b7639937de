"""What the server knows of workers, and what it can tell them (`IT/worker_heartbeat_tests`)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity, workflow
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.nexusservices.workerservice.v1 import (
    ExecuteCommandsRequest,
    ExecuteCommandsResponse,
)
from temporalio.api.worker.v1 import CancelActivityCommand, WorkerCommand, WorkerHeartbeat
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerRequest,
    ListWorkersRequest,
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
)
from temporalio.bridge.worker import FixedSizeSlotSupplier, TunerHolder
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkerDeploymentVersion
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Worker, WorkerDeploymentConfig

from perdure.core.versioning import BuildId
from perdure.temporal.slots.resource_control import Usage
from perdure.temporal.telemetry.core_metrics import CoreMetrics
from perdure.temporal.worker.presence.environment import environment
from perdure.temporal.worker.presence.heartbeat import Host, WorkerPulse
from perdure.temporal.worker.presence.tally import TalliedMetrics
from perdure.temporal.worker.presence.worker_commands import answer_command, command_queue
from perdure.temporal.worker.settings import PollerCounts

HOST = Host("group", Usage(memory=0.25, cpu=0.5))


@activity.defn
async def works_once() -> str:
    if activity.info().attempt == 1:
        raise RuntimeError("not yet")
    return "done"


@activity.defn
async def never_heartbeats() -> None:
    await asyncio.Event().wait()


@workflow.defn
class Work:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            works_once,
            schedule_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )


@workflow.defn
class Cancels:
    @workflow.run
    async def run(self) -> str:
        running = workflow.start_activity(
            never_heartbeats,
            schedule_to_close_timeout=timedelta(seconds=60),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.1)
        running.cancel()
        try:
            await running
        except Exception as error:
            return str(error)
        return "not cancelled"


def pulse(metrics: TalliedMetrics, *, with_environment: bool = True) -> WorkerPulse:
    fixed = FixedSizeSlotSupplier(5)
    config: Any = SimpleNamespace(
        tuner=TunerHolder(fixed, fixed, fixed, fixed), plugins=["p"], storage_drivers={"s3"}
    )
    settings: Any = SimpleNamespace(
        instance_key="key",
        identity="me",
        task_queue="queue",
        versioning=BuildId("b1"),
        workflow_pollers=PollerCounts(1, 9, 5, scaled=True),
        activity_pollers=PollerCounts(5, 5, 5),
        nexus_pollers=PollerCounts(5, 5, 5),
    )
    return WorkerPulse(config, settings, metrics.tally, with_environment=with_environment)


@pytest.fixture
def metrics() -> TalliedMetrics:
    return TalliedMetrics(CoreMetrics(None, ""))


def test_a_heartbeat_says_what_the_worker_is(metrics: TalliedMetrics) -> None:
    beat = pulse(metrics).beat(HOST)
    assert (beat.worker_instance_key, beat.worker_identity) == ("key", "me")
    assert (beat.task_queue, beat.deployment_version.build_id) == ("queue", "b1")
    assert (beat.sdk_name, beat.status) == ("temporal-python", WorkerStatus.WORKER_STATUS_RUNNING)
    assert beat.host_info.worker_grouping_key == "group"
    assert beat.host_info.current_host_mem_usage == 0.25
    assert beat.host_info.current_host_cpu_usage == 0.5
    assert [plugin.name for plugin in beat.plugins] == ["p"]
    assert [driver.type for driver in beat.drivers] == ["s3"]
    assert beat.workflow_poller_info.is_autoscaling
    assert not beat.activity_poller_info.is_autoscaling


def test_a_heartbeat_counts_in_all_and_since_the_last(metrics: TalliedMetrics) -> None:
    source = pulse(metrics)
    metrics.slots("activity", 0, 5)
    metrics.slots("activity", 2, 3)
    metrics.slots("activity", 1, 4)
    first = source.beat(HOST).activity_task_slots_info
    assert (first.current_used_slots, first.current_available_slots) == (1, 4)
    assert (first.total_processed_tasks, first.last_interval_processed_tasks) == (1, 1)
    metrics.slots("activity", 0, 5)
    second = source.beat(HOST).activity_task_slots_info
    assert (second.total_processed_tasks, second.last_interval_processed_tasks) == (2, 1)
    third = source.beat(HOST, shutting_down=True)
    assert third.status == WorkerStatus.WORKER_STATUS_SHUTTING_DOWN
    assert third.activity_task_slots_info.last_interval_processed_tasks == 0


def test_polls_are_told_with_the_time_of_the_last_task(metrics: TalliedMetrics) -> None:
    polls = metrics.polls("sticky_workflow_task")
    polls.began()
    polls.answered(with_task=False)
    info = pulse(metrics).beat(HOST).workflow_sticky_poller_info
    assert info.current_pollers == 1
    assert not info.HasField("last_successful_poll_time")
    polls.answered(with_task=True)
    polls.ended()
    info = pulse(metrics).beat(HOST).workflow_sticky_poller_info
    assert info.current_pollers == 0
    assert info.HasField("last_successful_poll_time")


def test_the_environment_is_told_once_and_only_if_it_may(metrics: TalliedMetrics) -> None:
    source = pulse(metrics)
    first, second = source.beat(HOST), source.beat(HOST)
    assert first.HasField("environment")
    assert not second.HasField("environment")
    assert not first.HasField("elapsed_since_last_heartbeat")
    assert second.HasField("elapsed_since_last_heartbeat")
    assert not pulse(metrics, with_environment=False).beat(HOST).HasField("environment")


def test_the_environment_knows_its_host_by_what_it_sets(tmp_path: Any) -> None:
    docker = tmp_path / "dockerenv"
    docker.touch()
    info = environment({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, docker)
    kinds = type(info.hosting_environments[0])
    assert [one.type for one in info.hosting_environments] == [
        kinds.HOSTING_ENVIRONMENT_TYPE_DOCKER,
        kinds.HOSTING_ENVIRONMENT_TYPE_K8S,
    ]


def command_task(operation: str = "ExecuteCommands") -> PollNexusTaskQueueResponse:
    task = PollNexusTaskQueueResponse(task_token=b"nexus")
    start = task.request.start_operation
    start.service = "temporal.api.nexusservices.workerservice.v1.WorkerService"
    start.operation = operation
    commands = ExecuteCommandsRequest(
        commands=[WorkerCommand(cancel_activity=CancelActivityCommand(task_token=b"activity"))]
    )
    start.payload.data = commands.SerializeToString()
    return task


def test_a_command_cancels_its_activity() -> None:
    cancelled: list[bytes] = []
    answer = answer_command(command_task(), cancelled.append, namespace="n", identity="me")
    assert cancelled == [b"activity"]
    assert isinstance(answer, RespondNexusTaskCompletedRequest)
    data = answer.response.start_operation.sync_success.payload.data
    (result,) = ExecuteCommandsResponse.FromString(data).results
    assert result.HasField("cancel_activity")


def test_an_unknown_command_service_is_refused() -> None:
    cancelled: list[bytes] = []
    answer = answer_command(command_task("Other"), cancelled.append, namespace="n", identity="me")
    assert isinstance(answer, RespondNexusTaskFailedRequest)
    assert answer.error.error_type == "NOT_FOUND"
    assert cancelled == []


def test_the_queue_of_commands_is_named_after_namespace_and_group() -> None:
    assert command_queue("ns", "key") == "temporal-sys/worker-commands/ns/key"


@pytest_asyncio.fixture
async def client(strict_server: str) -> AsyncIterator[Client]:
    runtime = Runtime(
        telemetry=TelemetryConfig(), worker_heartbeat_interval=timedelta(milliseconds=100)
    )
    yield await Client.connect(strict_server, runtime=runtime)


async def known(client: Client, task_queue: str) -> list[WorkerHeartbeat]:
    """The workers of a task queue, as the server knows them."""
    listed = await client.workflow_service.list_workers(
        ListWorkersRequest(namespace=client.namespace, query=f'TaskQueue="{task_queue}"')
    )
    keys = [info.worker_heartbeat.worker_instance_key for info in listed.workers_info]
    answers = [
        await client.workflow_service.describe_worker(
            DescribeWorkerRequest(namespace=client.namespace, worker_instance_key=key)
        )
        for key in keys
    ]
    return [answer.worker_info.worker_heartbeat for answer in answers]


async def group_of(client: Client, task_queue: str) -> str:
    """The grouping key of the one worker, once the server has heard of it."""
    while True:
        for beat in await known(client, task_queue):
            return beat.host_info.worker_grouping_key
        await asyncio.sleep(0.05)


async def test_the_server_knows_the_workers_of_a_client(client: Client) -> None:
    queue = str(uuid.uuid4())
    version = WorkerDeploymentVersion(deployment_name="dep", build_id="b1")
    async with (
        asyncio.timeout(30),
        Worker(
            client,
            task_queue=queue,
            workflows=[Work],
            activities=[works_once],
            identity="one",
            plugins=[SimplePlugin("known.plugin")],
            max_concurrent_workflow_tasks=7,
            deployment_config=WorkerDeploymentConfig(version=version, use_worker_versioning=False),
        ),
        Worker(client, task_queue=queue, activities=[works_once], identity="two"),
    ):
        await client.execute_workflow(Work.run, id=str(uuid.uuid4()), task_queue=queue)
        beats: dict[str, WorkerHeartbeat] = {}
        while not (
            beats.keys() == {"one", "two"}
            and beats["one"].workflow_task_slots_info.total_processed_tasks >= 2
            and sum(b.activity_task_slots_info.total_processed_tasks for b in beats.values()) == 2
        ):
            beats = {beat.worker_identity: beat for beat in await known(client, queue)}
            await asyncio.sleep(0.05)
    one, two = beats["one"], beats["two"]
    assert one.status == WorkerStatus.WORKER_STATUS_RUNNING
    assert (one.deployment_version.deployment_name, one.deployment_version.build_id) == (
        "dep",
        "b1",
    )
    assert [plugin.name for plugin in one.plugins] == ["known.plugin"]
    assert one.workflow_task_slots_info.current_available_slots == 7
    assert one.workflow_poller_info.current_pollers >= 1
    assert sum(b.activity_task_slots_info.total_failed_tasks for b in (one, two)) == 1
    assert one.host_info.worker_grouping_key == two.host_info.worker_grouping_key
    assert all(
        beat.status == WorkerStatus.WORKER_STATUS_SHUTTING_DOWN
        for beat in await known(client, queue)
    )


async def test_without_an_interval_the_server_hears_nothing(strict_server: str) -> None:
    runtime = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=None)
    client = await Client.connect(strict_server, runtime=runtime)
    queue = str(uuid.uuid4())
    async with Worker(client, task_queue=queue, workflows=[Work], activities=[works_once]):
        await client.execute_workflow(Work.run, id=str(uuid.uuid4()), task_queue=queue)
    assert await known(client, queue) == []


async def test_a_worker_command_cancels_an_activity_that_never_heartbeats(client: Client) -> None:
    queue = str(uuid.uuid4())
    async with (
        asyncio.timeout(30),
        Worker(client, task_queue=queue, workflows=[Cancels], activities=[never_heartbeats]),
    ):
        answer = await client.execute_workflow(Cancels.run, id=str(uuid.uuid4()), task_queue=queue)
    assert answer == "Activity cancelled"


async def test_heartbeats_go_on_with_another_client(client: Client, strict_server: str) -> None:
    queue = str(uuid.uuid4())
    other = await Client.connect(strict_server, runtime=client.service_client.config.runtime)
    async with asyncio.timeout(30), Worker(client, task_queue=queue, workflows=[Work]) as worker:
        first = await group_of(other, queue)
        worker.client = other
        second = first
        while second == first:
            second = await group_of(other, queue)
    assert second != first
