"""A recorded log of inputs makes the same run of the core again."""

from __future__ import annotations

import json

import pytest
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.canned_histories import single_timer
from tests.core.support.stage import RUN, Stage, complete_workflow, run_local, start_timer

from perdure.core.evidence import CallSite
from perdure.core.input_log import BrokenInputLog, InputLog, outcome_lines, replay
from perdure.core.inputs import (
    Completed,
    HeartbeatDue,
    Input,
    LocalCancelsDelivered,
    ProblemKind,
)
from perdure.core.trace import describe_action


class RecordingStage(Stage):
    """A stage that keeps the log of what it feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.log = InputLog()
        self.lines = [self.log.header(self.stream.settings)]

    def feed(self, given: Input) -> None:
        entry = self.log.entry(given, ["to be replaced"])
        before = len(self.actions)
        super().feed(given)
        did = [describe_action(action) for action in list(self.actions)[before:]]
        self.lines.append(json.dumps(json.loads(entry) | {"did": did}))


def recorded() -> list[str]:
    stage, built = RecordingStage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.complete(start_timer(1), run_local(1))
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    stage.refuse(ProblemKind.NOT_FOUND, "too late")
    stage.feed(LocalCancelsDelivered(RUN))
    stage.complete()
    stage.poll(built)
    stage.complete(start_timer(1))
    stage.complete(complete_workflow())
    stage.report()
    stage.stop()
    return stage.lines


def test_a_replay_does_the_same() -> None:
    replayed = list(replay(recorded()))
    assert len(replayed) == 12
    assert [one.did for one in replayed] == [one.did_then for one in replayed]
    assert any("complete the task: START_TIMER" in line for one in replayed for line in one.did)


def test_another_outcome_is_seen() -> None:
    lines = recorded()
    lines[1] = json.dumps(json.loads(lines[1]) | {"did": ["something else"]})
    replayed = list(replay(lines))
    assert [one.is_same for one in replayed] == [False] + [True] * 11


def test_a_refused_input_is_an_outcome() -> None:
    stage = Stage()
    unknown = WorkflowActivationCompletion(run_id="unknown")
    assert outcome_lines(stage.stream, Completed(unknown))[0].startswith("refused: ")


def test_lines_of_code_survive() -> None:
    completion = WorkflowActivationCompletion(run_id=RUN)
    completion.successful.commands.append(start_timer(1))
    site = CallSite("orders.py", 12, "Order.run")
    log = InputLog()
    lines = [
        log.header(Stage().stream.settings),
        log.entry(Completed(completion, (site, None)), []),
    ]
    given = next(iter(replay(lines))).given
    assert isinstance(given, Completed)
    assert given.sites == (site, None)
    assert given.completion == completion


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        '{"format": 99, "settings": {}}',
        '{"format": 1, "settings": {"record": "X"}}',
    ],
)
def test_a_broken_log_is_named_with_its_line(line: str) -> None:
    with pytest.raises(BrokenInputLog, match="line 1 of the input log"):
        list(replay([line]))
