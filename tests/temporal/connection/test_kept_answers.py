"""A task that was polled is delivered, even if its poll is cancelled at that very moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueResponse,
    PollNexusTaskQueueResponse,
)
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server

from perdure.temporal.connection.kept_answer import kept_answer
from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.slots.fixed import FixedSlots
from perdure.temporal.worker.polling.polls import Pollers
from perdure.temporal.worker.settings import PollerCounts

POLL = "/temporal.api.workflowservice.v1.WorkflowService/PollActivityTaskQueue"
LIVENESS = 30.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with fake_server() as server:
        yield server


@pytest.fixture
async def call(fake: FakeServer) -> AsyncIterator[grpc.aio.UnaryUnaryCall[bytes, bytes]]:
    async with asyncio.timeout(LIVENESS), grpc.aio.insecure_channel(fake.target) as channel:
        yield channel.unary_unary(POLL)(b"")


async def test_an_answer_goes_before_a_cancellation(
    fake: FakeServer, call: grpc.aio.UnaryUnaryCall[bytes, bytes]
) -> None:
    fake.script("PollActivityTaskQueue", PollActivityTaskQueueResponse(task_token=b"task"))
    caller = asyncio.create_task(kept_answer(call))
    call.add_done_callback(lambda _: caller.cancel())
    assert PollActivityTaskQueueResponse.FromString(await caller).task_token == b"task"
    assert caller.cancelling()


async def test_an_error_does_not(
    fake: FakeServer, call: grpc.aio.UnaryUnaryCall[bytes, bytes]
) -> None:
    fake.script("PollActivityTaskQueue", Refused(14))
    caller = asyncio.create_task(kept_answer(call))
    call.add_done_callback(lambda _: caller.cancel())
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_call_without_an_answer_is_cancelled(
    fake: FakeServer, call: grpc.aio.UnaryUnaryCall[bytes, bytes]
) -> None:
    caller = asyncio.create_task(kept_answer(call))
    await fake.seen("PollActivityTaskQueue", 1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert call.cancelled()


@pytest.mark.parametrize("stops", [True, False])
async def test_a_poll_that_is_answered_late_delivers_and_ends(*, stops: bool) -> None:
    polling, delivered = asyncio.Event(), []

    async def poll(_seconds: float) -> PollNexusTaskQueueResponse:
        polling.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return PollNexusTaskQueueResponse(task_token=b"task")
        raise AssertionError("nobody sets this event")

    def deliver(task: PollNexusTaskQueueResponse, permit: Permit) -> None:
        delivered.append(task.task_token)
        permit.release()

    def unexpected(*given: object) -> None:
        raise AssertionError(given)

    nothing = SimpleNamespace(began=_ignore, ended=_ignore, answered=_ignore)
    dealer = Dealer(FixedSlots(10), cast("Any", lambda _sticky: None))
    pollers: Pollers[PollNexusTaskQueueResponse] = Pollers(
        PollerCounts(1, 1, 1),
        reserve=dealer.reserve,
        poll=poll,
        deliver=deliver,
        failed=unexpected,
        retried=unexpected,
        metrics=cast("Any", nothing),
    )
    pollers.start()
    await polling.wait()
    if stops:
        pollers.stop()
    async with asyncio.timeout(LIVENESS):
        await pollers.ended(by_server=False)
    assert delivered == [b"task"]
    assert (pollers.under_way, dealer.out) == (0, 0)


def _ignore(*_given: object, **_named: object) -> None:
    """Metrics are not what this is about."""
