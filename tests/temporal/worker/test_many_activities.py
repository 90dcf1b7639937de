"""Thousands of activities on one worker at once: all of them end, and all slots come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import temporalio.api.workflowservice.v1 as messages
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.client import Client
from temporalio.worker import Worker
from tests.temporal.support.fake_server import FakeServer, fake_server

MANY = 2000
STORM = 1000
LIVENESS = 100.0


class Crowd:
    """Activities that wait for each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.inside = 0
        self.most = 0
        self.full = asyncio.Event()

    def enter(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.size:
            self.full.set()

    @activity.defn(name="meet")
    async def meet(self) -> None:
        """Wait until all are here."""
        self.enter()
        await self.full.wait()
        self.inside -= 1

    @activity.defn(name="stay")
    async def stay(self) -> None:
        """Wait to be cancelled, which the server says in the answer to a heartbeat."""
        self.enter()
        await self.full.wait()
        activity.heartbeat()
        try:
            await asyncio.Event().wait()
        finally:
            self.inside -= 1


def hand_out(fake: FakeServer, name: str, count: int) -> None:
    """Let the server have so many activities."""
    tasks = iter(range(count))

    async def next_task(request: Any) -> Any:
        number = next(tasks, None)
        if number is None:
            return await fake.wait(request)
        task = messages.PollActivityTaskQueueResponse(
            task_token=str(number).encode(),
            workflow_execution=WorkflowExecution(workflow_id="workflow", run_id="run"),
            activity_id=str(number),
        )
        task.activity_type.name = name
        task.heartbeat_timeout.seconds = 1000
        return task

    fake.answers["PollActivityTaskQueue"] = next_task


async def run(fake: FakeServer, crowd: Crowd, answer: str) -> set[bytes]:
    """Have all activities of the crowd done; the tokens that were answered, each once."""
    client = await Client.connect(fake.target)
    worker = Worker(
        client,
        task_queue="queue",
        activities=[crowd.meet, crowd.stay],
        max_concurrent_activities=crowd.size,
        max_concurrent_activity_task_polls=20,
    )
    assert worker._bridge_worker is not None
    core: Any = worker._bridge_worker._ref._worker
    async with asyncio.timeout(LIVENESS):
        async with worker:
            answers = await fake.seen(answer, crowd.size)
    assert core.waiting_for() == []
    tokens = Counter(request.task_token for request in answers)
    assert set(tokens.values()) == {1}
    assert (crowd.most, crowd.inside) == (crowd.size, 0)
    return set(tokens)


async def test_two_thousand_at_once() -> None:
    async with fake_server() as fake:
        hand_out(fake, "meet", MANY)
        done = await run(fake, Crowd(MANY), "RespondActivityTaskCompleted")
    assert done == {str(number).encode() for number in range(MANY)}


async def test_a_storm_of_cancellations() -> None:
    async with fake_server() as fake:
        hand_out(fake, "stay", STORM)

        async def cancel(request: Any) -> Any:
            return messages.RecordActivityTaskHeartbeatResponse(cancel_requested=True)

        fake.script("RecordActivityTaskHeartbeat", then=cancel)
        done = await run(fake, Crowd(STORM), "RespondActivityTaskCanceled")
    assert len(done) == STORM
