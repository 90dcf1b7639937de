"""The warning about workflow tasks that take long, with what storage of payloads had to do with it.

Lang says with every completion what it loaded from and stored in external storage; that is summed
up per run until its task is over.
"""

from __future__ import annotations

import os
from typing import Final

from temporalio.bridge.proto.common import ExternalStorageMetrics
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from perdure.core.actions import TaskOver
from perdure.temporal.telemetry.log_filter import WARN
from perdure.temporal.telemetry.logs import Log

__all__ = ["SlowTasks", "warning_threshold"]

_TARGET: Final = "temporalio_sdk_core::worker::workflow::managed_run"
_VARIABLE: Final = "TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS"
_THRESHOLD: Final = 5


def warning_threshold() -> int:
    """Seconds after which a task is slow; the environment may say another whole number."""
    text = os.environ.get(_VARIABLE, "")
    return int(text) if text.isdecimal() else _THRESHOLD


class _Transfer:
    """What was moved one way for one task."""

    __slots__ = ("count", "drivers", "milliseconds", "size")

    def __init__(self) -> None:
        self.count = self.size = self.milliseconds = 0
        self.drivers: set[str] = set()

    def add(self, metrics: ExternalStorageMetrics) -> None:
        self.count += metrics.payload_count
        self.size += metrics.total_size_bytes
        self.milliseconds += metrics.total_duration.ToMilliseconds()
        self.drivers.update(metrics.driver_names)

    def fields(self, name: str) -> dict[str, object]:
        return {
            f"payload_{name}_count": self.count,
            f"payload_{name}_size": self.size,
            f"payload_{name}_duration": self.milliseconds,
            f"payload_{name}_drivers": str(sorted(self.drivers)),
        }


class SlowTasks:
    """See the module."""

    __slots__ = ("_log", "_threshold", "_transfers")

    def __init__(self, log: Log, threshold: int) -> None:
        self._log = log
        self._threshold = threshold
        self._transfers: dict[str, tuple[_Transfer, _Transfer]] = {}

    def completed(self, completion: WorkflowActivationCompletion) -> None:
        """Lang answered an activation."""
        downloads = completion.HasField("payload_download_metrics")
        uploads = completion.HasField("payload_upload_metrics")
        if downloads or uploads:
            new = (_Transfer(), _Transfer())
            downloaded, uploaded = self._transfers.setdefault(completion.run_id, new)
            downloaded.add(completion.payload_download_metrics)
            uploaded.add(completion.payload_upload_metrics)

    def over(self, task: TaskOver, seconds: float) -> None:
        """A workflow task is over that took so long."""
        downloaded, uploaded = self._transfers.pop(task.run_id, (_Transfer(), _Transfer()))
        if seconds <= self._threshold:
            return
        self._log.write(
            WARN,
            _TARGET,
            f"[TMPRL1104] {task.run_id}:{task.event_id}:{task.attempt} Workflow task duration "
            f"exceeded {self._threshold} seconds.",
            workflow_type=task.workflow_type,
            event_id=task.event_id,
            attempt=task.attempt,
            workflow_task_duration=int(seconds * 1000),
            workflow_history_size=task.history_size,
            **downloaded.fields("download"),
            **uploaded.fields("upload"),
        )

    def forget(self, run_id: str) -> None:
        """The run has left the cache."""
        self._transfers.pop(run_id, None)
