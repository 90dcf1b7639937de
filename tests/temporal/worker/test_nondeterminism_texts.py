"""What a person is shown when code and history disagree: the event, the command, the line."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError
from tests.temporal.support import sample
from tests.temporal.worker.test_replay import record


@workflow.defn(name="ManySteps")
class SleepsInstead:
    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        await workflow.sleep(1)
        return 0


@workflow.defn(name="ManySteps")
class CallsAnother:
    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        await workflow.execute_activity(sample.refuse, start_to_close_timeout=timedelta(seconds=10))
        return 0


@workflow.defn(name="ManySteps")
class WaitsForEver:
    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        await workflow.wait_condition(lambda: False)
        return 0


def line_of(definition: type, text: str) -> str:
    lines, first = inspect.getsourcelines(definition)
    offset = next(index for index, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(definition)}:{first + offset}, in {definition.__name__}.run"


@pytest.mark.parametrize("runner", [SandboxedWorkflowRunner(), UnsandboxedWorkflowRunner()])
@pytest.mark.parametrize(
    ("definition", "line", "command"),
    [
        (SleepsInstead, "workflow.sleep(1)", "Timer(seq 1)"),
        (CallsAnother, "workflow.execute_activity(", "Activity(seq 1, id '1', type 'refuse')"),
    ],
)
async def test_the_text_names_event_command_and_line(
    client: Client, definition: type, line: str, command: str, runner: WorkflowRunner
) -> None:
    history = await record(client, sample.ManySteps, 1, 0)
    replayer = Replayer(workflows=[definition], workflow_runner=runner)
    with pytest.raises(NondeterminismError) as caught:
        await replayer.replay_workflow(history)
    text = str(caught.value)
    assert "history has: 5 ACTIVITY_TASK_SCHEDULED (activity_id '1', activity_type 'greet')" in text
    assert "4 WORKFLOW_TASK_COMPLETED, [5 ACTIVITY_TASK_SCHEDULED]" in text
    assert f"code asked:  {command}, at {line_of(definition, line)}" in text
    assert "way out:" in text


async def test_code_that_asks_for_nothing(client: Client) -> None:
    history = await record(client, sample.ManySteps, 1, 0)
    with pytest.raises(NondeterminismError, match=r"code asked:  for nothing so far"):
        await Replayer(workflows=[WaitsForEver]).replay_workflow(history)
