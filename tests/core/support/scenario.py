"""One workflow, played twice: task by task as it happens, and again from its whole history.

A scenario is a history and what lang answered to each activation, in turn. `lived` gives the tasks
out one after the other to a worker that keeps the run; `replayed` gives a worker that knows nothing
the whole history. Both must go through without a failed task; what lang was told is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload
from tests.core.support.stage import RUN, Stage, kinds

from perdure.core.actions import (
    CompleteTask,
    FailTask,
    LangActivation,
    RunLocalActivities,
)
from perdure.core.inputs import LocalResolved
from perdure.core.local_activities.requests import LocalActivityRequest, LocalOutcome, LocalResult

__all__ = ["Answers", "lived", "replayed", "told"]

Answers = Sequence[Sequence[WorkflowCommand]]


class _Player:
    """A stage whose lang reads from the script; local activities succeed at once."""

    def __init__(self, answers: Answers, **settings: Any) -> None:
        self.stage = Stage(**settings)
        self.answers = iter(answers)
        self.activations: list[WorkflowActivation] = []

    def talk(self) -> None:
        stage = self.stage
        while stage.has(LangActivation) or stage.has(RunLocalActivities):
            for run in stage.all(RunLocalActivities):
                for request in run.requests:
                    if isinstance(request, LocalActivityRequest):
                        self.resolve(request.command.seq)
            if stage.has(LangActivation):
                activation = stage.activation()
                if kinds(activation) == ["remove_from_cache"]:
                    stage.complete()
                    return
                self.activations.append(activation)
                stage.complete(*next(self.answers, ()))
        if stage.has(FailTask):
            raise AssertionError(stage.failure().failure.message)

    def resolve(self, seq: int) -> None:
        result = LocalResult(
            seq, LocalOutcome.COMPLETED, 1, Timestamp(), payload=payload(None), runtime=0.1
        )
        self.stage.feed(LocalResolved(RUN, seq, result))

    def finish(self) -> list[WorkflowActivation]:
        assert next(self.answers, None) is None, "lang was told less than the script expects"
        return self.activations


def lived(built: HistoryBuilder, answers: Answers) -> list[WorkflowActivation]:
    """Task by task; each is answered before the next one comes."""
    player = _Player(answers)
    stage = player.stage
    for number in range(1, len(built.task_ends()) + 1):
        stage.poll(built, built.only_task(number) if number > 1 else built.to_task(1))
        player.talk()
        stage.completion()
        stage.report()
        player.talk()
    return player.finish()


def replayed(
    built: HistoryBuilder, answers: Answers, part: HistorySlice | None = None
) -> list[WorkflowActivation]:
    """All at once, or the part of the history that is given."""
    player = _Player(answers, evict_after_replay=True)
    player.stage.poll(built, part)
    player.talk()
    if player.stage.has(CompleteTask):
        player.stage.completion()
        player.stage.report()
        player.talk()
    assert player.stage.stream.cached_runs == 0, "it leaves after its replay"
    return player.finish()


def told(activations: Sequence[WorkflowActivation]) -> list[list[str]]:
    """The jobs of each activation, by name."""
    return [kinds(activation) for activation in activations]
