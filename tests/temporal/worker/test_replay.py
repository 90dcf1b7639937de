"""Replays by the official Replayer: on our core, and of our histories on the compiled core."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.history.v1 import History
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker
from temporalio.workflow import NondeterminismError
from tests.core.support.history_builder import HistoryBuilder
from tests.temporal.support import sample

from perdure.temporal.worker.replay import InvalidHistory, task_of


@workflow.defn(name="ManySteps")
class OtherSteps:
    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        for _ in range(activities + timers):
            await workflow.sleep(1)
        return 0


@workflow.defn(name="ManySteps")
class FailingSteps:
    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        raise RuntimeError("no more")


@workflow.defn
class SleepThenLocal:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(1)
        timeout = timedelta(seconds=5)
        await workflow.execute_local_activity("never run", start_to_close_timeout=timeout)


async def record(client: Client, name: type, *arguments: object) -> WorkflowHistory:
    queue = str(uuid.uuid4())
    async with Worker(
        client,
        task_queue=queue,
        workflows=sample.WORKFLOWS,
        activities=[sample.greet, sample.refuse, sample.third_time_lucky, sample.wait_for_cancel],
    ):
        handle = await client.start_workflow(
            name.__name__, args=arguments, id=queue, task_queue=queue
        )
        await handle.result()
    return await handle.fetch_history()


async def test_a_changed_workflow_is_nondeterministic(client: Client) -> None:
    """Rows: test_replayer_nondeterministic_history."""
    history = await record(client, sample.ManySteps, 2, 1)
    with pytest.raises(NondeterminismError, match=r"\[TMPRL1100\] Nondeterminism error"):
        await Replayer(workflows=[OtherSteps]).replay_workflow(history)


async def test_a_workflow_that_fails_its_task_is_reported(client: Client) -> None:
    history = await record(client, sample.ManySteps, 1, 0)
    with pytest.raises(RuntimeError, match="no more"):
        await Replayer(workflows=[FailingSteps]).replay_workflow(history)


async def test_histories_are_replayed_one_after_the_other(client: Client) -> None:
    histories = [
        await record(client, sample.ManySteps, 1, 1),
        await record(client, sample.Counting, 5),
        await record(client, sample.ManySteps, 0, 2),
    ]

    async def all_histories() -> AsyncIterator[WorkflowHistory]:
        for history in histories:
            yield history

    replayer = Replayer(workflows=[OtherSteps, sample.Counting])
    results = await replayer.replay_workflows(all_histories(), raise_on_replay_failure=False)
    assert len(results.replay_failures) == 1
    assert isinstance(results.replay_failures[histories[0].run_id], NondeterminismError)


async def test_replay_ends_with_an_open_task(client: Client) -> None:
    """A history cut at any started task is replayed to there.

    Rows: replay_flag_is_correct_partial_history.
    """
    history = await record(client, sample.ManySteps, 2, 2)
    started = [
        index
        for index, event in enumerate(history.events)
        if event.HasField("workflow_task_started_event_attributes")
    ]
    replayer = Replayer(workflows=[sample.ManySteps])
    for index in started:
        await replayer.replay_workflow(
            WorkflowHistory(history.workflow_id, history.events[: index + 1])
        )


async def test_a_replay_is_not_a_long_task(
    client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    history = await record(client, sample.ManySteps, 1, 1)
    capfd.readouterr()
    await Replayer(workflows=[sample.ManySteps]).replay_workflow(history)
    assert "Workflow task duration exceeded" not in capfd.readouterr().out


async def test_replay_ends_while_a_local_activity_runs() -> None:
    """A replay runs no local activity: a history without its marker ends where it begins."""
    built = HistoryBuilder(workflow_type="SleepThenLocal")
    built.started()
    built.full_task()
    timer = built.timer_started()
    built.timer_fired(timer)
    built.task_scheduled_and_started()
    history = WorkflowHistory(built.workflow_id, built.events)
    await Replayer(workflows=[SleepThenLocal]).replay_workflow(history)


def test_a_history_without_its_start_is_refused() -> None:
    with pytest.raises(InvalidHistory, match="WorkflowExecutionStarted"):
        task_of("id", History())


COMPILED = """
import asyncio, sys
from pathlib import Path
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from tests.temporal.support import sample
import temporalio.bridge.temporal_sdk_bridge as bridge

async def main() -> None:
    print("compiled", bridge.__file__.rpartition(".")[2])
    for path in sorted(Path(sys.argv[1]).iterdir()):
        history = WorkflowHistory.from_json(path.stem, path.read_text())
        await Replayer(workflows=sample.WORKFLOWS).replay_workflow(history)
        print("replayed", path.stem)

asyncio.run(main())
"""


async def test_the_compiled_core_replays_our_histories(client: Client, tmp_path: Path) -> None:
    """Rows: test_replayer_complete_history."""
    names = [sample.LocalActivities, sample.CancelsActivity, sample.Parent, sample.Patched]
    for name in names:
        history = await record(client, name)
        (tmp_path / f"{name.__name__}.json").write_text(history.to_json())
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", COMPILED, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    expected = sorted(f"replayed {name.__name__}" for name in names)
    assert done.stdout.split("\n")[:-1] == ["compiled so", *expected], done.stderr


async def test_multiple_histories_can_handle_dupe_run_ids(client: Client) -> None:
    """The same run again, and again: each is replayed from its beginning, and all leave."""
    history = await record(client, sample.ManySteps, 1, 1)

    async def thrice() -> AsyncIterator[WorkflowHistory]:
        for _ in range(3):
            yield history

    replayer = Replayer(workflows=[sample.ManySteps])
    async with replayer.workflow_replay_iterator(thrice()) as results:
        replays = [result async for result in results]
    assert [result.replay_failure for result in replays] == [None] * 3


async def test_replay_shutdown_worker(client: Client) -> None:
    """Who has seen enough leaves, though more histories would come."""
    history = await record(client, sample.ManySteps, 1, 0)

    async def endless() -> AsyncIterator[WorkflowHistory]:
        while True:
            yield history

    replayer = Replayer(workflows=[sample.ManySteps])
    async with replayer.workflow_replay_iterator(endless()) as results:
        assert (await anext(results)).replay_failure is None
