"""What `tasks` wants done: RPCs to send and permits to give back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from temporalio.api.workflowservice.v1.request_response_pb2 import (
    RecordActivityTaskHeartbeatRequest,
)

from perdure.core.activities.reports import ActivityOutcome, ActivityRequest

__all__ = [
    "ActivityEvent",
    "ActivityOver",
    "HeartbeatAnswer",
    "PermitUnused",
    "RecordHeartbeat",
    "ReportResult",
]


@dataclass(frozen=True, slots=True)
class RecordHeartbeat:
    """Send this; answer with `heartbeat_answered`."""

    token: bytes
    request: RecordActivityTaskHeartbeatRequest


@dataclass(frozen=True, slots=True)
class ReportResult:
    """Send this; answer with `reported`, whatever became of it."""

    token: bytes
    request: ActivityRequest


@dataclass(frozen=True, slots=True)
class ActivityOver:
    """The task is done with, and its permit free.

    `began` and `ended` are when the task came and when lang answered it, on the monotonic clock;
    `scheduled` is when its workflow scheduled it, in seconds since 1970. `accepted` is true if the
    server took the report.
    """

    permit: object
    activity_type: str
    workflow_type: str
    scheduled: float
    outcome: ActivityOutcome
    benign: bool
    began: float
    ended: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class PermitUnused:
    """No task came for this permit."""

    permit: object


ActivityEvent: TypeAlias = RecordHeartbeat | ReportResult | ActivityOver | PermitUnused


class HeartbeatAnswer(enum.Enum):
    """What became of a heartbeat that the server did not take."""

    NOT_FOUND = "not found"
    FAILED = "failed"
    TOO_LARGE = "too large"
    """Its details were too large to be sent; the activity was reported as failed instead."""
