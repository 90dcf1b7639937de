"""Workflow task: it drives time. A task counts as started when history shows that it was worked on.

That is known at the start that closes a sequence (this task is the present one), and at every
completion; a task that failed or timed out never moves the clock.
"""

from __future__ import annotations

from enum import IntEnum, auto

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.errors import FatalError, IllegalTransition
from perdure.core.history.events import time_of
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["WorkflowTaskMachine"]


class State(IntEnum):
    CREATED = auto()
    SCHEDULED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()


class Event(IntEnum):
    SCHEDULED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()


S, E = State, Event


class WorkflowTaskMachine(Machine):
    """One workflow task of history."""

    __slots__ = ("_started_at", "_started_event_id")

    table = Table(
        "WorkflowTask",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULED): (S.SCHEDULED, None),
            (S.SCHEDULED, E.STARTED): (S.STARTED, "start"),
            (S.SCHEDULED, E.TIMED_OUT): (S.TIMED_OUT, None),
            (S.SCHEDULED, E.FAILED): (S.FAILED, "check_paused"),
            (S.STARTED, E.COMPLETED): (S.COMPLETED, "complete"),
            (S.STARTED, E.FAILED): (S.FAILED, "fail"),
            (S.STARTED, E.TIMED_OUT): (S.TIMED_OUT, None),
        },
        initial=S.CREATED,
        final=(S.COMPLETED, S.FAILED, S.TIMED_OUT),
        history={
            EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED: E.SCHEDULED,
            EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED: E.STARTED,
            EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: E.COMPLETED,
            EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: E.FAILED,
            EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT: E.TIMED_OUT,
        },
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._started_event_id = 0
        self._started_at = 0

    # Effects

    def start(self, event: HistoryEvent) -> None:
        if not event.HasField("event_time"):
            raise FatalError(f"event {event.event_id}, WorkflowTaskStarted, has no time")
        self._started_event_id = event.event_id
        self._started_at = time_of(event)
        if event.event_id == self.host.next_started_event_id:
            self.host.task_started(self._started_event_id, self._started_at)

    def complete(self, _: HistoryEvent) -> None:
        self.host.task_started(self._started_event_id, self._started_at)

    def fail(self, event: HistoryEvent) -> None:
        attributes = event.workflow_task_failed_event_attributes
        if attributes.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
            self.host.workflow_was_reset(attributes.new_run_id)

    def check_paused(self, event: HistoryEvent) -> None:
        """A task fails before it starts only when somebody pauses the workflow."""
        cause = event.workflow_task_failed_event_attributes.cause
        if cause != _PAUSED:
            raise IllegalTransition(self.describe(), S.SCHEDULED.name, E.FAILED.name)


_PAUSED = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_PAUSE_REQUESTED_BEFORE_TASK_STARTED
)
