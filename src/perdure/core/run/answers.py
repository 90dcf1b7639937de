"""What one run says to the server, one answer at a time.

Owns the answer under way and the knowledge whether it ends the workflow. It decides nothing: the
run says what to answer, this makes the request, counts what is counted, and remembers of what kind
the answer was, because the run needs that when the server has replied.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1.command_type_pb2 import CommandType
from temporalio.api.enums.v1.common_pb2 import ApplicationErrorCategory
from temporalio.api.enums.v1.failed_cause_pb2 import WorkflowTaskFailedCause as Cause
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import QueryResult

from perdure.core.actions import (
    Action,
    CompleteTask,
    Counted,
    FailTask,
    RespondQuery,
)
from perdure.core.inputs import Problem
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_tasks.completion import Succeeded
from perdure.core.workflow_tasks.reports import TOO_LARGE, Reports, choose_eager, too_large_failure
from perdure.core.workflow_tasks.task import OutstandingTask
from perdure.core.workflow_tasks.verdicts import Verdict

__all__ = ["Answer", "Outbox", "RunAnswers"]

_ENDINGS: Final[dict[int, str]] = {
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION: "workflow_completed",
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION: "workflow_canceled",
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION: "workflow_failed",
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION: "workflow_continue_as_new",
}
"""Commands that end a workflow, and the metric that counts each."""

_BENIGN: Final = ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN


class Answer(enum.Enum):
    """What kind of answer is under way."""

    COMPLETE = "complete"
    FAIL = "fail"
    QUERY = "query"
    QUERY_TOO_LARGE = "query too large"


class Outbox(Protocol):
    """Where actions go, and what requests are made with."""

    settings: StreamSettings
    reports: Reports

    def emit(self, action: Action) -> None:
        """Have the action carried out."""


class RunAnswers:
    """See the module."""

    __slots__ = ("_ending", "_outbox", "_run_id", "_workflow_type", "under_way")

    def __init__(self, outbox: Outbox, run_id: str, workflow_type: str) -> None:
        self._outbox = outbox
        self._run_id = run_id
        self._workflow_type = workflow_type
        self._ending: Command | None = None
        self.under_way: Answer | None = None

    def replied(self) -> Answer | None:
        """The server has replied to the answer under way, which is returned."""
        answer, self.under_way = self.under_way, None
        return answer

    def count_ending(self) -> bool:
        """The server took the completion: true, and counted, if it ends the workflow.

        A failure that its author calls benign is not counted as one.
        """
        if self._ending is None:
            return False
        failure = self._ending.fail_workflow_execution_command_attributes.failure
        if failure.application_failure_info.category != _BENIGN:
            self._count(_ENDINGS[self._ending.command_type])
        return True

    def count_failure(self, reason: str) -> None:
        """A task failed, whether the server is told again or not."""
        self._count("workflow_task_execution_failed", reason)

    def complete(
        self,
        task: OutstandingTask,
        machines: WorkflowMachines,
        done: Succeeded,
        *,
        force_new_task: bool,
    ) -> None:
        """The task went well: send what the machines have for the server."""
        commands = machines.outgoing_commands()
        sdk_metadata, metering = machines.completion_metadata()
        request = self._outbox.reports.complete(
            task.token,
            commands,
            messages=machines.drain_messages(),
            answers=done.answers,
            force_new_task=force_new_task,
            sdk_metadata=sdk_metadata,
            metering=metering,
            versioning_behavior=done.versioning_behavior,
        )
        self._ending = next((c for c in commands if c.command_type in _ENDINGS), None)
        eager = choose_eager(request, self._outbox.settings)
        self._send(Answer.COMPLETE, CompleteTask(self._run_id, request, eager))

    def fail_workflow(self, task: OutstandingTask, verdict: Verdict) -> None:
        """Complete the task with nothing but the failure of the workflow."""
        command = Command(command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION)
        command.fail_workflow_execution_command_attributes.failure.CopyFrom(verdict.failure)
        self._ending = command
        request = self._outbox.reports.complete(task.token, [command])
        self._send(Answer.COMPLETE, CompleteTask(self._run_id, request))

    def fail(self, task: OutstandingTask, verdict: Verdict) -> None:
        """The task could not be carried out."""
        self._fail(task, verdict.cause, verdict.failure, verdict.metric_reason)

    def fail_too_large(self, task: OutstandingTask, problem: Problem) -> None:
        """The completion of the task was too large to be sent."""
        cause, name = TOO_LARGE[problem.kind]
        self._fail(task, cause, too_large_failure(problem), name)

    def answer_query(self, task: OutstandingTask, answer: QueryResult) -> None:
        """Answer a lone query."""
        request = self._outbox.reports.answer_query(task.token, answer)
        self._send(Answer.QUERY, RespondQuery(self._run_id, request))

    def fail_query(self, task: OutstandingTask, verdict: Verdict) -> None:
        """Tell who asked a lone query that lang failed."""
        request = self._outbox.reports.fail_query(task.token, verdict.failure, verdict.cause)
        self._send(Answer.QUERY, RespondQuery(self._run_id, request))

    def query_too_large(self, task: OutstandingTask, problem: Problem) -> None:
        """Tell who asked a lone query that the answer was too large to be sent."""
        cause, _ = TOO_LARGE[problem.kind]
        failure = too_large_failure(problem)
        request = self._outbox.reports.fail_query(task.token, failure, cause)
        self._send(Answer.QUERY_TOO_LARGE, RespondQuery(self._run_id, request))

    def _fail(
        self, task: OutstandingTask, cause: Cause.ValueType, failure: Failure, reason: str
    ) -> None:
        self.count_failure(reason)
        request = self._outbox.reports.fail(task.token, cause, failure)
        self._send(Answer.FAIL, FailTask(self._run_id, request))

    def _send(self, answer: Answer, action: CompleteTask | FailTask | RespondQuery) -> None:
        self.under_way = answer
        self._outbox.emit(action)

    def _count(self, name: str, reason: str = "") -> None:
        self._outbox.emit(Counted(name, self._workflow_type, reason))
