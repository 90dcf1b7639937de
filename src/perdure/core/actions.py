"""What the workflow stream wants done, as frozen records; see `inputs` for the whole contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import WorkflowActivation

if TYPE_CHECKING:
    from perdure.core.local_activities.requests import LocalRequest

__all__ = [
    "Action",
    "CancelAllLocalActivities",
    "ClearHeartbeat",
    "CompleteTask",
    "Counted",
    "FailTask",
    "FetchPage",
    "Finished",
    "ForgetLocalActivities",
    "LangActivation",
    "Measured",
    "ReleasePermit",
    "RespondQuery",
    "RunLocalActivities",
    "RunRemoved",
    "SetHeartbeat",
    "TaskOver",
]


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
