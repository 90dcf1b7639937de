"""Nexus tasks of a scripted server: what its worker answers, and what it does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.nexus.v1 import CancelOperationResponse, Response
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse
from temporalio.bridge.proto.nexus import NexusTaskCompletion
from temporalio.client import Client
from temporalio.worker import Worker
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server
from tests.temporal.support.nexus_sample import Desk

COMPLETED, FAILED = "RespondNexusTaskCompleted", "RespondNexusTaskFailed"
NOT_FOUND = 5


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with fake_server() as server:
        yield server


def task(
    token: bytes,
    operation: str,
    input: Any = None,
    *,
    old: bool = False,
    headers: dict[str, str] | None = None,
) -> PollNexusTaskQueueResponse:
    polled = PollNexusTaskQueueResponse(task_token=token)
    polled.request.header.update(headers or {})
    polled.request.capabilities.temporal_failure_responses = not old
    start = polled.request.start_operation
    start.service, start.operation = "Desk", operation
    data = json.dumps(input).encode()
    start.payload.CopyFrom(Payload(metadata={"encoding": b"json/plain"}, data=data))
    return polled


async def desk_worker(fake: FakeServer, desk: Desk) -> Worker:
    client = await Client.connect(fake.target)
    return Worker(
        client, task_queue="queue", nexus_service_handlers=[desk], max_concurrent_nexus_tasks=1
    )


async def test_a_caller_that_knows_the_old_forms_gets_them(fake: FakeServer) -> None:
    fake.script(
        "PollNexusTaskQueue",
        task(b"1", "fail", "failed", old=True),
        task(b"2", "fail", "BAD_REQUEST", old=True),
    )
    async with await desk_worker(fake, Desk()):
        (completed,) = await fake.seen(COMPLETED)
        (failed,) = await fake.seen(FAILED)
    error = completed.response.start_operation.operation_error
    assert (error.operation_state, error.failure.message) == ("failed", "it failed")
    assert json.loads(error.failure.details)["applicationFailureInfo"]["nonRetryable"]
    assert failed.error.error_type == "BAD_REQUEST"
    assert failed.error.failure.message == "refused as BAD_REQUEST"


async def test_a_handler_that_was_cancelled_is_not_reported(fake: FakeServer) -> None:
    fake.script(
        "PollNexusTaskQueue",
        task(b"late", "wait", headers={"Request-Timeout": "10ms"}),
        task(b"next", "greet", "you"),
    )
    desk = Desk()
    async with await desk_worker(fake, desk):
        (completed,) = await fake.seen(COMPLETED)
    assert completed.task_token == b"next"
    assert desk.reasons == ["TIMED_OUT"]
    assert not fake.requests[FAILED]


async def test_a_task_that_asks_for_nothing_does_not_end_the_worker(fake: FakeServer) -> None:
    nothing = PollNexusTaskQueueResponse(task_token=b"?")
    fake.script("PollNexusTaskQueue", nothing, task(b"1", "greet", "you"))
    async with await desk_worker(fake, Desk()):
        (completed,) = await fake.seen(COMPLETED)
    assert completed.task_token == b"1"


async def test_an_answer_that_nobody_waits_for_is_no_error(fake: FakeServer) -> None:
    fake.script("PollNexusTaskQueue", task(b"1", "greet", "you"), task(b"2", "greet", "them"))
    fake.script(COMPLETED, Refused(NOT_FOUND))
    async with await desk_worker(fake, Desk()):
        answers = await fake.seen(COMPLETED, 2)
    assert [answer.task_token for answer in answers] == [b"1", b"2"]


async def test_completions_that_make_no_sense_are_refused(fake: FakeServer) -> None:
    fake.script("PollNexusTaskQueue", task(b"1", "greet", "you"))
    worker = (await desk_worker(fake, Desk()))._bridge_worker
    await worker.validate()
    polled = await worker.poll_nexus_task()
    assert polled.task.task_token == b"1"
    wrong = NexusTaskCompletion(
        task_token=b"1", completed=Response(cancel_operation=CancelOperationResponse())
    )
    with pytest.raises(RuntimeError, match=r"Completion failure: .*response was CancelOperation"):
        await worker.complete_nexus_task(wrong)
    await worker.complete_nexus_task(NexusTaskCompletion(task_token=b"?", ack_cancel=True))
    with pytest.raises(ValueError, match="Invalid proto"):
        await worker._ref.complete_nexus_task(b"\xff\xff")
    worker.initiate_shutdown()
    async with asyncio.timeout(20):
        await worker.finalize_shutdown()
