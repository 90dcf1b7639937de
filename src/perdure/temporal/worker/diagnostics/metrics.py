"""What one worker counts, measures and shows, under the names and labels of the compiled core.

One method per fact that a part of the worker knows; names, labels and units are decided here and
in `telemetry.core_metrics` only. All durations are in seconds. Without metrics in the runtime every
method does nothing.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from perdure.core.actions import Counted
from perdure.core.activities.events import ActivityOver
from perdure.core.activities.reports import ActivityOutcome
from perdure.core.local_activities.requests import AttemptOver, LocalOutcome
from perdure.temporal.telemetry.core_metrics import CoreMetrics

__all__ = ["SILENT", "PollMetrics", "WorkerMetrics", "seconds_between"]

_WORKER_TYPES: Final = {
    "workflow": "WorkflowWorker",
    "activity": "ActivityWorker",
    "local-activity": "LocalActivityWorker",
    "nexus": "NexusWorker",
}

_ACTIVITY_ERROR: Final = "ActivityError"

_POLLS: Final = {
    "workflow_task": ("workflow_task_queue_poll_succeed", "workflow_task_queue_poll_empty"),
    "sticky_workflow_task": ("workflow_task_queue_poll_succeed", "workflow_task_queue_poll_empty"),
    "activity_task": ("", "activity_poll_no_task"),
    "nexus_task": ("", "nexus_poll_no_task"),
}
"""By type of poller, what is counted for a poll with a task and for one without."""


def seconds_between(since: Timestamp, until: Timestamp) -> float:
    """What is measured with times that are out of range is nonsense, but breaks nothing."""
    return until.seconds - since.seconds + (until.nanos - since.nanos) / 1e9


class PollMetrics:
    """The polls of one type of one worker."""

    __slots__ = ("_active", "_empty", "_pollers", "_succeeded", "_worker")

    def __init__(self, worker: CoreMetrics, poller_type: str) -> None:
        self._worker = worker
        self._pollers = worker.labelled(poller_type=poller_type)
        self._succeeded, self._empty = _POLLS[poller_type]
        self._active = 0

    def began(self) -> None:
        """A poll is under way from now on."""
        self._active += 1
        self._pollers.show("num_pollers", self._active)

    def ended(self) -> None:
        """A poll is over, whatever became of it."""
        self._active -= 1
        self._pollers.show("num_pollers", self._active)

    def answered(self, *, with_task: bool) -> None:
        """The server answered a poll."""
        name = self._succeeded if with_task else self._empty
        if name:
            self._worker.count(name)


class WorkerMetrics:
    """The metrics of one worker; see the module. `worker` carries the labels of the worker."""

    def __init__(self, worker: CoreMetrics) -> None:
        self._worker = worker

    def worker_started(self) -> None:
        """The worker exists."""
        self._worker.count("worker_start")

    def polls(self, poller_type: str) -> PollMetrics:
        """`workflow_task`, `sticky_workflow_task`, `activity_task` or `nexus_task`."""
        return PollMetrics(self._worker, poller_type)

    def slots(self, kind: str, used: int, available: int | None) -> None:
        """How many slots have a task now, and how many have none if that has a bound.

        `kind` is the one of `SlotReserveCtx`. A slot that waits for its task counts as available.
        """
        slots = self._worker.labelled(worker_type=_WORKER_TYPES[kind])
        if available is not None:
            slots.show("worker_task_slots_available", available)
        slots.show("worker_task_slots_used", used)

    # Workflows

    def workflow_counted(self, counted: Counted) -> None:
        """What the workflow stream counts."""
        metrics = self._worker
        if counted.workflow_type:
            metrics = metrics.labelled(workflow_type=counted.workflow_type)
        if counted.reason:
            metrics = metrics.labelled(failure_reason=counted.reason)
        metrics.count(counted.name)

    def workflow_measured(self, name: str, workflow_type: str, seconds: float) -> None:
        """What the workflow stream measures."""
        self._worker.labelled(workflow_type=workflow_type).took(name, seconds)

    def workflow_task_received(self, schedule_to_start: float) -> None:
        """A poll brought a workflow task that the server had kept so long."""
        self._worker.took("workflow_task_schedule_to_start_latency", schedule_to_start)

    def cache_size(self, runs: int) -> None:
        """So many runs are in the cache now."""
        self._worker.show("sticky_cache_size", runs)

    # Activities

    def activity_received(
        self, activity_type: str, workflow_type: str, *, eager: bool, waited: float
    ) -> None:
        """A task came from a poll, or eagerly with a workflow task; the server had kept it so
        long."""
        kind = self._activity(activity_type, workflow_type)
        kind.labelled(eager=eager).count("activity_task_received")
        self._worker.took("activity_schedule_to_start_latency", waited)

    def activity_ended(self, over: ActivityOver, since_scheduled: float) -> None:
        """Lang is done with the task, and the server knows or does not care."""
        kind = self._activity(over.activity_type, over.workflow_type)
        kind.took("activity_execution_latency", over.ended - over.began)
        if over.outcome is ActivityOutcome.COMPLETED and over.accepted:
            kind.took("activity_succeed_endtoend_latency", since_scheduled)
        elif over.outcome is ActivityOutcome.FAILED and not over.benign:
            failed = kind.labelled(failure_reason=_ACTIVITY_ERROR)
            failed.count("activity_execution_failed")

    def local_activity_started(self, activity_type: str, workflow_type: str) -> None:
        """Lang gets an attempt."""
        self._activity(activity_type, workflow_type).count("local_activity_total")

    def local_activity_ended(self, over: AttemptOver) -> None:
        """An attempt ended, for lang or because of its time-out."""
        kind = self._activity(over.activity_type, over.workflow_type)
        kind.took("local_activity_execution_latency", over.runtime)
        if over.outcome is LocalOutcome.COMPLETED:
            kind.took("local_activity_succeed_endtoend_latency", over.since_scheduled)
        elif over.outcome is LocalOutcome.CANCELLED:
            kind.count("local_activity_execution_cancelled")
        elif not over.benign:
            timed_out = over.outcome is LocalOutcome.TIMED_OUT
            failed = kind.labelled(failure_reason="timeout" if timed_out else _ACTIVITY_ERROR)
            failed.count("local_activity_execution_failed")

    def _activity(self, activity_type: str, workflow_type: str) -> CoreMetrics:
        return self._worker.labelled(activity_type=activity_type, workflow_type=workflow_type)

    # Nexus

    def nexus_task_received(self, schedule_to_start: float | None) -> None:
        """A Nexus task came, so long after its caller's request reached the server (its scheduled
        time, if it says one)."""
        if schedule_to_start is not None:
            self._worker.took("nexus_task_schedule_to_start_latency", schedule_to_start)

    def nexus_task_ended(self, execution: float, *, failure_reason: str = "") -> None:
        """Lang answered, or the task timed out, so long after it came.

        `failure_reason` is one of `operation_failed`, `operation_canceled`, `timeout`,
        `handler_error_<TYPE>` and `internal_sdk_error`, empty when the handler answered.
        """
        if failure_reason:
            failed = self._worker.labelled(failure_reason=failure_reason)
            failed.count("nexus_task_execution_failed")
        self._worker.took("nexus_task_execution_latency", execution)

    def nexus_task_answered(self, end_to_end: float) -> None:
        """The server has the answer, so long after the task's scheduled time."""
        self._worker.took("nexus_task_endtoend_latency", end_to_end)


SILENT: Final = WorkerMetrics(CoreMetrics(None, ""))
"""Metrics that go nowhere."""
