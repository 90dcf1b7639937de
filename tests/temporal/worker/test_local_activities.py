"""Local activities on a real server: rows of the catalogue's integration tests, by their names."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker
from tests.temporal.support.local_sample import ACTIVITIES, EXPECTED, Local

SHORT = timedelta(seconds=1)


async def start(
    client: Client, queue: str, scenario: str, **options: Any
) -> WorkflowHandle[Any, Any]:
    name = f"{scenario}-{uuid.uuid4()}"
    return await client.start_workflow(Local.run, scenario, id=name, task_queue=queue, **options)


def count(history: WorkflowHistory, kind: EventType.ValueType) -> int:
    return sum(event.event_type == kind for event in history.events)


@pytest.mark.parametrize("cached", [1000, 0], ids=["cached", "uncached"])
async def test_every_scenario_ends_and_replays_as_on_the_official_core(
    client: Client, cached: int
) -> None:
    """Rows: local_act_fanout, local_act_then_timer_then_wait_result, local_act_retry_timer_backoff,
    local_act_retry_long_backoff_uses_timer.
    """
    queue = str(uuid.uuid4())
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Local],
        activities=ACTIVITIES,
        max_cached_workflows=cached,
    ):
        handles = {scenario: await start(client, queue, scenario) for scenario in EXPECTED}
        with_update = handles["long_local_activity_with_update"]
        assert await with_update.execute_update(Local.echo_update, "update") == "update"
        await with_update.signal(Local.end)
        results = await asyncio.gather(*(handle.result() for handle in handles.values()))
        histories = {name: await handle.fetch_history() for name, handle in handles.items()}
    assert dict(zip(handles, results, strict=True)) == EXPECTED
    replayer = Replayer(workflows=[Local])
    for history in histories.values():
        await replayer.replay_workflow(history)

    # All of a fan-out is one task, and retries are not timers unless they take long.
    fanout = histories["local_act_fanout"]
    assert count(fanout, EventType.EVENT_TYPE_MARKER_RECORDED) == 12
    assert count(fanout, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED) == 1
    short = histories["local_act_retry_timer_backoff"]
    assert count(short, EventType.EVENT_TYPE_TIMER_STARTED) == 0
    long = histories["local_act_retry_long_backoff_uses_timer"]
    assert count(long, EventType.EVENT_TYPE_TIMER_FIRED) == 2
    assert count(long, EventType.EVENT_TYPE_MARKER_RECORDED) == 3
    assert count(histories["end_while_running"], EventType.EVENT_TYPE_MARKER_RECORDED) == 1


async def test_local_act_heartbeat(client: Client) -> None:
    # The task's time is over before the activity: the server is told, and a new task goes on.
    queue = str(uuid.uuid4())
    async with Worker(client, task_queue=queue, workflows=[Local], activities=ACTIVITIES):
        handle = await start(
            client, queue, "local_act_then_timer_then_wait_result", task_timeout=SHORT
        )
        assert await handle.result() == "slow"
        history = await handle.fetch_history()
    assert count(history, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT) == 0
    assert count(history, EventType.EVENT_TYPE_TIMER_FIRED) == 1
    await Replayer(workflows=[Local]).replay_workflow(history)
