"""Polls that a server refuses, and answers that make no sense: what is asked again, what is fatal.

Catalogue: activity_poll_timeout_retries; retryable_net_error_exhaustion_is_nonfatal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import temporalio.api.workflowservice.v1 as messages
from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.history.v1 import History
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker
from tests.temporal.support import sample
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server
from tests.temporal.support.nexus_sample import Desk

from perdure.temporal.connection import retry
from perdure.temporal.worker.polling import polls

POLLS = ("PollWorkflowTaskQueue", "PollActivityTaskQueue", "PollNexusTaskQueue")
TRANSIENT = (1, 2, 4, 8, 10, 11, 13, 14, 15)
"""CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, OUT_OF_RANGE, INTERNAL,
UNAVAILABLE, DATA_LOSS."""
FINAL = tuple(code for code in range(1, 17) if code not in TRANSIENT)
LIVENESS = 20.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with fake_server() as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls that are tried again at once, and whose first minute is over."""
    fast = replace(retry.POLLS, initial=0.001, longest=0.002)
    monkeypatch.setattr(polls, "POLLS", fast)
    monkeypatch.setattr(retry, "THROTTLED", fast)
    monkeypatch.setattr(retry, "_POLL_GRACE", 0.0)


def worker(client: Client, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue="queue",
        workflows=[sample.ManySteps],
        activities=[sample.greet],
        nexus_service_handlers=[Desk()],
        max_concurrent_workflow_task_polls=2,
        max_concurrent_activity_task_polls=1,
        nexus_task_poller_behavior=PollerBehaviorSimpleMaximum(1),
        **options,
    )


@pytest.mark.parametrize("poll", POLLS)
@pytest.mark.usefixtures("impatient")
async def test_the_fault_of_the_world_is_asked_again(fake: FakeServer, poll: str) -> None:
    usual = {"PollWorkflowTaskQueue": 2, "PollActivityTaskQueue": 1, "PollNexusTaskQueue": 1}
    fake.script(poll, *(Refused(code) for code in TRANSIENT for _ in range(2)))
    client = await Client.connect(fake.target)
    async with asyncio.timeout(LIVENESS), worker(client):
        await fake.seen(poll, 2 * len(TRANSIENT) + usual[poll])


@pytest.mark.parametrize("code", FINAL)
@pytest.mark.parametrize("poll", POLLS)
@pytest.mark.usefixtures("impatient")
async def test_the_fault_of_the_caller_ends_the_worker(
    fake: FakeServer, poll: str, code: int
) -> None:
    fake.script(poll, Refused(code, "no way"))
    fatal: list[BaseException] = []

    async def note(error: BaseException) -> None:
        fatal.append(error)

    client = await Client.connect(fake.target)
    failing = worker(client, on_fatal_error=note)
    kind = poll.removeprefix("Poll").removesuffix("TaskQueue")
    async with asyncio.timeout(LIVENESS):
        with pytest.raises(RuntimeError, match=f"^{kind} worker failed$") as raised:
            await failing.run()
    assert fatal == [raised.value]
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert str(raised.value.__cause__).startswith("Poll failure: ")
    assert 'message: "no way"' in str(raised.value.__cause__)
    assert len(fake.requests["ShutdownWorker"]) == 1
    async with asyncio.timeout(LIVENESS):
        await fake.idle.wait()


@pytest.mark.parametrize("poll", POLLS)
async def test_in_the_first_minute_nothing_is_fatal(fake: FakeServer, poll: str) -> None:
    fake.script(poll, *(Refused(code) for code in FINAL))
    client = await Client.connect(fake.target)
    async with asyncio.timeout(LIVENESS), worker(client) as polling_worker:
        await fake.seen(poll)
        await asyncio.sleep(0.05)
        assert polling_worker.is_running


EXECUTION = WorkflowExecution(workflow_id="workflow", run_id="run")
TYPE = WorkflowType(name="ManySteps")
TOKEN = b"token"


def task(**fields: Any) -> Message:
    return messages.PollWorkflowTaskQueueResponse(task_token=TOKEN, **fields)


async def test_tasks_that_make_no_sense_are_dropped(
    fake: FakeServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """The compiled core logs them and polls on, although it calls the error fatal."""
    fake.script(
        "PollWorkflowTaskQueue",
        task(workflow_type=TYPE, history=History()),
        task(workflow_execution=EXECUTION, history=History()),
        task(workflow_execution=EXECUTION, workflow_type=TYPE),
    )
    client = await Client.connect(fake.target)
    async with asyncio.timeout(LIVENESS), worker(client, max_concurrent_workflow_tasks=2):
        await fake.seen("PollWorkflowTaskQueue", 5)
    assert "".join(capfd.readouterr()).count("Server returned an unparseable workflow task") == 3
    assert not fake.requests["RespondWorkflowTaskCompleted"]
    assert not fake.requests["RespondWorkflowTaskFailed"]


async def test_an_activity_without_a_name_fails(fake: FakeServer) -> None:
    fake.script("PollActivityTaskQueue", messages.PollActivityTaskQueueResponse(task_token=TOKEN))
    client = await Client.connect(fake.target)
    async with asyncio.timeout(LIVENESS), worker(client, max_concurrent_activities=1):
        (failed,) = await fake.seen("RespondActivityTaskFailed")
        await fake.seen("PollActivityTaskQueue", 2)
    assert failed.task_token == TOKEN
    assert "is not registered on this worker" in failed.failure.message
