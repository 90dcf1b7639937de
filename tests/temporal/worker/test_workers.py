"""The official SDK's programming model on our core, against a real server.

Every run ends with a replay of its history by the official Replayer, on our core as well.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.worker import Replayer, Worker
from tests.temporal.support import sample


class Bench:
    """A running worker and what was started on it."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.queue = queue
        self.handles: list[WorkflowHandle[Any, Any]] = []

    async def start(self, workflow: Any, *arguments: Any) -> WorkflowHandle[Any, Any]:
        handle: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            workflow.run, args=arguments, id=str(uuid.uuid4()), task_queue=self.queue
        )
        self.handles.append(handle)
        return handle

    async def run(self, workflow: Any, *arguments: Any) -> Any:
        return await (await self.start(workflow, *arguments)).result()

    async def replay_all(self) -> None:
        replayer = Replayer(workflows=sample.WORKFLOWS)
        for handle in self.handles:
            await replayer.replay_workflow(await handle.fetch_history())


@pytest.fixture(params=[1000, 0], ids=["cached", "uncached"])
async def bench(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    queue = str(uuid.uuid4())
    bench = Bench(client, queue)
    with ThreadPoolExecutor(4) as threads:
        async with Worker(
            client,
            task_queue=queue,
            workflows=sample.WORKFLOWS,
            activities=sample.ACTIVITIES,
            activity_executor=threads,
            max_cached_workflows=request.param,
        ):
            yield bench
    await bench.replay_all()


async def test_activities_are_run_and_retried(bench: Bench) -> None:
    greetings = [f"Hello, {name}!" for name in ["0", "1", "2", "3", "4", "thread"]]
    assert await bench.run(sample.Activities) == ["3", "Refused", *greetings]


async def test_local_activities_are_run_retried_and_cancelled(bench: Bench) -> None:
    greetings = [f"Hello, {name}!" for name in ["0", "1", "2", "3", "4", "later"]]
    result = await bench.run(sample.LocalActivities)
    assert result == ["3", "Refused", *greetings, "CancelledError"]


async def test_a_cancelled_activity_learns_it_with_its_heartbeat(bench: Bench) -> None:
    """Rows: IT/heartbeat_tests."""
    assert await bench.run(sample.CancelsActivity) == "stopped"


async def test_children_complete_fail_and_are_cancelled(bench: Bench) -> None:
    assert await bench.run(sample.Parent) == ["abab", "the child failed", "CancelledError"]


async def test_a_workflow_continues_as_new(bench: Bench) -> None:
    assert await bench.run(sample.Counting, 1) == 2


async def test_updates_signals_and_queries(bench: Bench) -> None:
    """Rows: IT/update_tests, IT/queries_tests."""
    account = await bench.start(sample.Account)
    assert await account.execute_update(sample.Account.add, 5) == 5
    assert await account.execute_update(sample.Account.add, 7) == 12
    with pytest.raises(WorkflowUpdateFailedError) as failed:
        await account.execute_update(sample.Account.add, -1)
    assert isinstance(failed.value.cause, ApplicationError)
    assert await account.query(sample.Account.value) == 12
    closed = await bench.run(sample.Closes, account.id)
    assert closed == "ExternalWorkflowExecutionNotFound"
    assert await account.result() == 12
    assert await account.query(sample.Account.value) == 12


async def test_patches_search_attributes_and_memo(bench: Bench) -> None:
    assert await bench.run(sample.Patched) == ["new", "kept", "found"]


async def test_a_timer_fires(bench: Bench) -> None:
    assert await bench.run(sample.TimesOut) == "after True"


async def test_a_cancelled_workflow_cleans_up(bench: Bench) -> None:
    handle = await bench.start(sample.Cleans)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    status = (await handle.describe()).status
    assert status == WorkflowExecutionStatus.CANCELED


async def test_a_terminated_workflow_is_gone(bench: Bench) -> None:
    handle = await bench.start(sample.Cleans)
    await handle.terminate()
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, TerminatedError)


async def test_a_failed_task_is_reported_and_tried_again(bench: Bench) -> None:
    handle = await bench.start(sample.FailsOneTask)
    assert await handle.result() == "recovered"
    events = (await handle.fetch_history()).events
    failed = [e for e in events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    assert len(failed) == 1
    assert "a bug" in failed[0].workflow_task_failed_event_attributes.failure.message
    bench.handles.clear()  # its code is not deterministic


async def test_many_workflows_at_once(bench: Bench) -> None:
    results = await asyncio.gather(*(bench.run(sample.ManySteps, 1, 2) for _ in range(20)))
    assert results == [3] * 20
