"""What went wrong with a run, and what follows from it: the failure, its cause, the eviction.

Whatever goes wrong ends in one of these records, so there is a single place in `run.work` that
fails a task. `in_completion` says whether lang had a part in it: only then does the reason of the
eviction say so, and only then does the asker of a lone query hear of it. In all other cases the
server asks again, perhaps another worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from temporalio.api.enums.v1.failed_cause_pb2 import WorkflowTaskFailedCause as Cause
from temporalio.api.failure.v1.message_pb2 import ApplicationFailureInfo, Failure
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import RemoveFromCache

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.evidence import message_of, traceback_of
from perdure.core.inputs import (
    EvictionReason,
    Problem,
    ProblemKind,
)
from perdure.core.workflow_tasks.completion import Failed

__all__ = [
    "CACHE_FULL",
    "QUERY_EXPIRED",
    "Eviction",
    "Verdict",
    "history_missing",
    "lang_failed",
    "machines_failed",
    "refused",
]

_Reason: Final = RemoveFromCache.EvictionReason
_UNHANDLED: Final = Cause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE
_NONDETERMINISM: Final = Cause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a run is to leave the cache."""

    message: str
    reason: EvictionReason


@dataclass(frozen=True, slots=True)
class Verdict:
    """See the module."""

    failure: Failure
    cause: Cause.ValueType
    eviction: Eviction
    in_completion: bool

    @property
    def is_nondeterminism(self) -> bool:
        return self.cause == _NONDETERMINISM

    @property
    def metric_reason(self) -> str:
        """The label of the metric that counts failed tasks."""
        return "NonDeterminismError" if self.is_nondeterminism else "WorkflowError"


CACHE_FULL: Final = Eviction("Workflow cache full", _Reason.CACHE_FULL)
"""Another run needs the place."""

QUERY_EXPIRED: Final = Verdict(
    Failure(message="Query expired"),
    _UNHANDLED,
    Eviction("Query expired", _Reason.UNSPECIFIED),
    in_completion=False,
)
"""A lone query was asked of an earlier state than the run has come to."""


def lang_failed(done: Failed) -> Verdict:
    """Lang could not run an activation."""
    message = f"Workflow activation completion failed: {done.failure.message}"
    return Verdict(
        done.failure, done.cause, Eviction(message, _Reason.LANG_FAIL), in_completion=True
    )


def machines_failed(error: FatalError | NondeterminismError, *, in_completion: bool) -> Verdict:
    """The machines could not apply history or lang's commands."""
    if isinstance(error, NondeterminismError):
        cause, reason = _NONDETERMINISM, _Reason.NONDETERMINISM
    else:
        cause, reason = _UNHANDLED, _Reason.FATAL
    text = message_of(error)
    # Without a type, and retried by a workflow's retry policy where it fails the workflow.
    failure = Failure(
        message=text,
        stack_trace=traceback_of(error),
        application_failure_info=ApplicationFailureInfo(),
    )
    message = f"Workflow activation completion failed: {text}"
    return Verdict(
        failure,
        cause,
        Eviction(message, reason if in_completion else _Reason.UNSPECIFIED),
        in_completion=in_completion,
    )


def history_missing(text: str) -> Verdict:
    """A page of history cannot be had."""
    message = f"Fetching history failed: {text}"
    return Verdict(
        Failure(message=message),
        _UNHANDLED,
        Eviction(message, _Reason.PAGINATION_OR_HISTORY_FETCH),
        in_completion=False,
    )


def refused(problem: Problem) -> Eviction:
    """The server did not take the answer of a workflow task."""
    message, reason = _REFUSALS.get(problem.kind, _OTHER_REFUSAL)
    return Eviction(f"{message}: {problem.text}", reason)


_TOO_LARGE: Final = ("Workflow task completion is too large", _Reason.FATAL)
_REFUSALS: Final[dict[ProblemKind, tuple[str, EvictionReason]]] = {
    ProblemKind.UNHANDLED_COMMAND: (
        "Workflow task completion was refused because of new events",
        _Reason.UNHANDLED_COMMAND,
    ),
    ProblemKind.NOT_FOUND: ("Workflow task not found", _Reason.TASK_NOT_FOUND),
    ProblemKind.GRPC_MESSAGE_TOO_LARGE: _TOO_LARGE,
    ProblemKind.PAYLOADS_TOO_LARGE: _TOO_LARGE,
    ProblemKind.REQUEST_TOO_LARGE: _TOO_LARGE,
}
_OTHER_REFUSAL: Final = ("Error reporting WFT to server", _Reason.FATAL)
