"""Asking another workflow to cancel itself: for lang, or by the core to cancel a child.

Machines that the core made for a child have no `seq` of lang and tell lang nothing.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import Annotations, LangCommand
from perdure.core.failures import ChildIdentity
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["CancelExternalMachine"]


class State(IntEnum):
    CREATED = auto()
    REQUEST_CANCEL_EXTERNAL_COMMAND_CREATED = auto()
    REQUEST_CANCEL_EXTERNAL_COMMAND_RECORDED = auto()
    CANCEL_REQUESTED = auto()
    REQUEST_CANCEL_FAILED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_REQUEST_CANCEL = auto()
    INITIATED = auto()
    CANCEL_REQUESTED = auto()
    FAILED = auto()


S, E = State, Event


class _Target(NamedTuple):
    namespace: str
    workflow_id: str
    run_id: str
    reason: str


class CancelExternalMachine(Machine):
    """One request; `seq` is None for one that the core made for a child."""

    __slots__ = ("_target", "seq")

    table = Table(
        "CancelExternal",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.REQUEST_CANCEL_EXTERNAL_COMMAND_CREATED, "queue"),
            (S.REQUEST_CANCEL_EXTERNAL_COMMAND_CREATED, E.COMMAND_REQUEST_CANCEL): (
                S.REQUEST_CANCEL_EXTERNAL_COMMAND_CREATED,
                None,
            ),
            (S.REQUEST_CANCEL_EXTERNAL_COMMAND_CREATED, E.INITIATED): (
                S.REQUEST_CANCEL_EXTERNAL_COMMAND_RECORDED,
                None,
            ),
            (S.REQUEST_CANCEL_EXTERNAL_COMMAND_RECORDED, E.CANCEL_REQUESTED): (
                S.CANCEL_REQUESTED,
                "resolve_requested",
            ),
            (S.REQUEST_CANCEL_EXTERNAL_COMMAND_RECORDED, E.FAILED): (
                S.REQUEST_CANCEL_FAILED,
                "resolve_failed",
            ),
        },
        initial=S.CREATED,
        final=(S.CANCEL_REQUESTED, S.REQUEST_CANCEL_FAILED),
        history={
            EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: E.INITIATED,
            EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED: E.CANCEL_REQUESTED,
            EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED: E.FAILED,
        },
        commands={
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION: (
                E.COMMAND_REQUEST_CANCEL
            )
        },
    )

    def __init__(
        self, host: Host, seq: int | None, target: _Target, annotations: Annotations
    ) -> None:
        super().__init__(host, annotations)
        self.seq = seq
        self._target = target
        self.fire(E.SCHEDULE)

    @classmethod
    def of_command(cls, host: Host, command: LangCommand) -> CancelExternalMachine:
        """Lang asks some workflow to cancel itself."""
        body = command.body
        execution = body.workflow_execution
        target = _Target(
            execution.namespace,
            execution.workflow_id,
            execution.run_id,
            f"Cancel requested by workflow with run id {host.run.run_id}"
            f" with reason: {body.reason}",
        )
        return cls(host, body.seq, target, command.annotations)

    @classmethod
    def of_child(
        cls, host: Host, child: ChildIdentity, reason: str, annotations: Annotations
    ) -> CancelExternalMachine:
        """The core cancels a child that lang does not want any more."""
        namespace = child.namespace or host.run.namespace
        target = _Target(namespace, child.workflow_id, child.run_id, reason)
        return cls(host, None, target, annotations)

    def describe(self) -> str:
        return f"CancelExternal(seq {self.seq}, workflow {self._target.workflow_id!r})"

    # Effects

    def queue(self, _: None) -> None:
        self.host.queue_command(
            self,
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION,
            self._build,
        )

    def resolve_requested(self, _: HistoryEvent) -> None:
        if self.seq is not None:
            self.host.new_job().resolve_request_cancel_external_workflow.seq = self.seq

    def resolve_failed(self, event: HistoryEvent) -> None:
        if self.seq is None:
            return
        attributes = event.request_cancel_external_workflow_execution_failed_event_attributes
        job = self.host.new_job().resolve_request_cancel_external_workflow
        job.seq = self.seq
        job.failure.message = "Unable to cancel external workflow because not found"
        job.failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
        job.failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
        job.cause = attributes.cause

    def _build(self) -> Command:
        command = self.new_command(
            CommandType.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION
        )
        attributes = command.request_cancel_external_workflow_execution_command_attributes
        target = self._target
        attributes.namespace = target.namespace
        attributes.workflow_id = target.workflow_id
        attributes.run_id = target.run_id
        attributes.reason = target.reason
        attributes.child_workflow_only = self.seq is None
        return command
