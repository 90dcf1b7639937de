"""The failures that the core itself makes up for lang, in the shapes the official SDKs expect.

Each function fills a failure in place: it is always a part of a bigger message, and failures can
carry payloads too large to copy twice.
"""

from __future__ import annotations

from temporalio.api.enums.v1 import RetryState
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.history.v1.message_pb2 import (
    ActivityTaskCanceledEventAttributes,
    ActivityTaskFailedEventAttributes,
    ActivityTaskTimedOutEventAttributes,
)

__all__ = [
    "ActivityIdentity",
    "ChildIdentity",
    "activity_cancelled",
    "activity_failed",
    "activity_timed_out",
    "local_activity_cancelled",
    "local_activity_timed_out",
]


class ActivityIdentity:
    """What every failure of one activity says about it."""

    __slots__ = ("activity_id", "activity_type", "scheduled_event_id", "started_event_id")

    def __init__(self, activity_id: str, activity_type: str) -> None:
        self.activity_id = activity_id
        self.activity_type = activity_type
        self.scheduled_event_id = 0
        self.started_event_id = 0

    def put_on(
        self, failure: Failure, retry_state: RetryState.ValueType, identity: str = ""
    ) -> None:
        info = failure.activity_failure_info
        info.activity_id = self.activity_id
        info.activity_type.name = self.activity_type
        info.scheduled_event_id = self.scheduled_event_id
        info.started_event_id = self.started_event_id
        info.identity = identity
        info.retry_state = retry_state


class ChildIdentity:
    """What every failure of one child workflow says about it; the run id is empty until it is
    known."""

    __slots__ = (
        "initiated_event_id",
        "namespace",
        "run_id",
        "started_event_id",
        "workflow_id",
        "workflow_type",
    )

    def __init__(self, namespace: str, workflow_id: str, workflow_type: str) -> None:
        self.namespace = namespace
        self.workflow_id = workflow_id
        self.workflow_type = workflow_type
        self.run_id = ""
        self.initiated_event_id = 0
        self.started_event_id = 0

    def put_on(self, failure: Failure, retry_state: RetryState.ValueType) -> None:
        info = failure.child_workflow_execution_failure_info
        info.namespace = self.namespace
        info.workflow_execution.workflow_id = self.workflow_id
        info.workflow_execution.run_id = self.run_id
        info.workflow_type.name = self.workflow_type
        info.initiated_event_id = self.initiated_event_id
        info.started_event_id = self.started_event_id
        info.retry_state = retry_state


def activity_failed(
    failure: Failure, activity: ActivityIdentity, event: ActivityTaskFailedEventAttributes
) -> None:
    failure.message = "Activity task failed"
    if event.HasField("failure"):
        failure.cause.CopyFrom(event.failure)
    activity.put_on(failure, event.retry_state, event.identity)


def activity_timed_out(
    failure: Failure, activity: ActivityIdentity, event: ActivityTaskTimedOutEventAttributes
) -> None:
    failure.message = "Activity task timed out"
    if event.HasField("failure"):
        failure.cause.CopyFrom(event.failure)
    activity.put_on(failure, event.retry_state)


def activity_cancelled(
    failure: Failure,
    activity: ActivityIdentity,
    event: ActivityTaskCanceledEventAttributes | None = None,
) -> None:
    """Without an event: cancelled by the core, without waiting for the activity, and so without
    naming its events."""
    failure.message = "Activity cancelled"
    cancelled = failure.cause.canceled_failure_info
    cancelled.SetInParent()
    if event is not None and event.HasField("details"):
        cancelled.details.CopyFrom(event.details)
    activity.put_on(
        failure,
        RetryState.RETRY_STATE_CANCEL_REQUESTED,
        event.identity if event is not None else "",
    )
    if event is None:
        failure.activity_failure_info.scheduled_event_id = 0
        failure.activity_failure_info.started_event_id = 0


def local_activity_cancelled(
    failure: Failure, activity: ActivityIdentity, cause: Failure | None
) -> None:
    """Without a cause: cancelled before or without asking whoever runs it."""
    failure.message = "Local Activity cancelled"
    if cause is not None:
        failure.cause.CopyFrom(cause)
    else:
        failure.cause.message = "Activity cancelled"
        failure.cause.canceled_failure_info.SetInParent()
    activity.put_on(failure, RetryState.RETRY_STATE_CANCEL_REQUESTED)


def local_activity_timed_out(failure: Failure, activity: ActivityIdentity, cause: Failure) -> None:
    failure.message = "Local Activity timed out"
    failure.cause.CopyFrom(cause)
    activity.put_on(failure, RetryState.RETRY_STATE_CANCEL_REQUESTED)
