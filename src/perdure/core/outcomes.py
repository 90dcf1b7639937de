"""What goes into the workflow stream and what comes out of it, as frozen records.

The stream is a pure function `(state, input) -> actions`: it never waits, never looks at a clock
and never talks to a server. This module is the whole contract between the stream and the shell
around it (polls, RPCs, timers, local activities, slots):

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1.workflow_pb2 import VersioningBehavior
from temporalio.api.history.v1.message_pb2 import History
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    PollWorkflowTaskQueueResponse,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    RemoveFromCache,
    WorkflowActivation,
)
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    WorkflowActivationCompletion,
)

if TYPE_CHECKING:
    from perdure.core.evidence import CallSite
    from perdure.core.local_activities.requests import LocalRequest, LocalResult

__all__ = [
    "Action",
    "BuildId",
    "CancelAllLocalActivities",
    "ClearHeartbeat",
    "CompleteTask",
    "Completed",
    "Counted",
    "DeploymentVersion",
    "EvictionRequested",
    "FailTask",
    "FetchPage",
    "Finished",
    "ForgetLocalActivities",
    "HeartbeatDue",
    "Input",
    "LangActivation",
    "LocalCancelsDelivered",
    "LocalResolved",
    "Measured",
    "NewTask",
    "PageFetchFailed",
    "PageFetched",
    "PollersStopped",
    "Problem",
    "ProblemKind",
    "ReleasePermit",
    "Reported",
    "RespondQuery",
    "RunLocalActivities",
    "RunRemoved",
    "SetHeartbeat",
    "ShutdownRequested",
    "StreamSettings",
    "TaskOver",
    "Versioning",
]

EvictionReason: TypeAlias = RemoveFromCache.EvictionReason.ValueType


# --- What the stream is told about its worker ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class BuildId:
    """A worker known only by its build id; `use_for_versioning` is the older, build-id-based way
    to route tasks."""

    build_id: str
    use_for_versioning: bool = False


@dataclass(frozen=True, slots=True)
class DeploymentVersion:
    """A worker that belongs to a version of a deployment."""

    deployment_name: str
    build_id: str
    use_worker_versioning: bool = False
    default_versioning_behavior: VersioningBehavior.ValueType = (
        VersioningBehavior.VERSIONING_BEHAVIOR_UNSPECIFIED
    )


Versioning: TypeAlias = BuildId | DeploymentVersion


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of the worker that matter to workflows.

    `sticky_queue` is None when nothing is cached between tasks. `max_eager_activities` is 0 when
    activities must not start eagerly. `has_sdk_metadata` is the server's capability of that name.
    A server without `server_knows_build_ids` gets the build as a checksum of the program.
    `evict_after_replay` makes every run leave the cache once it has been replayed.
    """

    namespace: str
    task_queue: str
    identity: str
    max_cached_workflows: int = 1000
    sticky_queue: str | None = None
    sticky_schedule_to_start_timeout: float = 10.0
    versioning: Versioning = field(default_factory=lambda: BuildId(""))
    has_sdk_metadata: bool = True
    max_eager_activities: int = 3
    fail_workflow_on_nondeterminism: bool = False
    fail_workflow_on_nondeterminism_types: frozenset[str] = frozenset()
    ignore_evictions_on_shutdown: bool = False
    evict_after_replay: bool = False
    worker_instance_key: str = ""
    server_knows_build_ids: bool = True
    sdk_name: str = "temporal-python"
    sdk_version: str = ""


# --- Inputs -------------------------------------------------------------------------------------


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


# --- Actions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LangActivation:
    """Hand this to lang at its next poll."""

    activation: WorkflowActivation


@dataclass(frozen=True, slots=True)
class CompleteTask:
    """Answer the workflow task.

    `eager` are the commands in `request` that ask for an eager start: the shell reserves an
    activity slot for each, and turns `request_eager_execution` off where it gets none. The shell
    also adds the count of repeated local activity attempts to `metering_metadata`.
    """

    run_id: str
    request: RespondWorkflowTaskCompletedRequest
    eager: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class FailTask:
    """Fail the workflow task.

    `unstored` means that its run never came into the cache: nobody waits for a `Reported`.
    """

    run_id: str
    request: RespondWorkflowTaskFailedRequest
    unstored: bool = False


@dataclass(frozen=True, slots=True)
class RespondQuery:
    """Answer a query that came alone, outside of a workflow task."""

    run_id: str
    request: RespondQueryTaskCompletedRequest


@dataclass(frozen=True, slots=True)
class FetchPage:
    """Get one page of history; an empty token asks for the first one.

    `fetch` is unique within the stream: several may be under way, also for one run.
    """

    fetch: int
    workflow_id: str
    run_id: str
    token: bytes


@dataclass(frozen=True, slots=True)
class RunLocalActivities:
    """Requests for the local activity manager, in order: new ones and cancellations."""

    run_id: str
    requests: tuple[LocalRequest, ...]


@dataclass(frozen=True, slots=True)
class CancelAllLocalActivities:
    """The run is to leave the cache: cancel what it has, answer with `LocalCancelsDelivered`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ForgetLocalActivities:
    """The run has left the cache: nothing of it may be reported any more."""

    run_id: str


@dataclass(frozen=True, slots=True)
class SetHeartbeat:
    """Feed `HeartbeatDue` at this time. Replaces the earlier one of the run."""

    run_id: str
    task_token: bytes
    at: float


@dataclass(frozen=True, slots=True)
class ClearHeartbeat:
    """The run's heartbeat is not needed any more."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ReleasePermit:
    """The workflow task that came with this permit is over, or was dropped."""

    permit: object


@dataclass(frozen=True, slots=True)
class RunRemoved:
    """The run has left the cache; lang has answered its eviction."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Counted:
    """One more of the metric `name`, e.g. `sticky_cache_hit`; `reason` is its failure reason."""

    name: str
    workflow_type: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A duration of the metric `name` ends now; it began at `since`, by the monotonic clock, or by
    the wall clock (seconds since 1970) if history says when that was."""

    name: str
    workflow_type: str
    since: float
    by_wall_clock: bool = False


@dataclass(frozen=True, slots=True)
class TaskOver:
    """A workflow task, or a lone query, is over, whatever became of it; it came at `since`, by the
    monotonic clock.

    `event_id` is the event that ends the task if it went well, `history_size` in bytes what the
    server said of it.
    """

    run_id: str
    workflow_type: str
    since: float
    event_id: int
    attempt: int
    history_size: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Shutdown is complete: no run has work left. Always the last action."""


Action: TypeAlias = (
    LangActivation
    | CompleteTask
    | FailTask
    | RespondQuery
    | FetchPage
    | RunLocalActivities
    | CancelAllLocalActivities
    | ForgetLocalActivities
    | SetHeartbeat
    | ClearHeartbeat
    | ReleasePermit
    | RunRemoved
    | Counted
    | Measured
    | TaskOver
    | Finished
)
