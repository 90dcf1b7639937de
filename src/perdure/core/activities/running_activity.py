"""One activity task that is not over."""

from __future__ import annotations

from temporalio.bridge.proto.activity_result.activity_result_pb2 import ActivityExecutionResult
from temporalio.bridge.proto.activity_task.activity_task_pb2 import (
    ActivityCancelReason,
    ActivityTask,
)

from perdure.core.activities.heartbeat_throttle import HeartbeatThrottle, heartbeat_interval
from perdure.core.activities.reports import ActivitySettings
from perdure.core.durations import seconds

__all__ = ["RunningActivity"]


class RunningActivity:
    """From the poll to the answer of its report."""

    __slots__ = (
        "activity_type",
        "began",
        "cancel_task",
        "ended",
        "heartbeat_timeout",
        "interval",
        "interval_is_over",
        "permit",
        "result",
        "scheduled",
        "sending",
        "server_knows",
        "start",
        "start_to_close",
        "throttle",
        "token",
        "workflow_type",
    )

    def __init__(
        self, start: ActivityTask, permit: object, settings: ActivitySettings, now: float
    ) -> None:
        self.token = start.task_token
        self.start: ActivityTask | None = start
        self.activity_type = start.start.activity_type
        self.workflow_type = start.start.workflow_type
        stamp = start.start.scheduled_time
        self.scheduled = seconds(stamp)
        self.permit = permit
        self.began = now
        self.ended = now
        self.start_to_close = seconds(start.start.start_to_close_timeout)
        self.heartbeat_timeout = seconds(start.start.heartbeat_timeout)
        self.interval = heartbeat_interval(
            self.heartbeat_timeout,
            default=settings.default_heartbeat_throttle,
            maximum=settings.max_heartbeat_throttle,
        )
        self.throttle = HeartbeatThrottle()
        self.sending = False
        self.interval_is_over = False
        self.cancel_task: ActivityTask | None = None
        self.server_knows = True
        self.result: ActivityExecutionResult | None = None

    @property
    def taken(self) -> bool:
        """Lang has it. Its input is not kept any longer."""
        return self.start is None

    @property
    def stopped_by_shutdown(self) -> bool:
        """Lang was told to stop because the worker does."""
        told = self.cancel_task
        return told is not None and told.cancel.reason == ActivityCancelReason.WORKER_SHUTDOWN
