"""Nexus operation: two outcomes (of the start, then of the operation), and four ways to cancel.

An operation that ends before it is seen to start has one answer only: a success counts as started
synchronously, with the result in the same activation; anything else is a start that failed.
Trying and abandoning a cancel tell lang at once that the operation is cancelled. Whatever arrives
after lang has its answer is swallowed: lang has forgotten the operation by then. (Upstream fails
the workflow task on some of these late events.)
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.failure.v1.message_pb2 import CanceledFailureInfo, Failure
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.nexus.nexus_pb2 import NexusOperationCancellationType

from perdure.core.commands import LangCommand
from perdure.core.machines.fields import check_same, copy_fields
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["NexusOperationMachine"]


class State(IntEnum):
    CREATED = auto()
    SCHEDULE_COMMAND_CREATED = auto()
    SCHEDULED_EVENT_RECORDED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_SCHEDULE = auto()
    SCHEDULED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    CANCELED = auto()
    TIMED_OUT = auto()
    CANCEL_WAIT_COMPLETED = auto()
    CANCEL_ABANDON = auto()
    CANCEL_TRY = auto()
    CANCEL_WAIT_REQUESTED = auto()
    COMMAND_CANCEL = auto()
    CANCEL_REQUESTED = auto()
    CANCEL_REQUEST_COMPLETED = auto()
    CANCEL_REQUEST_FAILED = auto()


S, E = State, Event

_CANCELS: Final = (
    E.CANCEL_WAIT_COMPLETED,
    E.CANCEL_ABANDON,
    E.CANCEL_TRY,
    E.CANCEL_WAIT_REQUESTED,
)
_UNDER_WAY: Final = (S.SCHEDULED_EVENT_RECORDED, S.STARTED)
_ENDED: Final = (S.COMPLETED, S.FAILED, S.TIMED_OUT, S.CANCELLED)
_OUTCOMES: Final = (E.COMPLETED, E.FAILED, E.CANCELED, E.TIMED_OUT)
_CANCEL_EVENT: Final = {
    NexusOperationCancellationType.WAIT_CANCELLATION_COMPLETED: E.CANCEL_WAIT_COMPLETED,
    NexusOperationCancellationType.ABANDON: E.CANCEL_ABANDON,
    NexusOperationCancellationType.TRY_CANCEL: E.CANCEL_TRY,
    NexusOperationCancellationType.WAIT_CANCELLATION_REQUESTED: E.CANCEL_WAIT_REQUESTED,
}
_TIMEOUTS: Final = (
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "start_to_close_timeout",
)


class NexusOperationMachine(Machine):
    """One operation of lang, known by its `seq`."""

    __slots__ = (
        "_cancel_annotations",
        "_cancel_event",
        "_cancelled",
        "_endpoint",
        "_operation",
        "_resolved",
        "_schedule",
        "_scheduled_event_id",
        "_service",
        "_token",
        "seq",
    )

    table = Table(
        "NexusOperation",
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
                (S.SCHEDULE_COMMAND_CREATED, cancel): (S.CANCELLED, "resolve_unsent")
                for cancel in _CANCELS
            },
            (S.SCHEDULED_EVENT_RECORDED, E.STARTED): (S.STARTED, "resolve_started"),
            (S.SCHEDULED_EVENT_RECORDED, E.COMPLETED): (S.COMPLETED, "resolve_completed_sync"),
            (S.SCHEDULED_EVENT_RECORDED, E.FAILED): (S.FAILED, "resolve_start_failed"),
            (S.SCHEDULED_EVENT_RECORDED, E.CANCELED): (S.CANCELLED, "resolve_start_canceled"),
            (S.SCHEDULED_EVENT_RECORDED, E.TIMED_OUT): (S.TIMED_OUT, "resolve_start_timed_out"),
            (S.STARTED, E.COMPLETED): (S.COMPLETED, "resolve_completed"),
            (S.STARTED, E.FAILED): (S.FAILED, "resolve_failed"),
            (S.STARTED, E.CANCELED): (S.CANCELLED, "resolve_canceled"),
            (S.STARTED, E.TIMED_OUT): (S.TIMED_OUT, "resolve_timed_out"),
            **{(state, E.CANCEL_ABANDON): (S.CANCELLED, "resolve_at_once") for state in _UNDER_WAY},
            **{(state, E.CANCEL_TRY): (state, "queue_cancel_and_resolve") for state in _UNDER_WAY},
            **{
                (state, wait): (state, "queue_cancel")
                for state in _UNDER_WAY
                for wait in (E.CANCEL_WAIT_COMPLETED, E.CANCEL_WAIT_REQUESTED)
            },
            **{(state, E.COMMAND_CANCEL): (state, None) for state in _UNDER_WAY},
            **{(state, E.CANCEL_REQUESTED): (state, None) for state in _UNDER_WAY},
            **{
                (state, E.CANCEL_REQUEST_COMPLETED): (state, "resolve_cancel_requested")
                for state in _UNDER_WAY
            },
            **{
                (state, E.CANCEL_REQUEST_FAILED): (state, "resolve_cancel_failed")
                for state in _UNDER_WAY
            },
        },
        initial=S.CREATED,
        final=_ENDED,
        withdrawn=(S.CANCELLED,),
        ignored=(
            *((state, cancel) for state in _ENDED for cancel in _CANCELS),
            *(
                (state, late)
                for state in _ENDED
                for late in (E.CANCEL_REQUEST_COMPLETED, E.CANCEL_REQUEST_FAILED)
            ),
            *((S.CANCELLED, late) for late in (E.STARTED, *_OUTCOMES)),
        ),
        history={
            EventType.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED: E.SCHEDULED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_STARTED: E.STARTED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_COMPLETED: E.COMPLETED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_FAILED: E.FAILED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_CANCELED: E.CANCELED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_TIMED_OUT: E.TIMED_OUT,
            EventType.EVENT_TYPE_NEXUS_OPERATION_CANCEL_REQUESTED: E.CANCEL_REQUESTED,
            EventType.EVENT_TYPE_NEXUS_OPERATION_CANCEL_REQUEST_COMPLETED: (
                E.CANCEL_REQUEST_COMPLETED
            ),
            EventType.EVENT_TYPE_NEXUS_OPERATION_CANCEL_REQUEST_FAILED: E.CANCEL_REQUEST_FAILED,
        },
        commands={
            CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION: E.COMMAND_SCHEDULE,
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_NEXUS_OPERATION: E.COMMAND_CANCEL,
        },
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        body = command.body
        self.seq: int = body.seq
        self._schedule = body
        self._endpoint: str = body.endpoint
        self._service: str = body.service
        self._operation: str = body.operation
        self._cancel_event = _CANCEL_EVENT.get(body.cancellation_type, E.CANCEL_WAIT_COMPLETED)
        self._cancel_annotations = command.annotations
        self._scheduled_event_id = 0
        self._token = ""
        self._cancelled = False
        self._resolved = False
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        return (
            f"NexusOperation(seq {self.seq}, endpoint {self._endpoint!r},"
            f" service {self._service!r}, operation {self._operation!r})"
        )

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the operation any more; only the first wish counts."""
        if not self._cancelled:
            self._cancelled = True
            self.on_command(self._cancel_event, command)

    # Effects: what happened

    def queue_schedule(self, _: None) -> None:
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION, self._build_schedule
        )

    def check_scheduled(self, event: HistoryEvent) -> None:
        self._scheduled_event_id = event.event_id
        self._schedule = None
        if self.host.checks_nexus_identity():
            recorded = event.nexus_operation_scheduled_event_attributes
            check_same(event, "Nexus service", recorded.service, self._service)
            check_same(event, "Nexus operation", recorded.operation, self._operation)

    def resolve_started(self, event: HistoryEvent) -> None:
        started = event.nexus_operation_started_event_attributes
        self._token = started.operation_token or started.operation_id
        if not self._resolved:
            job = self.host.new_job().resolve_nexus_operation_start
            job.seq = self.seq
            job.operation_token = self._token

    def resolve_completed_sync(self, event: HistoryEvent) -> None:
        if not self._resolved:
            job = self.host.new_job().resolve_nexus_operation_start
            job.seq = self.seq
            job.started_sync = True
            self.resolve_completed(event)

    def resolve_completed(self, event: HistoryEvent) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation
            job.seq = self.seq
            job.result.completed.CopyFrom(event.nexus_operation_completed_event_attributes.result)

    def resolve_failed(self, event: HistoryEvent) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation
            job.seq = self.seq
            job.result.failed.CopyFrom(event.nexus_operation_failed_event_attributes.failure)

    def resolve_canceled(self, event: HistoryEvent) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation
            job.seq = self.seq
            job.result.cancelled.CopyFrom(event.nexus_operation_canceled_event_attributes.failure)

    def resolve_timed_out(self, event: HistoryEvent) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation
            job.seq = self.seq
            job.result.timed_out.CopyFrom(event.nexus_operation_timed_out_event_attributes.failure)

    def resolve_start_failed(self, event: HistoryEvent) -> None:
        self._fail_start(event.nexus_operation_failed_event_attributes.failure)

    def resolve_start_canceled(self, event: HistoryEvent) -> None:
        self._fail_start(event.nexus_operation_canceled_event_attributes.failure)

    def resolve_start_timed_out(self, event: HistoryEvent) -> None:
        self._fail_start(event.nexus_operation_timed_out_event_attributes.failure)

    # Effects of a cancellation

    def resolve_unsent(self, _: LangCommand) -> None:
        failure = Failure()
        self._fill_cancelled(failure, "Nexus Operation cancelled before scheduled")
        self._fail_start(failure)

    def queue_cancel(self, command: LangCommand) -> None:
        self._cancel_annotations = self.annotations.overridden_by(command.annotations)
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_REQUEST_CANCEL_NEXUS_OPERATION, self._build_cancel
        )

    def queue_cancel_and_resolve(self, command: LangCommand) -> None:
        self.queue_cancel(command)
        self.resolve_at_once(command)

    def resolve_at_once(self, _: LangCommand) -> None:
        self._resolve_cancelled("Nexus operation cancelled after starting")

    def resolve_cancel_requested(self, _: HistoryEvent) -> None:
        if self._cancel_event == E.CANCEL_WAIT_REQUESTED:
            self._resolve_cancelled("Nexus operation cancellation request completed")

    def resolve_cancel_failed(self, event: HistoryEvent) -> None:
        if self._cancel_event != E.CANCEL_WAIT_REQUESTED or not self._take_answer():
            return
        cause = event.nexus_operation_cancel_request_failed_event_attributes.failure
        job = self.host.new_job().resolve_nexus_operation
        job.seq = self.seq
        self._fill(job.result.failed, "Nexus operation cancellation request failed", cause)

    # Parts

    def _take_answer(self) -> bool:
        """True once: lang is told one outcome."""
        if self._resolved:
            return False
        self._resolved = True
        return True

    def _fail_start(self, failure: Failure) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation_start
            job.seq = self.seq
            job.failed.CopyFrom(failure)

    def _resolve_cancelled(self, message: str) -> None:
        if self._take_answer():
            job = self.host.new_job().resolve_nexus_operation
            job.seq = self.seq
            self._fill_cancelled(job.result.cancelled, message)

    def _fill_cancelled(self, failure: Failure, message: str) -> None:
        self._fill(failure, message, Failure(canceled_failure_info=CanceledFailureInfo()))

    def _fill(self, failure: Failure, message: str, cause: Failure) -> None:
        failure.message = message
        failure.cause.CopyFrom(cause)
        info = failure.nexus_operation_execution_failure_info
        info.scheduled_event_id = self._scheduled_event_id
        info.endpoint = self._endpoint
        info.service = self._service
        info.operation = self._operation
        info.operation_token = self._token

    def _build_schedule(self) -> Command:
        schedule = self._schedule
        command = self.new_command(CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION)
        attributes = command.schedule_nexus_operation_command_attributes
        attributes.endpoint = schedule.endpoint
        attributes.service = schedule.service
        attributes.operation = schedule.operation
        copy_fields(schedule, attributes, ("input", *_TIMEOUTS))
        attributes.nexus_header.update(schedule.nexus_header)
        return command

    def _build_cancel(self) -> Command:
        command = self.new_command(
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_NEXUS_OPERATION, self._cancel_annotations
        )
        attributes = command.request_cancel_nexus_operation_command_attributes
        attributes.scheduled_event_id = self._scheduled_event_id
        return command
