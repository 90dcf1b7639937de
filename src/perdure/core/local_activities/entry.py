"""One local activity that is not over, and the tasks and failures that are made from it."""

from __future__ import annotations

import enum
import math
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1.message_pb2 import WorkflowExecution
from temporalio.api.enums.v1.common_pb2 import ApplicationErrorCategory
from temporalio.api.enums.v1.workflow_pb2 import TimeoutType
from temporalio.api.failure.v1.message_pb2 import (
    ApplicationFailureInfo,
    CanceledFailureInfo,
    Failure,
    TimeoutFailureInfo,
)
from temporalio.bridge.proto.activity_task.activity_task_pb2 import Start

from perdure.core.durations import seconds
from perdure.core.local_activities.requests import AttemptOver, LocalActivityRequest, LocalOutcome
from perdure.core.local_activities.retry import DEFAULT_POLICY

__all__ = [
    "Entry",
    "EntryKey",
    "Instant",
    "State",
    "cancelled_failure",
    "no_result_failure",
    "start_of",
    "timeout_failure",
]

_DEFAULT_RETRY_THRESHOLD: Final = 60.0
_BENIGN: Final = ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN

EntryKey: TypeAlias = tuple[str, int]
"""Run id and `seq`."""


class Instant(NamedTuple):
    """One moment on both clocks: seconds that never go back, and seconds since 1970."""

    monotonic: float
    wall: float


class State(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    BACKING_OFF = "backing off"


class Entry:
    """One local activity that is not over."""

    __slots__ = (
        "attempt",
        "cancel_requested",
        "command",
        "key",
        "lang_was_told",
        "original_schedule_time",
        "queued_at",
        "run",
        "started_at",
        "started_in_earlier_task",
        "state",
        "token",
    )

    def __init__(self, request: LocalActivityRequest, now: Instant) -> None:
        command = request.command
        self.run = request.run
        self.command = command
        self.key: EntryKey = (request.run.run_id, command.seq)
        self.attempt = max(command.attempt, 1)
        self.started_in_earlier_task = False
        self.original_schedule_time = (
            command.original_schedule_time
            if command.HasField("original_schedule_time")
            else _timestamp(now.wall)
        )
        self.state = State.QUEUED
        self.queued_at = now
        self.started_at = 0.0
        self.token = b""
        self.cancel_requested = False
        self.lang_was_told = False

    def over(
        self, outcome: LocalOutcome, now: Instant, failure: Failure | None = None
    ) -> AttemptOver:
        """The attempt under way, which ends now."""
        info = failure.application_failure_info if failure is not None else None
        return AttemptOver(
            activity_type=self.command.activity_type,
            workflow_type=self.run.workflow_type,
            outcome=outcome,
            benign=info is not None and info.category == _BENIGN,
            runtime=now.monotonic - self.started_at,
            since_scheduled=now.wall - seconds(self.original_schedule_time),
        )

    @property
    def wall_time_left(self) -> float:
        """Of the limit from schedule to close, when it was queued first."""
        spent = self.queued_at.wall - seconds(self.original_schedule_time)
        # A wall clock that was set back must not make the limit longer.
        return self.schedule_to_close - max(spent, 0.0)

    @property
    def schedule_to_close(self) -> float:
        """Seconds; 0 when there is no limit. So for the other two."""
        return seconds(self.command.schedule_to_close_timeout)

    @property
    def schedule_to_start(self) -> float:
        return _at_most(seconds(self.command.schedule_to_start_timeout), self.schedule_to_close)

    @property
    def start_to_close(self) -> float:
        return _at_most(seconds(self.command.start_to_close_timeout), self.schedule_to_close)

    @property
    def retry_threshold(self) -> float:
        """The longest wait for a retry that stays within the workflow task."""
        if self.command.HasField("local_retry_threshold"):
            return seconds(self.command.local_retry_threshold)
        return _DEFAULT_RETRY_THRESHOLD


def start_of(entry: Entry, now: Instant) -> Start:
    """The task for lang to run the next attempt."""
    command, run = entry.command, entry.run
    start = Start(
        workflow_namespace=run.namespace,
        workflow_type=run.workflow_type,
        workflow_execution=WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id),
        activity_id=command.activity_id,
        activity_type=command.activity_type,
        header_fields=command.headers,
        input=command.arguments,
        scheduled_time=entry.original_schedule_time,
        current_attempt_scheduled_time=_timestamp(entry.queued_at.wall),
        started_time=_timestamp(now.wall),
        attempt=entry.attempt,
        is_local=True,
    )
    if command.HasField("schedule_to_close_timeout"):
        start.schedule_to_close_timeout.CopyFrom(command.schedule_to_close_timeout)
    if entry.start_to_close and entry.start_to_close < (entry.schedule_to_close or math.inf):
        start.start_to_close_timeout.CopyFrom(command.start_to_close_timeout)
    elif command.HasField("schedule_to_close_timeout"):
        start.start_to_close_timeout.CopyFrom(command.schedule_to_close_timeout)
    has_policy = command.HasField("retry_policy")
    start.retry_policy.CopyFrom(command.retry_policy if has_policy else DEFAULT_POLICY)
    return start


def timeout_failure(kind: TimeoutType.ValueType) -> Failure:
    return Failure(
        message="Activity timed out", timeout_failure_info=TimeoutFailureInfo(timeout_type=kind)
    )


def cancelled_failure() -> Failure:
    return Failure(message="Activity cancelled", canceled_failure_info=CanceledFailureInfo())


def no_result_failure() -> Failure:
    """For an attempt that lang ended in a way that local activities do not have."""
    return Failure(
        message="A local activity must end with a result: it cannot be completed later by a client",
        application_failure_info=ApplicationFailureInfo(
            type="LocalActivityWithoutResult", non_retryable=True
        ),
    )


def _at_most(limit: float, most: float) -> float:
    """The smaller of two limits of which 0 means none."""
    return min(limit, most) if limit and most else limit


def _timestamp(wall: float) -> Timestamp:
    whole = math.floor(wall)
    return Timestamp(seconds=whole, nanos=int((wall - whole) * 1e9))
