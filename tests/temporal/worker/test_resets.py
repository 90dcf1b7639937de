"""Runs that are set back to an earlier task, on a real server.

Rows: IT/workflow_tests/resets.
"""

from __future__ import annotations

import uuid

from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer, Worker


@workflow.defn
class Drawing:
    """Draws lots before and after it is told to go on, and takes updates meanwhile."""

    def __init__(self) -> None:
        self.goes_on = False
        self.wishes: list[str] = []

    @workflow.run
    async def run(self) -> list[float]:
        first = workflow.random().random()
        await workflow.sleep(0.001)
        await workflow.wait_condition(lambda: self.goes_on)
        return [first, workflow.random().random()]

    @workflow.signal
    def go_on(self) -> None:
        self.goes_on = True

    @workflow.update
    def wish(self, what: str) -> int:
        self.wishes.append(what)
        return len(self.wishes)

    @workflow.query
    def all_wishes(self) -> list[str]:
        return self.wishes


async def test_a_run_that_is_reset_goes_another_way_from_there(client: Client) -> None:
    """What was before stays: the first lot. What comes after has a seed of its own; signals and
    updates from behind the point are given to the new run again."""
    name = str(uuid.uuid4())
    async with Worker(client, task_queue=name, workflows=[Drawing]):
        handle = await client.start_workflow(Drawing.run, id=name, task_queue=name)
        await handle.query(Drawing.all_wishes)
        assert await handle.execute_update(Drawing.wish, "one") == 1
        await handle.signal(Drawing.go_on)
        first, second = await handle.result()
        completed = [
            event.event_id
            for event in (await handle.fetch_history()).events
            if event.HasField("workflow_task_completed_event_attributes")
        ]
        answer = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(
                    workflow_id=name, run_id=handle.first_execution_run_id or ""
                ),
                reason="to see it",
                workflow_task_finish_event_id=completed[1],
                request_id=str(uuid.uuid4()),
            )
        )
        again: WorkflowHandle[Drawing, list[float]] = client.get_workflow_handle(
            name, run_id=answer.run_id, result_type=list[float]
        )
        lots = await again.result()
        assert await again.query(Drawing.all_wishes) == ["one"]
        history = await again.fetch_history()
    assert lots[0] == first
    assert lots[1] != second
    await Replayer(workflows=[Drawing]).replay_workflow(history)
