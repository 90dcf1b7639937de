"""Signalling another workflow. Once the signal is sent it cannot be taken back."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import (
    CommandType,
    EventType,
    SignalExternalWorkflowExecutionFailedCause as Cause,
)
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import LangCommand
from perdure.core.machines.fields import fill_map
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["SignalExternalMachine"]


class State(IntEnum):
    CREATED = auto()
    SIGNAL_EXTERNAL_COMMAND_CREATED = auto()
    SIGNAL_EXTERNAL_COMMAND_RECORDED = auto()
    SIGNALED = auto()
    FAILED = auto()
    CANCELLED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_SIGNAL = auto()
    INITIATED = auto()
    SIGNALED = auto()
    FAILED = auto()
    CANCEL = auto()


S, E = State, Event

_WHY: Final[dict[int, tuple[str, str]]] = {
    Cause.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND: (
        "ExternalWorkflowExecutionNotFound",
        "it was not found",
    ),
    Cause.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_NAMESPACE_NOT_FOUND: (
        "NamespaceNotFound",
        "its namespace was not found",
    ),
    Cause.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_SIGNAL_COUNT_LIMIT_EXCEEDED: (
        "SignalCountLimitExceeded",
        "it has had too many signals",
    ),
}
"""The type of the failure, and the end of its text."""


class SignalExternalMachine(Machine):
    """One signal of lang, known by its `seq`."""

    __slots__ = ("_body", "seq")

    table = Table(
        "SignalExternal",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.SIGNAL_EXTERNAL_COMMAND_CREATED, "queue"),
            (S.SIGNAL_EXTERNAL_COMMAND_CREATED, E.COMMAND_SIGNAL): (
                S.SIGNAL_EXTERNAL_COMMAND_CREATED,
                None,
            ),
            (S.SIGNAL_EXTERNAL_COMMAND_CREATED, E.INITIATED): (
                S.SIGNAL_EXTERNAL_COMMAND_RECORDED,
                "forget_arguments",
            ),
            (S.SIGNAL_EXTERNAL_COMMAND_CREATED, E.CANCEL): (S.CANCELLED, "resolve_unsent"),
            (S.SIGNAL_EXTERNAL_COMMAND_RECORDED, E.SIGNALED): (S.SIGNALED, "resolve_signaled"),
            (S.SIGNAL_EXTERNAL_COMMAND_RECORDED, E.FAILED): (S.FAILED, "resolve_failed"),
        },
        initial=S.CREATED,
        final=(S.SIGNALED, S.FAILED, S.CANCELLED),
        withdrawn=(S.CANCELLED,),
        ignored=(
            (S.SIGNAL_EXTERNAL_COMMAND_RECORDED, E.CANCEL),
            (S.SIGNALED, E.CANCEL),
            (S.FAILED, E.CANCEL),
            (S.CANCELLED, E.CANCEL),
        ),
        history={
            EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: E.INITIATED,
            EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED: E.SIGNALED,
            EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED: E.FAILED,
        },
        commands={
            CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION: E.COMMAND_SIGNAL,
        },
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        self.seq: int = command.body.seq
        self._body = command.body
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        return f"SignalExternal(seq {self.seq})"

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the signal to be sent."""
        self.on_command(E.CANCEL, command)

    # Effects

    def queue(self, _: None) -> None:
        self.host.queue_command(
            self, CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION, self._build
        )

    def forget_arguments(self, _: HistoryEvent) -> None:
        self._body = None

    def resolve_unsent(self, _: LangCommand) -> None:
        job = self.host.new_job().resolve_signal_external_workflow
        job.seq = self.seq
        job.failure.message = "Signal was cancelled before being sent"
        job.failure.canceled_failure_info.SetInParent()

    def resolve_signaled(self, _: HistoryEvent) -> None:
        self.host.new_job().resolve_signal_external_workflow.seq = self.seq

    def resolve_failed(self, event: HistoryEvent) -> None:
        cause = event.signal_external_workflow_execution_failed_event_attributes.cause
        job = self.host.new_job().resolve_signal_external_workflow
        job.seq = self.seq
        kind, why = _WHY.get(cause, ("", "of an unknown cause"))
        job.failure.message = f"Unable to signal external workflow because {why}"
        job.failure.application_failure_info.type = kind
        job.cause = cause

    def _build(self) -> Command:
        body = self._body
        command = self.new_command(CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION)
        attributes = command.signal_external_workflow_execution_command_attributes
        if body.WhichOneof("target") == "child_workflow_id":
            attributes.namespace = self.host.run.namespace
            attributes.execution.workflow_id = body.child_workflow_id
            attributes.child_workflow_only = True
        else:
            target = body.workflow_execution
            attributes.namespace = target.namespace
            attributes.execution.workflow_id = target.workflow_id
            attributes.execution.run_id = target.run_id
        attributes.signal_name = body.signal_name
        if body.args:
            attributes.input.payloads.extend(body.args)
        if body.headers:
            fill_map(attributes.header.fields, body.headers)
        return command
