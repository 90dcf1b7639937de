"""The four commands that end a workflow: complete, fail, cancel, continue as new.

What happens to each is only that it is recorded (`recorded`).
"""

from __future__ import annotations

from typing import ClassVar, Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind

from perdure.core.commands import LangCommand
from perdure.core.machines.fields import copy_fields, fill_map, uses_workflow_build_id
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine
from perdure.core.machines.recorded import SCHEDULE, recorded_table

__all__ = ["TERMINAL_MACHINES", "TerminalMachine"]


class TerminalMachine(Machine):
    """The end of the workflow."""

    __slots__ = ("_body",)

    command_type: ClassVar[CommandType.ValueType] = (
        CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION
    )
    table = recorded_table(
        "CompleteWorkflow",
        command_type,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        self._body = command.body
        self.fire(SCHEDULE)

    def queue(self, _: None) -> None:
        self.host.queue_command(self, self.command_type, self._build)

    def fill(self, command: Command) -> None:
        """Fills the attributes of the server command."""
        attributes = command.complete_workflow_execution_command_attributes
        attributes.SetInParent()
        if self._body.HasField("result"):
            attributes.result.payloads.add().CopyFrom(self._body.result)

    def _build(self) -> Command:
        command = self.new_command(self.command_type)
        self.fill(command)
        return command


class FailWorkflowMachine(TerminalMachine):
    """The workflow failed."""

    __slots__ = ()

    command_type = CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION
    table = recorded_table(
        "FailWorkflow", command_type, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED
    )

    def fill(self, command: Command) -> None:
        attributes = command.fail_workflow_execution_command_attributes
        attributes.SetInParent()
        copy_fields(self._body, attributes, ("failure",))


class CancelWorkflowMachine(TerminalMachine):
    """The workflow agreed to be cancelled."""

    __slots__ = ()

    command_type = CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION
    table = recorded_table(
        "CancelWorkflow", command_type, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED
    )

    def fill(self, command: Command) -> None:
        attributes = command.cancel_workflow_execution_command_attributes
        attributes.SetInParent()
        copy_fields(self._body, attributes, ("details",))


_CONTINUED: Final = (
    "workflow_run_timeout",
    "workflow_task_timeout",
    "backoff_start_interval",
)


class ContinueAsNewMachine(TerminalMachine):
    """The workflow goes on in a new run, which inherits what lang did not set anew."""

    __slots__ = ()

    command_type = CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION
    table = recorded_table(
        "ContinueAsNewWorkflow",
        command_type,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    )

    def fill(self, command: Command) -> None:
        body, host = self._body, self.host
        started = host.started
        attributes = command.continue_as_new_workflow_execution_command_attributes
        attributes.workflow_type.name = body.workflow_type
        attributes.task_queue.name = body.task_queue
        attributes.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
        if body.arguments:
            attributes.input.payloads.extend(body.arguments)
        copy_fields(body, attributes, _CONTINUED)
        if body.headers:
            fill_map(attributes.header.fields, body.headers)
        if body.memo:
            fill_map(attributes.memo.fields, body.memo)
        elif started is not None and started.memo.fields:
            attributes.memo.CopyFrom(started.memo)
        if body.HasField("retry_policy"):
            attributes.retry_policy.CopyFrom(body.retry_policy)
        elif started is not None:
            copy_fields(started, attributes, ("retry_policy",))
        if body.search_attributes.indexed_fields:
            attributes.search_attributes.CopyFrom(body.search_attributes)
        elif host.search_attributes.indexed_fields:
            attributes.search_attributes.CopyFrom(host.search_attributes)
        attributes.inherit_build_id = uses_workflow_build_id(
            body.versioning_intent, body.task_queue, host.run.task_queue
        )
        attributes.initial_versioning_behavior = body.initial_versioning_behavior


TERMINAL_MACHINES: Final[dict[str, type[TerminalMachine]]] = {
    "complete_workflow_execution": TerminalMachine,
    "fail_workflow_execution": FailWorkflowMachine,
    "cancel_workflow_execution": CancelWorkflowMachine,
    "continue_as_new_workflow_execution": ContinueAsNewMachine,
}
