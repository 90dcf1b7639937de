"""What one worker counts, measures and shows, under the names and labels of the official core.

One method per fact that a part of the worker knows; names, labels and units are decided here and
in `bridge.core_metrics` only. All durations are in seconds. Without metrics in the runtime every
method does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.core.outcomes import Counted
from perdure.temporal.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from perdure.temporal.bridge.runtime import RuntimeRef

__all__ = ["WorkerMetrics"]


class WorkerMetrics:
    """The metrics of one worker; see the module."""

    def __init__(self, runtime: RuntimeRef, settings: WorkerSettings) -> None:
        self._core = runtime.core_metrics.labelled(
            namespace=settings.namespace, task_queue=settings.task_queue
        )

    def worker_started(self) -> None:
        """The worker exists."""
        self._core.count("worker_start")

    # Workflows

    def workflow_counted(self, counted: Counted) -> None:
        """What the workflow stream counts."""
        metrics = self._core
        if counted.workflow_type:
            metrics = metrics.labelled(workflow_type=counted.workflow_type)
        if counted.reason:
            metrics = metrics.labelled(failure_reason=counted.reason)
        metrics.count(counted.name)

    # Nexus

    def nexus_poll_empty(self) -> None:
        """A poll for Nexus tasks came back without one."""
        self._core.count("nexus_poll_no_task")

    def nexus_task_received(self, schedule_to_start: float | None) -> None:
        """A Nexus task came, so long after its caller's request reached the server (its scheduled
        time, if it says one)."""
        if schedule_to_start is not None:
            self._core.took("nexus_task_schedule_to_start_latency", schedule_to_start)

    def nexus_task_ended(self, execution: float, *, failure_reason: str = "") -> None:
        """Lang answered, or the task timed out, so long after it came.

        `failure_reason` is one of `operation_failed`, `operation_canceled`, `timeout`,
        `handler_error_<TYPE>` and `internal_sdk_error`, empty when the handler answered.
        """
        if failure_reason:
            self._core.labelled(failure_reason=failure_reason).count("nexus_task_execution_failed")
        self._core.took("nexus_task_execution_latency", execution)

    def nexus_task_answered(self, end_to_end: float) -> None:
        """The server has the answer, so long after the task's scheduled time."""
        self._core.took("nexus_task_endtoend_latency", end_to_end)
