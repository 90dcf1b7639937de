"""The end of a worker in every state: it comes, and nothing is left behind.

Catalogue: worker_can_shutdown_after_never_polling_ok; worker_shutdown_during_poll_doesnt_deadlock;
after_shutdown_of_worker_get_shutdown_err; shutdown_worker_can_complete_pending_activation;
complete_eviction_after_shutdown_doesnt_panic; activities_must_be_flushed_to_server_on_shutdown;
can_shutdown_local_act_only_worker_when_act_polling;
graceful_shutdown_sends_shutdown_worker_rpc_during_initiate.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import temporalio.api.workflowservice.v1 as messages
from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.bridge.proto import ActivityTaskCompletion
from temporalio.bridge.proto.activity_result import ActivityExecutionResult, Cancellation
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import Success, WorkflowActivationCompletion
from temporalio.bridge.worker import Worker as BridgeWorker
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import RetryConfig
from temporalio.worker import Worker
from tests.core.support.history_builder import HistoryBuilder
from tests.temporal.support import sample
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server

from perdure.temporal.sdk_errors import PollShutdownError
from perdure.temporal.worker import ending
from perdure.temporal.worker.polling import polls

LIVENESS = 30.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with fake_server() as server:
        yield server


class Lang:
    """A worker as the SDK's Python side sees it, step by step."""

    def __init__(self, client: Client, **options: Any) -> None:
        worker = Worker(
            client,
            task_queue="queue",
            workflows=[sample.ManySteps],
            activities=[sample.greet],
            max_concurrent_workflow_task_polls=2,
            max_concurrent_activity_task_polls=1,
            **options,
        )
        assert worker._bridge_worker is not None
        self.bridge: BridgeWorker = worker._bridge_worker
        assert self.bridge._ref is not None
        self.core: Any = self.bridge._ref._worker
        self._drains: list[asyncio.Task[None]] = []

    def poll_all(self) -> None:
        """Poll for everything until the worker has ended; what comes is kept."""
        for poll in (self.bridge.poll_workflow_activation, self.bridge.poll_activity_task):
            self._drains.append(asyncio.create_task(_drain(poll)))

    @property
    def ended(self) -> bool:
        """Whether all polls have ended."""
        return all(drain.done() for drain in self._drains)

    async def end(self) -> None:
        """Wait until the worker has ended, and see that nothing is left."""
        async with asyncio.timeout(LIVENESS):
            await asyncio.gather(*self._drains)
            await self.bridge.finalize_shutdown()
        assert self.core.waiting_for() == []

    async def stop(self) -> None:
        """The whole end of a worker that has nothing to do."""
        self.bridge.initiate_shutdown()
        self.poll_all()
        await self.end()


