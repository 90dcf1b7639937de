"""What runs ask of the worker's local activities (`tasks`), and what they get back.

A request carries lang's own command, never a copy of it: arguments may be large.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1.message_pb2 import Payload
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import ScheduleLocalActivity

from perdure.core.run_info import RunInfo

__all__ = [
    "AttemptOver",
    "CancelsDelivered",
    "LocalActivityCancel",
    "LocalActivityRequest",
    "LocalEvent",
    "LocalOutcome",
    "LocalRequest",
    "LocalResult",
    "PermitReleased",
    "Resolved",
]


@dataclass(frozen=True, slots=True)
class LocalActivityRequest:
    """Run this local activity. `command.seq` names it within the run."""

    run: RunInfo
    command: ScheduleLocalActivity


@dataclass(frozen=True, slots=True)
class LocalActivityCancel:
    """Cancel the local activity. Nothing happens if it is over."""

    run_id: str
    seq: int


LocalRequest: TypeAlias = LocalActivityRequest | LocalActivityCancel


class LocalOutcome(enum.Enum):
    """How a local activity ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LocalResult:
    """The end of a local activity, or of its attempts within this workflow task.

    `payload` belongs to COMPLETED (None when nothing was returned). `failure` is there for all
    other outcomes: for TIMED_OUT it holds TimeoutFailureInfo, for CANCELLED CanceledFailureInfo.
    `attempt` is the attempt that ended so; `runtime` the seconds it ran, None if it never did.
    With `backoff` (seconds) the activity is not over: the workflow waits that long and schedules it
    again with `attempt + 1` and `original_schedule_time`.
    """

    seq: int
    outcome: LocalOutcome
    attempt: int
    original_schedule_time: Timestamp
    payload: Payload | None = None
    failure: Failure | None = None
    runtime: float | None = None
    backoff: float | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A local activity is over, for its run."""

    run_id: str
    result: LocalResult


@dataclass(frozen=True, slots=True)
class PermitReleased:
    """The attempt that was started with this permit is over."""

    permit: object
    activity_type: str


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """Lang answered an attempt, or its time was up: for who measures.

    `runtime` and `since_scheduled` are in seconds, the latter since the workflow asked for the
    activity. `benign` belongs to failures that their author expects.
    """

    activity_type: str
    workflow_type: str
    outcome: LocalOutcome
    benign: bool
    runtime: float
    since_scheduled: float


@dataclass(frozen=True, slots=True)
class CancelsDelivered:
    """`cancel_all` of this run is done: lang was told of every cancellation."""

    run_id: str


LocalEvent: TypeAlias = Resolved | PermitReleased | AttemptOver | CancelsDelivered
