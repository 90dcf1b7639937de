"""Random histories that a real workflow could have left, and the code that would have left them.

Commands follow only tasks in which the workflow had something to react to: nothing else is legal.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, payload

from perdure.core.history.events import COMMAND_EVENTS, NAMES, TASK_COMPLETED

__all__ = ["commands_after", "random_history"]


class _Author:
    """Appends one task after the other."""

    def __init__(self, random: Random, run_id: str) -> None:
        self.random = random
        self.built = HistoryBuilder(run_id=run_id)
        self.timers: list[tuple[int, int]] = []
        self.seq = 0
        self.updates = 0

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def beginning(self) -> None:
        built = self.built
        built.started()
        if self.chance(0.15):
            built.signaled("early")
        for _ in range(self.random.choice([0, 0, 0, 1, 2])):
            built.task_scheduled_and_started()
            built.task_failed()
        built.task_scheduled()
        if self.chance(0.15):
            built.signaled("during")
        built.task_started()
        built.task_completed()

    def commands(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            self.seq += 1
            self.timers.append((self.built.timer_started(self.seq), self.seq))

    def task(self) -> bool:
        """One more task. True if the workflow had something to react to."""
        built = self.built
        kind = self.random.choice(["empty", "empty", "signal", "timer", "update"])
        has_jobs = kind in {"signal", "update"}
        if kind == "signal":
            built.signaled("between")
        elif kind == "timer" and self.timers:
            built.timer_fired(*self.timers.pop(0))
            has_jobs = True
        sequencing = built.task_scheduled()
        if self.chance(0.15):
            sequencing = built.signaled("during")
            has_jobs = True
        if self.chance(0.2):
            built.task_started()
            self.random.choice([built.task_failed, built.task_timed_out])()
            if self.chance(0.2):
                built.signaled("buffered")
                has_jobs = True
            sequencing = built.task_scheduled()
        built.task_started()
        built.task_completed()
        if kind == "update":
            self._answer_update(sequencing)
        return has_jobs

    def _answer_update(self, sequencing: int) -> None:
        self.updates += 1
        name = f"update-{self.updates}"
        accepted = self.built.update_accepted(name, sequencing_event_id=sequencing)
        if self.chance(0.5):
            self.built.update_completed(accepted, name)

    def end(self, *, has_jobs: bool) -> None:
        ends = ["nothing", "task", "terminated", "timed_out"]
        if has_jobs:
            ends.append("completed")
        end = self.random.choice(ends)
        if end == "task":
            self.built.task_scheduled_and_started()
        elif end != "nothing":
            getattr(self.built, end)()


def random_history(random: Random, run_id: str) -> HistoryBuilder:
    """Timers, signals, updates, heartbeats, failed and timed-out tasks, and any end."""
    author = _Author(random, run_id)
    author.beginning()
    has_jobs = True
    for _ in range(random.randint(0, 8)):
        if has_jobs:
            author.commands()
        has_jobs = author.task()
    author.end(has_jobs=has_jobs)
    return author.built


def commands_after(built: HistoryBuilder, event_id: int) -> list[WorkflowCommand]:
    """What the workflow answers to an activation that ends with this event."""
    commands = []
    following = iter(built.events[event_id:])
    completed = next(following, None)
    if completed is not None and completed.event_type == TASK_COMPLETED:
        for event in following:
            if event.event_type not in COMMAND_EVENTS:
                break
            commands.append(_COMMANDS[NAMES[event.event_type]](event))
    return commands


def _timer(event: HistoryEvent) -> WorkflowCommand:
    attributes = event.timer_started_event_attributes
    command = WorkflowCommand()
    command.start_timer.seq = int(attributes.timer_id)
    command.start_timer.start_to_fire_timeout.CopyFrom(attributes.start_to_fire_timeout)
    return command


def _accepted(event: HistoryEvent) -> WorkflowCommand:
    attributes = event.workflow_execution_update_accepted_event_attributes
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = attributes.protocol_instance_id
    command.update_response.accepted.SetInParent()
    return command


def _completed(event: HistoryEvent) -> WorkflowCommand:
    attributes = event.workflow_execution_update_completed_event_attributes
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = attributes.meta.update_id
    command.update_response.completed.CopyFrom(payload(None))
    return command


def _end(event: HistoryEvent) -> WorkflowCommand:
    command = WorkflowCommand()
    command.complete_workflow_execution.SetInParent()
    return command


_COMMANDS: dict[str, Callable[[HistoryEvent], WorkflowCommand]] = {
    "TIMER_STARTED": _timer,
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED": _accepted,
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED": _completed,
    "WORKFLOW_EXECUTION_COMPLETED": _end,
}
