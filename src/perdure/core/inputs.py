"""What goes into the workflow stream, as frozen records; `actions` is what comes out of it.

The stream is a pure function `(state, input) -> actions`: it never waits, never looks at a clock
and never talks to a server. These two modules are the whole contract between the stream and the
shell around it (polls, RPCs, timers, local activities, slots):

* the shell feeds *inputs*, one at a time, and carries out the returned *actions* in order;
* each `FetchPage` is answered by one `PageFetched` or `PageFetchFailed` with the same `fetch`;
* each `CompleteTask`, `FailTask` and `RespondQuery` is answered by one `Reported`; until then the
  run does nothing, so a run has at most one of them under way. An `unstored` failure has no run
  that waits for it, so its end is not reported;
* each `LangActivation` is answered by lang with one completion, fed as `Completed`;
* `CancelAllLocalActivities` is answered by one `LocalCancelsDelivered` when every cancellation
  that has to reach lang was handed to it (at once, when there is none);
* after `Finished` nothing follows: polls of activations end.

Times are seconds of the shell's monotonic clock, which the stream only adds to. A `permit` is the
shell's own object for a slot; the stream carries it and gives it back in `ReleasePermit`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from temporalio.api.history.v1.message_pb2 import History
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedResponse,
)
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import RemoveFromCache
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    WorkflowActivationCompletion,
)

if TYPE_CHECKING:
    from perdure.core.evidence import CallSite
    from perdure.core.local_activities.requests import LocalResult

__all__ = [
    "Completed",
    "EvictionReason",
    "EvictionRequested",
    "HeartbeatDue",
    "Input",
    "LocalCancelsDelivered",
    "LocalResolved",
    "NewTask",
    "PageFetchFailed",
    "PageFetched",
    "PollersStopped",
    "Problem",
    "ProblemKind",
    "Reported",
    "ShutdownRequested",
]

EvictionReason: TypeAlias = RemoveFromCache.EvictionReason.ValueType


@dataclass(frozen=True, slots=True)
class NewTask:
    """A workflow task from a poll (or the eager task of a started workflow), never an empty one."""

    task: PollWorkflowTaskQueueResponse
    permit: object
    received_at: float


@dataclass(frozen=True, slots=True)
class PageFetched:
    """The answer to `FetchPage`: one page of history; an empty token means it was the last one."""

    fetch: int
    history: History
    next_page_token: bytes


@dataclass(frozen=True, slots=True)
class PageFetchFailed:
    """The answer to `FetchPage` when the server would not give the page, after retries."""

    fetch: int
    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """Lang's answer to an activation.

    `sites` are the lines of workflow code that asked for its commands, where they are known: one
    for each command. Raises `MalformedCompletion` out of the stream, changing nothing, if lang
    broke the protocol.
    """

    completion: WorkflowActivationCompletion
    sites: tuple[CallSite | None, ...] = ()


class ProblemKind(enum.Enum):
    """How an answer to the server failed, as far as the stream treats it differently."""

    NOT_FOUND = "not_found"
    UNHANDLED_COMMAND = "unhandled_command"
    GRPC_MESSAGE_TOO_LARGE = "grpc_message_too_large"
    PAYLOADS_TOO_LARGE = "payloads_too_large"
    REQUEST_TOO_LARGE = "request_too_large"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the server did not take an answer; `text` is for people."""

    kind: ProblemKind
    text: str


@dataclass(frozen=True, slots=True)
class Reported:
    """`CompleteTask`, `FailTask` or `RespondQuery` of this run is over, with or without a problem.

    `response` is the server's for `CompleteTask` and None otherwise. The shell itself takes the
    eager activity tasks out of it; the stream takes the next workflow task and the reset.
    """

    run_id: str
    received_at: float
    response: RespondWorkflowTaskCompletedResponse | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class LocalResolved:
    """A local activity of the run ended (or has to back off longer than a task may take)."""

    run_id: str
    seq: int
    result: LocalResult


@dataclass(frozen=True, slots=True)
class LocalCancelsDelivered:
    """The answer to `CancelAllLocalActivities`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The time of `SetHeartbeat` has come. Stale ones are known by their token and ignored."""

    run_id: str
    task_token: bytes


@dataclass(frozen=True, slots=True)
class EvictionRequested:
    """Somebody outside wants the run out of the cache."""

    run_id: str
    message: str
    reason: EvictionReason


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """No new work is wanted; what is under way is finished."""


@dataclass(frozen=True, slots=True)
class PollersStopped:
    """No `NewTask` from a poll will follow. `Finished` does not come before this."""


Input: TypeAlias = (
    NewTask
    | PageFetched
    | PageFetchFailed
    | Completed
    | Reported
    | LocalResolved
    | LocalCancelsDelivered
    | HeartbeatDue
    | EvictionRequested
    | ShutdownRequested
    | PollersStopped
)
