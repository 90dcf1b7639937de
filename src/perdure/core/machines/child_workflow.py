"""Child workflow: two outcomes (of the start, then of the child), and four ways to cancel.

A child is cancelled by a RequestCancelExternalWorkflow command, which is a machine of its own and
never tells lang anything. Abandoning and trying tell lang at once that the child is cancelled;
what still arrives is swallowed. The two ways that wait change nothing but to send that command.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import Payloads
from temporalio.api.enums.v1 import CommandType, EventType, RetryState, TimeoutType
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.child_workflow.child_workflow_pb2 import (
    ChildWorkflowCancellationType,
    ChildWorkflowResult,
    StartChildWorkflowExecutionFailedCause,
)

from perdure.core.commands import LangCommand
from perdure.core.failures import ChildIdentity
from perdure.core.machines.cancel_external import CancelExternalMachine
from perdure.core.machines.fields import (
    check_same,
    copy_fields,
    fill_map,
    uses_workflow_build_id,
)
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["ChildWorkflowMachine"]


class State(IntEnum):
    CREATED = auto()
    START_COMMAND_CREATED = auto()
    START_EVENT_RECORDED = auto()
    START_FAILED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    TERMINATED = auto()
    CANCELLED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_START = auto()
    INITIATED = auto()
    START_FAILED = auto()
    STARTED = auto()
    COMPLETED = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    TERMINATED = auto()
    CANCELED = auto()
    CANCEL_ABANDON = auto()
    CANCEL_TRY = auto()
    CANCEL_WAIT_COMPLETED = auto()
    CANCEL_WAIT_REQUESTED = auto()


S, E = State, Event

_CANCELS: Final = (
    E.CANCEL_ABANDON,
    E.CANCEL_TRY,
    E.CANCEL_WAIT_COMPLETED,
    E.CANCEL_WAIT_REQUESTED,
)
_OUTCOMES: Final = (E.COMPLETED, E.FAILED, E.TIMED_OUT, E.TERMINATED, E.CANCELED)
_ENDED: Final = (
    S.START_FAILED,
    S.COMPLETED,
    S.FAILED,
    S.TIMED_OUT,
    S.TERMINATED,
    S.CANCELLED,
)
_UNDER_WAY: Final = (S.START_EVENT_RECORDED, S.STARTED)
_CANCEL_EVENT: Final = {
    ChildWorkflowCancellationType.ABANDON: E.CANCEL_ABANDON,
    ChildWorkflowCancellationType.TRY_CANCEL: E.CANCEL_TRY,
    ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED: E.CANCEL_WAIT_COMPLETED,
    ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED: E.CANCEL_WAIT_REQUESTED,
}
_TIMEOUTS: Final = (
    "workflow_execution_timeout",
    "workflow_run_timeout",
    "workflow_task_timeout",
)
_COPIED: Final = (
    *_TIMEOUTS,
    "retry_policy",
    "search_attributes",
    "priority",
    "versioning_override",
)


class ChildWorkflowMachine(Machine):
    """One child of lang, known by its `seq`."""

    __slots__ = ("_cancel_event", "_identity", "_start", "seq")

    table = Table(
        "ChildWorkflow",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.START_COMMAND_CREATED, "queue_start"),
            (S.START_COMMAND_CREATED, E.COMMAND_START): (S.START_COMMAND_CREATED, None),
            (S.START_COMMAND_CREATED, E.INITIATED): (S.START_EVENT_RECORDED, "check_initiated"),
            **{
                (S.START_COMMAND_CREATED, cancel): (S.CANCELLED, "resolve_unsent")
                for cancel in _CANCELS
            },
            (S.START_EVENT_RECORDED, E.STARTED): (S.STARTED, "resolve_started"),
            (S.START_EVENT_RECORDED, E.START_FAILED): (S.START_FAILED, "resolve_start_failed"),
            (S.STARTED, E.COMPLETED): (S.COMPLETED, "resolve_completed"),
            (S.STARTED, E.FAILED): (S.FAILED, "resolve_failed"),
            (S.STARTED, E.TIMED_OUT): (S.TIMED_OUT, "resolve_timed_out"),
            (S.STARTED, E.TERMINATED): (S.TERMINATED, "resolve_terminated"),
            (S.STARTED, E.CANCELED): (S.CANCELLED, "resolve_canceled"),
            **{(state, E.CANCEL_ABANDON): (S.CANCELLED, "resolve_at_once") for state in _UNDER_WAY},
            **{
                (state, E.CANCEL_TRY): (S.CANCELLED, "request_cancel_and_resolve")
                for state in _UNDER_WAY
            },
            **{
                (state, wait): (state, "request_cancel")
                for state in _UNDER_WAY
                for wait in (E.CANCEL_WAIT_COMPLETED, E.CANCEL_WAIT_REQUESTED)
            },
        },
        initial=S.CREATED,
        final=_ENDED,
        withdrawn=(S.CANCELLED,),
        ignored=(
            *((state, cancel) for state in _ENDED for cancel in _CANCELS),
            *((S.CANCELLED, late) for late in (E.STARTED, E.START_FAILED, *_OUTCOMES)),
        ),
        history={
            EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: E.INITIATED,
            EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED: E.START_FAILED,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED: E.STARTED,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: E.COMPLETED,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: E.FAILED,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: E.TIMED_OUT,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: E.TERMINATED,
            EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: E.CANCELED,
        },
        commands={CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION: E.COMMAND_START},
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        body = command.body
        self.seq: int = body.seq
        self._start = body
        self._cancel_event = _CANCEL_EVENT.get(body.cancellation_type, E.CANCEL_ABANDON)
        self._identity = ChildIdentity(body.namespace, body.workflow_id, body.workflow_type)
        self.fire(E.SCHEDULE)

    @property
    def workflow_id(self) -> str:
        return self._identity.workflow_id

    def describe(self) -> str:
        identity = self._identity
        return (
            f"ChildWorkflow(seq {self.seq}, id {identity.workflow_id!r},"
            f" type {identity.workflow_type!r})"
        )

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the child any more."""
        self.on_command(self._cancel_event, command)

    # Effects

    def queue_start(self, _: None) -> None:
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION, self._build_start
        )

    def check_initiated(self, event: HistoryEvent) -> None:
        identity = self._identity
        identity.initiated_event_id = event.event_id
        self._start = None
        if not self.host.checks_identity():
            return
        recorded = event.start_child_workflow_execution_initiated_event_attributes
        check_same(event, "child workflow id", recorded.workflow_id, identity.workflow_id)
        check_same(
            event, "child workflow type", recorded.workflow_type.name, identity.workflow_type
        )

    def resolve_unsent(self, command: LangCommand) -> None:
        job = self.host.new_job().resolve_child_workflow_execution_start
        job.seq = self.seq
        failure = job.cancelled.failure
        reason = command.body.reason
        failure.message = f"Child Workflow Execution cancelled before scheduled: {reason}"
        failure.cause.canceled_failure_info.SetInParent()
        self._identity.put_on(failure, RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE)

    def resolve_started(self, event: HistoryEvent) -> None:
        started = event.child_workflow_execution_started_event_attributes
        self._identity.started_event_id = event.event_id
        self._identity.run_id = started.workflow_execution.run_id
        job = self.host.new_job().resolve_child_workflow_execution_start
        job.seq = self.seq
        job.succeeded.run_id = started.workflow_execution.run_id

    def resolve_start_failed(self, event: HistoryEvent) -> None:
        attributes = event.start_child_workflow_execution_failed_event_attributes
        job = self.host.new_job().resolve_child_workflow_execution_start
        job.seq = self.seq
        job.failed.workflow_id = attributes.workflow_id
        job.failed.workflow_type = attributes.workflow_type.name
        job.failed.cause = StartChildWorkflowExecutionFailedCause.ValueType(attributes.cause)

    def resolve_completed(self, event: HistoryEvent) -> None:
        completed = self._result().completed
        completed.SetInParent()
        result = event.child_workflow_execution_completed_event_attributes.result.payloads
        if result:
            completed.result.CopyFrom(result[0])

    def resolve_failed(self, event: HistoryEvent) -> None:
        attributes = event.child_workflow_execution_failed_event_attributes
        failure = self._failure("failed", attributes.retry_state)
        _copy_cause(failure, attributes)

    def resolve_timed_out(self, event: HistoryEvent) -> None:
        attributes = event.child_workflow_execution_timed_out_event_attributes
        failure = self._failure("timed out", attributes.retry_state)
        failure.cause.message = "Timed out"
        failure.cause.timeout_failure_info.timeout_type = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE

    def resolve_terminated(self, _: HistoryEvent) -> None:
        failure = self._failure("terminated", RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE)
        failure.cause.message = "Terminated"
        failure.cause.terminated_failure_info.SetInParent()

    def resolve_canceled(self, event: HistoryEvent) -> None:
        details = event.child_workflow_execution_canceled_event_attributes
        self._resolve_cancelled(details.details if details.HasField("details") else None)

    def resolve_at_once(self, _: LangCommand) -> None:
        self._resolve_cancelled(None)

    def request_cancel(self, command: LangCommand) -> None:
        CancelExternalMachine.of_child(
            self.host,
            self._identity,
            command.body.reason,
            self.annotations.overridden_by(command.annotations),
        )

    def request_cancel_and_resolve(self, command: LangCommand) -> None:
        self.request_cancel(command)
        self._resolve_cancelled(None)

    # Parts

    def _result(self) -> ChildWorkflowResult:
        job = self.host.new_job().resolve_child_workflow_execution
        job.seq = self.seq
        return job.result

    def _failure(self, what: str, retry_state: RetryState.ValueType) -> Failure:
        failure = self._result().failed.failure
        failure.message = f"Child Workflow execution {what}"
        self._identity.put_on(failure, retry_state)
        return failure

    def _resolve_cancelled(self, details: Payloads | None) -> None:
        failure = self._result().cancelled.failure
        failure.message = "Child Workflow execution cancelled"
        cancelled = failure.cause.canceled_failure_info
        cancelled.SetInParent()
        if details is not None:
            cancelled.details.CopyFrom(details)
        self._identity.put_on(failure, RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE)

    def _build_start(self) -> Command:
        start = self._start
        command = self.new_command(CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
        attributes = command.start_child_workflow_execution_command_attributes
        attributes.namespace = start.namespace
        attributes.workflow_id = start.workflow_id
        attributes.workflow_type.name = start.workflow_type
        attributes.task_queue.name = start.task_queue
        attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
        if start.input:
            attributes.input.payloads.extend(start.input)
        copy_fields(start, attributes, _COPIED)
        attributes.parent_close_policy = start.parent_close_policy
        attributes.workflow_id_reuse_policy = start.workflow_id_reuse_policy
        attributes.cron_schedule = start.cron_schedule
        attributes.header.SetInParent()
        fill_map(attributes.header.fields, start.headers)
        attributes.memo.SetInParent()
        fill_map(attributes.memo.fields, start.memo)
        attributes.inherit_build_id = uses_workflow_build_id(
            start.versioning_intent, start.task_queue, self.host.run.task_queue
        )
        return command


def _copy_cause(failure: Failure, attributes: Any) -> None:
    """What the child itself failed with."""
    if attributes.HasField("failure"):
        failure.cause.CopyFrom(attributes.failure)
