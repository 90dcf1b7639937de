"""What lang answered to an activation: checked, and put in the order in which it is carried out.

A completion that breaks the protocol raises `MalformedCompletion` before anything has changed, so
the caller may fail the activation properly afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from temporalio.api.enums.v1.failed_cause_pb2 import WorkflowTaskFailedCause
from temporalio.api.enums.v1.workflow_pb2 import VersioningBehavior
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import QueryResult
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    Success,
    WorkflowActivationCompletion,
)

from perdure.core.commands import LangCommand, parse_command
from perdure.core.errors import MalformedCommand
from perdure.core.evidence import CallSite
from perdure.core.workflow_tasks.task import LEGACY_QUERY_ID
from perdure.errors import CallerError

__all__ = ["Failed", "MalformedCompletion", "Succeeded", "in_order", "validate"]


class MalformedCompletion(CallerError):
    """Lang's answer to an activation is not one that may be given."""

    code = "core.malformed_completion"

    def __init__(self, run_id: str, problem: str) -> None:
        super().__init__(f"completion of an activation of run {run_id!r}: {problem}")
        self.run_id = run_id
        self.problem = problem


@dataclass(slots=True)
class Succeeded:
    """Lang did what it was asked to; `answers` are taken out of the commands."""

    run_id: str
    commands: Sequence[LangCommand] = ()
    answers: Sequence[QueryResult] = ()
    used_flags: Sequence[int] = ()
    versioning_behavior: VersioningBehavior.ValueType = (
        VersioningBehavior.VERSIONING_BEHAVIOR_UNSPECIFIED
    )

    @property
    def legacy_answer(self) -> QueryResult | None:
        """The answer of the one query that is not part of a workflow task."""
        if len(self.answers) == 1 and self.answers[0].query_id == LEGACY_QUERY_ID:
            return self.answers[0]
        return None

    @property
    def is_empty(self) -> bool:
        return not self.commands and not self.answers


@dataclass(slots=True)
class Failed:
    """Lang could not run the activation. `cause` is what the server is told."""

    run_id: str
    failure: Failure
    cause: WorkflowTaskFailedCause.ValueType


Validated: TypeAlias = Succeeded | Failed


def validate(
    completion: WorkflowActivationCompletion, sites: Sequence[CallSite | None] = ()
) -> Validated:
    """Check lang's answer. Raises `MalformedCompletion`.

    `sites` are the lines of code that asked for its commands, one for each, or none at all.
    """
    status = completion.WhichOneof("status")
    if status == "successful":
        return _success(completion.run_id, completion.successful, sites)
    if status == "failed":
        failed = completion.failed
        return Failed(
            completion.run_id,
            failed.failure,
            failed.force_cause
            or WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
        )
    raise MalformedCompletion(completion.run_id, "it is neither a success nor a failure")


def _success(run_id: str, success: Success, sites: Sequence[CallSite | None]) -> Succeeded:
    commands: list[LangCommand] = []
    answers: list[QueryResult] = []
    for message, site in zip_longest(success.commands, sites[: len(success.commands)]):
        try:
            command = parse_command(message, site)
        except MalformedCommand as error:
            raise MalformedCompletion(run_id, error.message) from error
        if command.is_query_answer:
            answers.append(command.body)
        else:
            commands.append(command)
    if len(success.commands) > 1 and any(a.query_id == LEGACY_QUERY_ID for a in answers):
        raise MalformedCompletion(
            run_id, "the answer to a legacy query must be the only command of its completion"
        )
    return Succeeded(
        run_id,
        commands,
        answers,
        success.used_internal_flags,
        success.versioning_behavior,
    )


def in_order(commands: Iterable[LangCommand], *, keep_after_terminal: bool) -> list[LangCommand]:
    """The commands as they are carried out: the first one that ends the workflow comes last.

    What lang issued after that one is kept in front of it (it happened in the same activation) or
    dropped, which is how older workers did it: a history they made is replayed their way.
    Further commands that end the workflow are dropped in either case.
    """
    ordered: list[LangCommand] = []
    terminal: LangCommand | None = None
    for command in commands:
        if not command.is_terminal:
            ordered.append(command)
        elif terminal is None:
            terminal = command
            if not keep_after_terminal:
                break
    if terminal is not None:
        ordered.append(terminal)
    return ordered
