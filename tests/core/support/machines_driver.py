"""Drives the machines of one run by hand: apply history, look at the jobs, answer them."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.protocol.v1 import Message
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, HistorySlice

from perdure.core.commands import parse_command
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.run.workflow_machines import Step, WorkflowMachines
from perdure.core.run_info import RunInfo

RUN = RunInfo("namespace", "workflow-id", "run-id", "workflow-type", "task-queue")


def update_of(part: HistorySlice) -> HistoryUpdate:
    """All of it at once, as if no page were missing."""
    return HistoryUpdate(
        part.events,
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
    )


class Driver:
    """One run. Without `part` the whole history is given."""

    def __init__(
        self,
        history: HistoryBuilder,
        part: HistorySlice | None = None,
        *,
        run: RunInfo = RUN,
        messages: Sequence[Message] = (),
    ) -> None:
        self.history = history
        self.machines = WorkflowMachines(run)
        self.feed(part if part is not None else history.whole(), messages)

    def feed(self, part: HistorySlice, messages: Sequence[Message] = ()) -> None:
        """A new workflow task."""
        self.machines.new_history(update_of(part), messages)

    def step(self) -> Step:
        """Applies sequences until there is something to say to lang or nothing is left."""
        step = self.machines.apply_next_sequence()
        while step is Step.APPLIED and self.machines.replaying and not self.machines.has_jobs:
            step = self.machines.apply_next_sequence()
        return step

    def advance(self) -> None:
        """Applies history only if lang has nothing to do and the replay goes on."""
        if self.machines.replaying and not self.machines.has_jobs:
            self.step()

    def activation(self) -> WorkflowActivation:
        activation = self.machines.activation()
        self.machines.completed_activation_dispatched()
        return activation

    def next_variants(self) -> list[str]:
        """Applies history and gives the variants of the jobs that come of it."""
        self.step()
        return [job.WhichOneof("variant") or "" for job in self.activation().jobs]

    def answer(self, *commands: WorkflowCommand, apply: bool = True) -> None:
        """Lang's answer; then, as the stream does, the next history."""
        self.machines.iterate([parse_command(command) for command in commands])
        if apply:
            self.step()

    def new_event(self, event_id: int) -> HistoryEvent:
        return self.history.events[event_id - 1]
