"""When a worker polls, and how often at once.

Catalogue: poller_wont_poll_until_lang_polls; poller_wont_run_ahead_of_task_slots;
no_race_acquiring_permits; max_activities_respected; max_worker_acts_per_second_respected;
IT/polling_tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import temporalio.api.workflowservice.v1 as messages
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker
from tests.core.support.history_builder import HistoryBuilder
from tests.temporal.support import sample
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server

from perdure.temporal.worker.polling import polls

LIVENESS = 30.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with fake_server() as server:
        yield server


def worker(client: Client, **options: Any) -> Worker:
    given: dict[str, Any] = {
        "task_queue": "queue",
        "workflows": [sample.ManySteps],
        "activities": [sample.greet],
    }
    return Worker(client, **{**given, **options})


async def connected(fake: FakeServer) -> Client:
    return await Client.connect(fake.target)


async def quiet() -> None:
    """Long enough for anything that is about to happen."""
    await asyncio.sleep(0.1)


async def test_nothing_is_polled_for_before_lang_polls(fake: FakeServer) -> None:
    lang = worker(await connected(fake))._bridge_worker
    assert lang is not None
    await lang.validate()
    await quiet()
    assert not fake.requests["PollWorkflowTaskQueue"]
    poll = asyncio.create_task(lang.poll_workflow_activation())
    await fake.seen("PollWorkflowTaskQueue", 5)
    await quiet()
    assert not fake.requests["PollActivityTaskQueue"]
    poll.cancel()
    await lang.finalize_shutdown()


@pytest.mark.parametrize(
    ("most", "ratio", "normal", "sticky"),
    [(5, 0.2, 1, 4), (2, 0.2, 1, 1), (10, 0.2, 2, 8), (10, 0.0, 1, 9), (10, 1.0, 9, 1)],
)
async def test_polls_are_divided_between_the_queues(
    fake: FakeServer, most: int, ratio: float, normal: int, sticky: int
) -> None:
    options = {
        "max_concurrent_workflow_task_polls": most,
        "nonsticky_to_sticky_poll_ratio": ratio,
    }
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), **options):
        polls = await fake.seen("PollWorkflowTaskQueue", most)
        await quiet()
    kinds = [poll.task_queue.kind for poll in polls]
    assert kinds.count(TaskQueueKind.TASK_QUEUE_KIND_NORMAL) == normal
    assert kinds.count(TaskQueueKind.TASK_QUEUE_KIND_STICKY) == sticky


async def test_without_a_cache_all_polls_are_of_the_task_queue(fake: FakeServer) -> None:
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), max_cached_workflows=0):
        polls = await fake.seen("PollWorkflowTaskQueue", 5)
    assert {poll.task_queue.kind for poll in polls} == {TaskQueueKind.TASK_QUEUE_KIND_NORMAL}


@pytest.mark.parametrize(("slots", "cached", "warned"), [(1, 10, 1), (1, 0, 0), (2, 10, 0)])
async def test_one_slot_means_no_cache(
    fake: FakeServer, capfd: pytest.CaptureFixture[str], slots: int, cached: int, warned: int
) -> None:
    client = await connected(fake)
    worker(client, max_concurrent_workflow_tasks=slots, max_cached_workflows=cached)
    written = "".join(capfd.readouterr())
    assert written.count("One workflow task slot is not enough") == warned


async def test_scaled_polls_have_a_number_for_each_queue(fake: FakeServer) -> None:
    behavior = PollerBehaviorAutoscaling(minimum=1, maximum=10, initial=3)
    options = {"workflow_task_poller_behavior": behavior}
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), **options):
        polls = await fake.seen("PollWorkflowTaskQueue", 6)
        await quiet()
    assert len(polls) == 6


async def test_the_server_scales_polls(fake: FakeServer) -> None:
    more = messages.PollActivityTaskQueueResponse()
    more.poller_scaling_decision.poll_request_delta_suggestion = 5
    fake.script("PollActivityTaskQueue", more)
    behavior = PollerBehaviorAutoscaling(minimum=1, maximum=4, initial=1)
    options = {"activity_task_poller_behavior": behavior}
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), **options):
        polls = await fake.seen("PollActivityTaskQueue", 5)
        await quiet()
    assert len(polls) == 5, "one was answered, four are under way"


async def test_no_more_activities_are_polled_for_than_there_are_slots(fake: FakeServer) -> None:
    release = asyncio.Event()
    running = 0
    most = 0

    @activity.defn(name="greet")
    async def patient() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    fake.script("PollActivityTaskQueue", *(activity_task(number) for number in range(10)))
    options = {"activities": [patient], "max_concurrent_activities": 3}
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), **options):
        await fake.seen("PollActivityTaskQueue", 3)
        await quiet()
        assert (running, len(fake.requests["PollActivityTaskQueue"])) == (3, 3)
        release.set()
        await fake.seen("RespondActivityTaskCompleted", 10)
    assert most <= 3


def activity_task(number: int) -> messages.PollActivityTaskQueueResponse:
    task = messages.PollActivityTaskQueueResponse(
        task_token=str(number).encode(),
        workflow_execution=WorkflowExecution(workflow_id="workflow", run_id="run"),
        activity_id=str(number),
    )
    task.activity_type.name = "greet"
    return task


async def test_no_more_workflow_tasks_are_polled_for_than_there_are_slots(
    fake: FakeServer,
) -> None:
    """Tasks that lang does not answer keep their slots."""
    history = HistoryBuilder()
    history.started()
    history.task_scheduled_and_started()
    task = history.poll()
    tasks = []
    for number in range(5):
        tasks.append(messages.PollWorkflowTaskQueueResponse())
        tasks[-1].CopyFrom(task)
        tasks[-1].workflow_execution.run_id = f"run-{number}"
    fake.script("PollWorkflowTaskQueue", *tasks)
    lang = worker(await connected(fake), max_concurrent_workflow_tasks=2)._bridge_worker
    assert lang is not None
    async with asyncio.timeout(LIVENESS):
        first = await lang.poll_workflow_activation()
        second = await lang.poll_workflow_activation()
    await quiet()
    assert {first.run_id, second.run_id} == {"run-0", "run-1"}
    assert len(fake.requests["PollWorkflowTaskQueue"]) == 2
    assert lang._ref is not None
    core: Any = lang._ref._worker
    assert core.waiting_for()[-1] == "2 permits of kind workflow"


async def test_at_most_so_many_activities_a_second(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def note(self: polls.Pace) -> None:
        assert self._limit is not None
        waits.append(self._limit.reserve(0.0))

    monkeypatch.setattr(polls.Pace, "wait", note)
    fake.script("PollActivityTaskQueue", *(activity_task(number) for number in range(4)))
    options = {"max_activities_per_second": 4.0, "max_concurrent_activity_task_polls": 1}
    async with asyncio.timeout(LIVENESS), worker(await connected(fake), **options):
        await fake.seen("PollActivityTaskQueue", 5)
    assert waits[:5] == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("rate", [0.0, -1.0])
async def test_a_rate_must_be_positive(fake: FakeServer, rate: float) -> None:
    text = "`max_worker_activities_per_second` must be positive and nonzero$"
    client = await connected(fake)
    with pytest.raises(ValueError, match=f"^Invalid worker config: {text}"):
        worker(client, max_activities_per_second=rate)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_cached_workflows": -1}, "max_cached_workflows"),
        (
            {"max_eager_activity_reservations_per_workflow_task": -1},
            "max_eager_activity_reservations_per_workflow_task",
        ),
    ],
)
async def test_numbers_that_cannot_be(
    fake: FakeServer, options: dict[str, Any], field: str
) -> None:
    client = await connected(fake)
    with pytest.raises((TypeError, ValueError), match=field):
        worker(client, **options)


async def test_a_cache_needs_two_polls(fake: FakeServer) -> None:
    text = (
        "Invalid worker config: `max_cached_workflows` > 0 requires "
        "`workflow_task_poller_behavior` to be at least 2"
    )
    client = await connected(fake)
    with pytest.raises(ValueError, match=f"^{text}$"):
        worker(client, max_concurrent_workflow_task_polls=1)


async def test_exhausted_resources_halve_scaled_polls(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.temporal.connection.retry._POLL_GRACE", 0.0)
    fake.script("PollActivityTaskQueue", *[Refused(8)] * 2)
    behavior = PollerBehaviorAutoscaling(minimum=1, maximum=8, initial=8)
    lang = worker(await connected(fake), activity_task_poller_behavior=behavior)
    assert lang._bridge_worker is not None
    assert lang._bridge_worker._ref is not None
    core: Any = lang._bridge_worker._ref._worker
    async with asyncio.timeout(LIVENESS), lang:
        await fake.seen("PollActivityTaskQueue", 8)
        await quiet()
        assert core._parts.activities._pollers._scaler.target == 2
