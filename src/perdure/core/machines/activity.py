"""Activity: schedule, outcome, and three ways to cancel.

The way is chosen when lang schedules, so each is an event of its own:

* CANCEL_TRY: ask the server, and tell lang at once that the activity is cancelled; whatever
  happens to it later is of no interest.
* CANCEL_WAIT: ask the server, and tell lang what became of it.
* CANCEL_ABANDON: tell lang, and ask nobody.

What still arrives for an activity that lang has been told is over is swallowed. (After an abandon
the activity lives on, so any outcome is possible; upstream fails the task on some of them.)
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.activity_result.activity_result_pb2 import (
    ActivityResolution,
    ActivityTaskFailedCause,
)
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    ActivityCancellationType,
)

from perdure.core.commands import LangCommand
from perdure.core.failures import (
    ActivityIdentity,
    activity_cancelled,
    activity_failed,
    activity_timed_out,
)
from perdure.core.machines.fields import (
    check_same,
    copy_fields,
    fill_map,
    uses_workflow_build_id,
)
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["ActivityMachine"]


class State(IntEnum):
    CREATED = auto()
    SCHEDULE_COMMAND_CREATED = auto()
    SCHEDULED_EVENT_RECORDED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED = auto()
    SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED = auto()
    STARTED_ACTIVITY_CANCEL_COMMAND_CREATED = auto()
    STARTED_ACTIVITY_CANCEL_EVENT_RECORDED = auto()
    CANCELED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_SCHEDULE = auto()
    SCHEDULED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CANCEL_TRY = auto()
    CANCEL_WAIT = auto()
    CANCEL_ABANDON = auto()
    COMMAND_CANCEL = auto()
    CANCEL_REQUESTED = auto()
    CANCELED = auto()


S, E = State, Event

_CANCELS: Final = (E.CANCEL_TRY, E.CANCEL_WAIT, E.CANCEL_ABANDON)
_ASKED: Final = (
    S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED,
    S.SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED,
    S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED,
    S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED,
)
_CANCEL_EVENT: Final = {
    ActivityCancellationType.TRY_CANCEL: E.CANCEL_TRY,
    ActivityCancellationType.WAIT_CANCELLATION_COMPLETED: E.CANCEL_WAIT,
    ActivityCancellationType.ABANDON: E.CANCEL_ABANDON,
}


class ActivityMachine(Machine):
    """One activity of lang, known by its `seq`."""

    __slots__ = (
        "_cancel_annotations",
        "_cancel_event",
        "_identity",
        "_resolved",
        "_schedule",
        "seq",
    )

    table = Table(
        "Activity",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.SCHEDULE_COMMAND_CREATED, "queue_schedule"),
            (S.SCHEDULE_COMMAND_CREATED, E.COMMAND_SCHEDULE): (S.SCHEDULE_COMMAND_CREATED, None),
            (S.SCHEDULE_COMMAND_CREATED, E.SCHEDULED): (
                S.SCHEDULED_EVENT_RECORDED,
                "check_scheduled",
            ),
            **{
                (S.SCHEDULE_COMMAND_CREATED, cancel): (S.CANCELED, "resolve_at_once")
                for cancel in _CANCELS
            },
            (S.SCHEDULED_EVENT_RECORDED, E.STARTED): (S.STARTED, "remember_started"),
            (S.SCHEDULED_EVENT_RECORDED, E.TIMED_OUT): (S.TIMED_OUT, "resolve_timed_out"),
            (S.SCHEDULED_EVENT_RECORDED, E.CANCEL_TRY): (
                S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED,
                "queue_cancel_and_resolve",
            ),
            (S.SCHEDULED_EVENT_RECORDED, E.CANCEL_WAIT): (
                S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED,
                "queue_cancel",
            ),
            (S.SCHEDULED_EVENT_RECORDED, E.CANCEL_ABANDON): (S.CANCELED, "resolve_at_once"),
            (S.STARTED, E.COMPLETED): (S.COMPLETED, "resolve_completed"),
            (S.STARTED, E.FAILED): (S.FAILED, "resolve_failed"),
            (S.STARTED, E.TIMED_OUT): (S.TIMED_OUT, "resolve_timed_out"),
            (S.STARTED, E.CANCELED): (S.CANCELED, "resolve_canceled"),
            (S.STARTED, E.CANCEL_TRY): (
                S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED,
                "queue_cancel_and_resolve",
            ),
            (S.STARTED, E.CANCEL_WAIT): (
                S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED,
                "queue_cancel",
            ),
            (S.STARTED, E.CANCEL_ABANDON): (S.CANCELED, "resolve_at_once"),
            (S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED, E.COMMAND_CANCEL): (
                S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED,
                None,
            ),
            (S.SCHEDULED_ACTIVITY_CANCEL_COMMAND_CREATED, E.CANCEL_REQUESTED): (
                S.SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED,
                None,
            ),
            (S.SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED, E.STARTED): (
                S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED,
                "remember_started",
            ),
            (S.SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED, E.CANCELED): (
                S.CANCELED,
                "resolve_canceled",
            ),
            (S.SCHEDULED_ACTIVITY_CANCEL_EVENT_RECORDED, E.TIMED_OUT): (
                S.TIMED_OUT,
                "resolve_timed_out",
            ),
            (S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED, E.COMMAND_CANCEL): (
                S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED,
                None,
            ),
            (S.STARTED_ACTIVITY_CANCEL_COMMAND_CREATED, E.CANCEL_REQUESTED): (
                S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED,
                None,
            ),
            (S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED, E.COMPLETED): (
                S.COMPLETED,
                "resolve_completed",
            ),
            (S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED, E.FAILED): (S.FAILED, "resolve_failed"),
            (S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED, E.TIMED_OUT): (
                S.TIMED_OUT,
                "resolve_timed_out",
            ),
            (S.STARTED_ACTIVITY_CANCEL_EVENT_RECORDED, E.CANCELED): (
                S.CANCELED,
                "resolve_canceled",
            ),
        },
        initial=S.CREATED,
        final=(S.COMPLETED, S.FAILED, S.TIMED_OUT, S.CANCELED),
        withdrawn=(S.CANCELED,),
        ignored=(
            *((state, cancel) for state in _ASKED for cancel in _CANCELS),
            *(
                (state, cancel)
                for state in (S.COMPLETED, S.FAILED, S.TIMED_OUT, S.CANCELED)
                for cancel in _CANCELS
            ),
            *(
                (S.CANCELED, late)
                for late in (E.STARTED, E.COMPLETED, E.FAILED, E.TIMED_OUT, E.CANCELED)
            ),
        ),
        history={
            EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: E.SCHEDULED,
            EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED: E.STARTED,
            EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: E.COMPLETED,
            EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: E.FAILED,
            EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: E.TIMED_OUT,
            EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED: E.CANCEL_REQUESTED,
            EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: E.CANCELED,
        },
        commands={
            CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK: E.COMMAND_SCHEDULE,
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_ACTIVITY_TASK: E.COMMAND_CANCEL,
        },
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        body = command.body
        self.seq: int = body.seq
        self._schedule = body
        self._cancel_event = _CANCEL_EVENT.get(body.cancellation_type, E.CANCEL_TRY)
        self._cancel_annotations = command.annotations
        self._identity = ActivityIdentity(body.activity_id, body.activity_type)
        self._resolved = False
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        identity = self._identity
        return (
            f"Activity(seq {self.seq}, id {identity.activity_id!r},"
            f" type {identity.activity_type!r})"
        )

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the activity any more."""
        self.on_command(self._cancel_event, command)

    # Effects

    def queue_schedule(self, _: None) -> None:
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK, self._build_schedule
        )

    def check_scheduled(self, event: HistoryEvent) -> None:
        identity = self._identity
        identity.scheduled_event_id = event.event_id
        self._schedule = None
        if not self.host.checks_identity():
            return
        recorded = event.activity_task_scheduled_event_attributes
        check_same(event, "activity id", recorded.activity_id, identity.activity_id)
        check_same(event, "activity type", recorded.activity_type.name, identity.activity_type)

    def remember_started(self, event: HistoryEvent) -> None:
        self._identity.started_event_id = event.event_id

    def resolve_completed(self, event: HistoryEvent) -> None:
        resolution = self._resolution()
        if resolution is not None:
            completed = resolution.completed
            completed.SetInParent()
            result = event.activity_task_completed_event_attributes.result.payloads
            if result:
                completed.result.CopyFrom(result[0])

    def resolve_failed(self, event: HistoryEvent) -> None:
        resolution = self._resolution()
        if resolution is not None:
            attributes = event.activity_task_failed_event_attributes
            resolution.failed.cause = ActivityTaskFailedCause.ValueType(attributes.cause)
            activity_failed(resolution.failed.failure, self._identity, attributes)

    def resolve_timed_out(self, event: HistoryEvent) -> None:
        resolution = self._resolution()
        if resolution is not None:
            activity_timed_out(
                resolution.failed.failure,
                self._identity,
                event.activity_task_timed_out_event_attributes,
            )

    def resolve_canceled(self, event: HistoryEvent) -> None:
        resolution = self._resolution()
        if resolution is not None:
            activity_cancelled(
                resolution.cancelled.failure,
                self._identity,
                event.activity_task_canceled_event_attributes,
            )

    def queue_cancel(self, command: LangCommand) -> None:
        self._cancel_annotations = self.annotations.overridden_by(command.annotations)
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_REQUEST_CANCEL_ACTIVITY_TASK, self._build_cancel
        )

    def queue_cancel_and_resolve(self, command: LangCommand) -> None:
        self.queue_cancel(command)
        self.resolve_at_once(command)

    def resolve_at_once(self, _: LangCommand) -> None:
        resolution = self._resolution()
        if resolution is not None:
            activity_cancelled(resolution.cancelled.failure, self._identity)

    # Parts

    def _resolution(self) -> ActivityResolution | None:
        """Where the outcome goes; None when lang was given one already."""
        if self._resolved:
            return None
        self._resolved = True
        job = self.host.new_job().resolve_activity
        job.seq = self.seq
        return job.result

    def _build_schedule(self) -> Command:
        schedule = self._schedule
        command = self.new_command(CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK)
        attributes = command.schedule_activity_task_command_attributes
        attributes.activity_id = schedule.activity_id
        attributes.activity_type.name = schedule.activity_type
        attributes.task_queue.name = schedule.task_queue
        attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
        attributes.header.SetInParent()
        fill_map(attributes.header.fields, schedule.headers)
        if schedule.arguments:
            attributes.input.payloads.extend(schedule.arguments)
        copy_fields(schedule, attributes, _COPIED)
        attributes.request_eager_execution = not schedule.do_not_eagerly_execute
        attributes.use_workflow_build_id = uses_workflow_build_id(
            schedule.versioning_intent, schedule.task_queue, self.host.run.task_queue
        )
        return command

    def _build_cancel(self) -> Command:
        command = self.new_command(
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_ACTIVITY_TASK, self._cancel_annotations
        )
        attributes = command.request_cancel_activity_task_command_attributes
        attributes.scheduled_event_id = self._identity.scheduled_event_id
        return command


_COPIED: Final = (
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "start_to_close_timeout",
    "heartbeat_timeout",
    "retry_policy",
    "priority",
)
