"""What a worker counts of its workflows, under the names of the official SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.core.outcomes import Counted
from perdure.temporal.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from perdure.temporal.bridge.metrics import MetricAttributesRef, MetricCounterRef
    from perdure.temporal.bridge.runtime import RuntimeRef

__all__ = ["WorkflowCounts"]


class WorkflowCounts:
    """Counters of one worker; without metrics in its runtime they do nothing."""

    def __init__(self, runtime: RuntimeRef, settings: WorkerSettings) -> None:
        self._meter = runtime.meter
        self._prefix = runtime.metric_prefix
        self._labels = {"namespace": settings.namespace, "task_queue": settings.task_queue}
        self._counters: dict[str, MetricCounterRef] = {}
        self._attributes: dict[tuple[str, str], MetricAttributesRef] = {}

    def count(self, counted: Counted) -> None:
        if self._meter is None:
            return
        counter = self._counters.get(counted.name)
        if counter is None:
            counter = self._meter.new_counter(f"{self._prefix}{counted.name}")
            self._counters[counted.name] = counter
        key = (counted.workflow_type, counted.reason)
        attributes = self._attributes.get(key)
        if attributes is None:
            labels = dict(self._labels)
            if counted.workflow_type:
                labels["workflow_type"] = counted.workflow_type
            if counted.reason:
                labels["failure_reason"] = counted.reason
            defaults = self._meter.default_attributes
            attributes = defaults.with_additional_attributes(self._meter, labels)
            self._attributes[key] = attributes
        counter.add(1, attributes)