async def _drain(poll: Callable[[], Awaitable[Any]]) -> None:
    while True:
        try:
            await poll()
        except PollShutdownError:
            return


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No task and no thread outlives the worker of a test."""
    threads = set(threading.enumerate())
    tasks = asyncio.all_tasks()
    yield
    for _ in range(100):
        left = {task for task in asyncio.all_tasks() - tasks if not task.done()}
        left.discard(asyncio.current_task())
        if not left:
            break
        await asyncio.sleep(0.01)
    assert not left
    new = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not {name for name in new if "_poll_wrapper" not in name}, "gRPC has one for itself"


async def connected(fake: FakeServer, **options: Any) -> Client:
    return await Client.connect(fake.target, identity="me", **options)


def first_task() -> messages.PollWorkflowTaskQueueResponse:
    history = HistoryBuilder()
    history.started()
    history.task_scheduled_and_started()
    return history.poll()


def succeeded(activation: WorkflowActivation) -> WorkflowActivationCompletion:
    return WorkflowActivationCompletion(run_id=activation.run_id, successful=Success())


# Nothing to do


async def test_before_it_was_validated(fake: FakeServer) -> None:
    await Lang(await connected(fake)).stop()


async def test_after_it_was_validated(fake: FakeServer) -> None:
    lang = Lang(await connected(fake))
    await lang.bridge.validate()
    lang.bridge.initiate_shutdown()
    lang.bridge.initiate_shutdown()
    await lang.end()
    assert len(fake.requests["ShutdownWorker"]) == 1


async def test_without_being_asked_to(fake: FakeServer) -> None:
    await Lang(await connected(fake)).end()
    assert len(fake.requests["ShutdownWorker"]) == 1


async def test_asked_to_outside_of_the_loop(fake: FakeServer) -> None:
    lang = Lang(await connected(fake))
    thread = threading.Thread(target=lang.bridge.initiate_shutdown)
    thread.start()
    thread.join()
    lang.poll_all()
    await lang.end()


async def test_asked_to_by_another_thread_while_it_polls(fake: FakeServer) -> None:
    lang = Lang(await connected(fake))
    lang.poll_all()
    await fake.seen("PollWorkflowTaskQueue", 2)
    thread = threading.Thread(target=lang.bridge.initiate_shutdown)
    thread.start()
    thread.join()
    async with asyncio.timeout(LIVENESS):
        await asyncio.gather(*lang._drains)
    await lang.end()


async def test_polls_after_the_end(fake: FakeServer) -> None:
    lang = Lang(await connected(fake))
    bridge, ref = lang.bridge, lang.bridge._ref
    await lang.stop()
    bridge._ref = ref
    for poll in (bridge.poll_workflow_activation, bridge.poll_activity_task):
        with pytest.raises(PollShutdownError):
            await poll()


# Polls under way


async def test_the_server_is_told(fake: FakeServer) -> None:
    """Rows: worker_shutdown_api."""
    lang = Lang(await connected(fake))
    lang.poll_all()
    await fake.seen("PollWorkflowTaskQueue", 2)
    await fake.seen("PollActivityTaskQueue")
    lang.bridge.initiate_shutdown()
    (told,) = await fake.seen("ShutdownWorker")
    await lang.end()
    queues = {poll.task_queue.name for poll in fake.requests["PollWorkflowTaskQueue"]}
    assert queues == {"queue", told.sticky_task_queue}
    assert (told.namespace, told.identity, told.task_queue) == ("default", "me", "queue")
    assert told.reason == "graceful shutdown"
    assert told.worker_instance_key == fake.requests["PollActivityTaskQueue"][0].worker_instance_key
    assert list(told.task_queue_types) == [
        TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    ]
    await fake.idle.wait()
    assert (fake.cancelled["PollWorkflowTaskQueue"], fake.cancelled["PollActivityTaskQueue"]) == (
        2,
        1,
    )


async def polling_lang(fake: FakeServer) -> Lang:
    """A worker whose server can end polls by itself, with polls under way."""
    fake.namespace_can(worker_poll_complete_on_shutdown=True)
    lang = Lang(await connected(fake))
    await lang.bridge.validate()
    lang.poll_all()
    await fake.seen("PollWorkflowTaskQueue", 2)
    await fake.seen("PollActivityTaskQueue")
    return lang


async def test_a_server_that_can_ends_the_polls(fake: FakeServer) -> None:
    released = [fake.hold(f"Poll{kind}TaskQueue") for kind in ("Workflow", "Activity")]
    lang = await polling_lang(fake)

    async def end_polls(request: Any) -> Any:
        for event in released:
            event.set()
        return messages.ShutdownWorkerResponse()

    fake.script("ShutdownWorker", then=end_polls)
    lang.bridge.initiate_shutdown()
    await lang.end()
    assert not fake.cancelled


async def test_a_server_that_forgets_the_polls(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polls, "_STOP", 0.01)
    lang = await polling_lang(fake)
    lang.bridge.initiate_shutdown()
    await lang.end()
    await fake.idle.wait()
    assert sum(fake.cancelled.values()) == 3


@pytest.mark.parametrize("code", [12, 14, 2, 16])
async def test_a_server_that_does_not_know_how(fake: FakeServer, code: int) -> None:
    fake.script("ShutdownWorker", Refused(code))
    lang = await polling_lang(fake)
    lang.bridge.initiate_shutdown()
    await lang.end()
    assert len(fake.requests["ShutdownWorker"]) == 1, "it is not tried again"


async def test_a_server_that_does_not_answer(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_HEARING", 0.05)
    fake.hold("ShutdownWorker")
    lang = await polling_lang(fake)
    lang.bridge.initiate_shutdown()
    await fake.seen("ShutdownWorker")
    assert "the server's answer to ShutdownWorker" in lang.core.waiting_for()
    await lang.end()


async def test_a_server_that_is_gone() -> None:
    async with fake_server() as fake:
        lang = Lang(await connected(fake))
        lang.poll_all()
        await fake.seen("PollWorkflowTaskQueue", 2)
    lang.bridge.initiate_shutdown()
    await lang.end()


# Workflow tasks


async def with_activation(fake: FakeServer, **options: Any) -> tuple[Lang, WorkflowActivation]:
    fake.script("PollWorkflowTaskQueue", first_task())
    lang = Lang(await connected(fake, **options))
    async with asyncio.timeout(LIVENESS):
        activation = await lang.bridge.poll_workflow_activation()
    return lang, activation


async def test_lang_still_answers_an_activation(fake: FakeServer) -> None:
    lang, activation = await with_activation(fake)
    lang.bridge.initiate_shutdown()
    lang.poll_all()
    await fake.seen("ShutdownWorker")
    await fake.idle.wait()
    assert not lang.ended
    assert any("1 workflow runs" in text for text in lang.core.waiting_for())
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    await lang.end()
    assert len(fake.requests["RespondWorkflowTaskCompleted"]) == 1


async def test_an_answer_on_its_way_is_awaited(fake: FakeServer) -> None:
    released = fake.hold("RespondWorkflowTaskCompleted")
    lang, activation = await with_activation(fake)
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    await fake.seen("RespondWorkflowTaskCompleted")
    lang.bridge.initiate_shutdown()
    lang.poll_all()
    await fake.seen("ShutdownWorker")
    assert not lang.ended
    assert "1 calls for workflow tasks" in lang.core.waiting_for()
    released.set()
    await lang.end()


async def test_an_answer_to_a_server_that_is_gone() -> None:
    async with fake_server() as fake:
        lang, activation = await with_activation(
            fake, retry_config=RetryConfig(initial_interval_millis=1, max_retries=2)
        )
    lang.bridge.initiate_shutdown()
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    eviction = await lang.bridge.poll_workflow_activation()
    lang.poll_all()
    await lang.bridge.complete_workflow_activation(succeeded(eviction))
    await lang.end()


async def test_a_task_the_server_does_not_know_any_more(fake: FakeServer) -> None:
    """Catalogue: complete_with_task_not_found_during_shutdown."""
    fake.script("RespondWorkflowTaskCompleted", Refused(5))
    lang, activation = await with_activation(fake)
    lang.bridge.initiate_shutdown()
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    eviction = await lang.bridge.poll_workflow_activation()
    assert eviction.jobs[0].HasField("remove_from_cache")
    lang.poll_all()
    await lang.bridge.complete_workflow_activation(succeeded(eviction))
    await lang.end()


async def test_an_eviction_is_still_answered(fake: FakeServer) -> None:
    lang, activation = await with_activation(fake)
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    await fake.seen("RespondWorkflowTaskCompleted")
    lang.bridge.request_workflow_eviction(activation.run_id)
    eviction = await lang.bridge.poll_workflow_activation()
    assert eviction.jobs[0].HasField("remove_from_cache")
    lang.bridge.initiate_shutdown()
    lang.poll_all()
    await fake.seen("ShutdownWorker")
    assert not lang.ended
    await lang.bridge.complete_workflow_activation(succeeded(eviction))
    await lang.end()


# Activities


async def with_activity(fake: FakeServer, **options: Any) -> tuple[Lang, bytes]:
    task = messages.PollActivityTaskQueueResponse(
        task_token=b"token",
        workflow_execution=WorkflowExecution(workflow_id="workflow", run_id="run"),
        activity_id="1",
    )
    task.activity_type.name = "greet"
    fake.script("PollActivityTaskQueue", task)
    lang = Lang(await connected(fake), **options)
    async with asyncio.timeout(LIVENESS):
        started = await lang.bridge.poll_activity_task()
    return lang, started.task_token


async def test_an_activity_is_told_at_once_and_its_end_reported(fake: FakeServer) -> None:
    released = fake.hold("RespondActivityTaskFailed")
    lang, token = await with_activity(fake)
    lang.bridge.initiate_shutdown()
    told = await lang.bridge.poll_activity_task()
    assert told.cancel.details.is_worker_shutdown
    lang.poll_all()
    result = ActivityExecutionResult(cancelled=Cancellation())
    await lang.bridge.complete_activity_task(
        ActivityTaskCompletion(task_token=token, result=result)
    )
    await fake.seen("RespondActivityTaskFailed")
    assert not lang.ended
    assert "1 calls for activities" in lang.core.waiting_for()
    released.set()
    await lang.end()


async def test_an_activity_has_its_grace(fake: FakeServer) -> None:
    lang, token = await with_activity(fake, graceful_shutdown_timeout=timedelta(hours=1))
    lang.bridge.initiate_shutdown()
    lang.poll_all()
    await fake.seen("ShutdownWorker")
    assert not lang.ended
    assert "1 activities that have not ended" in lang.core.waiting_for()
    result = ActivityExecutionResult()
    result.completed.result.data = b"null"
    await lang.bridge.complete_activity_task(
        ActivityTaskCompletion(task_token=token, result=result)
    )
    await lang.end()
    assert len(fake.requests["RespondActivityTaskCompleted"]) == 1
    assert not lang.core._parts.activities._alarm.is_set, "the hour of grace is not waited for"


# What is waited for


async def test_the_log_says_what_is_waited_for(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ending, "_REPORT_PAUSE", 0.01)
    logging = LoggingConfig(filter="temporalio_sdk_core=DEBUG")
    runtime = Runtime(telemetry=TelemetryConfig(logging=logging))
    lang, activation = await with_activation(fake, runtime=runtime)
    lang.bridge.initiate_shutdown()
    lang.poll_all()
    await asyncio.sleep(0.05)
    await lang.bridge.complete_workflow_activation(succeeded(activation))
    await lang.end()
    written = "".join(capfd.readouterr())
    assert "Worker shutdown waits" in written
    assert "1 workflow runs with something to do (run-id)" in written


# With the SDK's own worker


release = asyncio.Event()
inside = asyncio.Event()


@activity.defn
async def patient() -> str:
    inside.set()
    await release.wait()
    return "done"


@workflow.defn
class Patient:
    @workflow.run
    async def run(self) -> str:
        return str(
            await workflow.execute_local_activity(
                patient, start_to_close_timeout=timedelta(seconds=20)
            )
        )


async def test_a_local_activity_may_end(client: Client) -> None:
    queue = str(uuid.uuid4())

    def new_worker() -> Worker:
        return Worker(client, task_queue=queue, workflows=[Patient], activities=[patient])

    inside.clear()
    release.clear()
    async with asyncio.timeout(LIVENESS):
        async with new_worker() as worker:
            handle = await client.start_workflow(Patient.run, id=queue, task_queue=queue)
            await inside.wait()
            stopping = asyncio.create_task(worker.shutdown())
            await asyncio.sleep(0.1)
            assert not stopping.done()
            release.set()
            await stopping
        async with new_worker():
            assert await handle.result() == "done"


async def test_local_activities_only(fake: FakeServer) -> None:
    lang = Lang(await connected(fake), no_remote_activities=True)
    lang.poll_all()
    await fake.seen("PollWorkflowTaskQueue", 2)
    lang.bridge.initiate_shutdown()
    await lang.end()
    assert not fake.requests["PollActivityTaskQueue"]


async def test_a_worker_that_is_cancelled(client: Client) -> None:
    worker = Worker(client, task_queue=str(uuid.uuid4()), workflows=[Patient], activities=[patient])
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)
    async with asyncio.timeout(LIVENESS):
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await worker.shutdown()
    assert worker.is_shutdown
