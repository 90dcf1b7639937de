"""The metrics of the core itself: their names, kinds, texts and buckets, and how they are recorded.

`CATALOGUE` is the whole list; what is not in it cannot be recorded. `CoreMetrics` is a meter with
labels: it makes each instrument once and each set of labels once, because whoever drains a buffer
recognises both by identity. Without metrics in the runtime it does nothing, at the price of a test.

Durations are given in seconds and recorded in whole milliseconds, as the compiled core does; what
exports them decides about the unit that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from perdure.temporal.telemetry.metrics import (
    COUNTER,
    DURATION,
    GAUGE,
    HISTOGRAM,
    Attributes,
    Instrument,
    MetricAttributesRef,
    MetricMeterRef,
)

__all__ = ["CATALOGUE", "GENERAL_BUCKETS", "CoreMetric", "CoreMetrics", "Label"]

Label = str | int | float | bool

GENERAL_BUCKETS: Final = (50.0, 100.0, 500.0, 1000.0, 2500.0, 10000.0)
_TASK: Final = (1.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_ACTIVITY: Final = (50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, 60000.0)
_SCHEDULE: Final = (100.0, 500.0, 1000.0, 5000.0, 10000.0, 100000.0, 1000000.0)
_WORKFLOW: Final = (
    *(100.0, 500.0, 1000.0, 1500.0, 2000.0, 5000.0, 10000.0, 30000.0, 60000.0, 120000.0),
    *(300000.0, 600000.0, 1800000.0, 3600000.0, 30600000.0, 86400000.0),
)


@dataclass(frozen=True, slots=True)
class CoreMetric:
    """One metric; `buckets` are upper bounds in milliseconds, of a distribution of durations."""

    kind: int
    description: str | None
    buckets: tuple[float, ...] = GENERAL_BUCKETS


def _count(description: str) -> CoreMetric:
    return CoreMetric(COUNTER, description)


def _gauge(description: str | None) -> CoreMetric:
    return CoreMetric(GAUGE, description)


def _latency(description: str, buckets: tuple[float, ...] = GENERAL_BUCKETS) -> CoreMetric:
    return CoreMetric(HISTOGRAM, description, buckets)


CATALOGUE: Final[Mapping[str, CoreMetric]] = {
    "request": _count("Count of client request successes by rpc name"),
    "request_failure": _count("Count of client request failures by rpc name"),
    "request_latency": _latency("Histogram of client request latencies"),
    "long_request": _count("Count of long-poll request successes by rpc name"),
    "long_request_failure": _count("Count of long-poll request failures by rpc name"),
    "long_request_latency": _latency("Histogram of client long-poll request latencies"),
    "worker_start": _count("Count of the number of initialized workers"),
    "num_pollers": _gauge("Current number of active pollers per queue type"),
    "worker_task_slots_available": _gauge("Current number of available slots per task type"),
    "worker_task_slots_used": _gauge("Current number of used slots per task type"),
    "sticky_cache_hit": _count(
        "Count of times the workflow cache was used for a new workflow task"
    ),
    "sticky_cache_miss": _count(
        "Count of times the workflow cache was missing a workflow for a sticky task"
    ),
    "sticky_cache_size": _gauge("Current number of cached workflows"),
    "sticky_cache_total_forced_eviction": _count("Count of evictions of cached workflows"),
    "workflow_completed": _count("Count of successfully completed workflows"),
    "workflow_canceled": _count("Count of canceled workflows"),
    "workflow_failed": _count("Count of failed workflows"),
    "workflow_continue_as_new": _count("Count of continued-as-new workflows"),
    "workflow_endtoend_latency": _latency(
        "Histogram of total workflow execution latencies", _WORKFLOW
    ),
    "workflow_task_queue_poll_empty": _count(
        "Count of workflow task queue poll timeouts (no new task)"
    ),
    "workflow_task_queue_poll_succeed": _count("Count of workflow task queue poll successes"),
    "workflow_task_execution_failed": _count("Count of workflow task execution failures"),
    "workflow_task_schedule_to_start_latency": _latency(
        "Histogram of workflow task schedule-to-start latencies", _SCHEDULE
    ),
    "workflow_task_replay_latency": _latency("Histogram of workflow task replay latencies", _TASK),
    "workflow_task_execution_latency": _latency(
        "Histogram of workflow task execution (not replay) latencies", _TASK
    ),
    "activity_poll_no_task": _count("Count of activity task queue poll timeouts (no new task)"),
    "activity_task_received": _count("Count of activity task queue poll successes"),
    "activity_execution_failed": _count("Count of activity task execution failures"),
    "activity_schedule_to_start_latency": _latency(
        "Histogram of activity schedule-to-start latencies", _SCHEDULE
    ),
    "activity_execution_latency": _latency("Histogram of activity execution latencies", _ACTIVITY),
    "activity_succeed_endtoend_latency": _latency(
        "Histogram of activity execution latencies for successful activities"
    ),
    "local_activity_total": _count("Count of local activities executed"),
    "local_activity_execution_failed": _count("Count of local activity executions that failed"),
    "local_activity_execution_cancelled": _count(
        "Count of local activity executions that were cancelled"
    ),
    "local_activity_execution_latency": _latency("Histogram of local activity execution latencies"),
    "local_activity_succeed_endtoend_latency": _latency(
        "Histogram of local activity execution latencies for successful local activities"
    ),
    "nexus_poll_no_task": _count("Count of nexus task queue poll timeouts (no new task)"),
    "nexus_task_schedule_to_start_latency": _latency(
        "Histogram of nexus task schedule-to-start latencies", _SCHEDULE
    ),
    "nexus_task_endtoend_latency": _latency("Histogram of nexus task end-to-end latencies"),
    "nexus_task_execution_latency": _latency("Histogram of nexus task execution latencies"),
    "nexus_task_execution_failed": _count("Count of nexus task execution failures"),
    "resource_slots_mem_usage": _gauge(None),
    "resource_slots_cpu_usage": _gauge(None),
    "resource_slots_mem_pid_output": _gauge(None),
    "resource_slots_cpu_pid_output": _gauge(None),
}
"""Every metric of the core by its name without prefix."""


class CoreMetrics:
    """Records metrics of `CATALOGUE` under one set of labels; see the module."""

    __slots__ = ("_attributes", "_instruments", "_labelled", "_meter", "_prefix")

    def __init__(
        self,
        meter: MetricMeterRef | None,
        prefix: str,
        labels: Mapping[str, Label] | None = None,
        instruments: dict[str, Instrument] | None = None,
    ) -> None:
        self._meter = meter
        self._prefix = prefix
        defaults: Attributes = {} if meter is None else meter.default_attributes.values
        self._attributes = MetricAttributesRef({**defaults, **(labels or {})})
        self._instruments: dict[str, Instrument] = {} if instruments is None else instruments
        self._labelled: dict[tuple[tuple[str, Label], ...], CoreMetrics] = {}

    @property
    def enabled(self) -> bool:
        """False if nothing that is recorded goes anywhere."""
        return self._meter is not None

    def labelled(self, **labels: Label) -> CoreMetrics:
        """The same metrics with more labels; the same object for the same labels."""
        if self._meter is None:
            return self
        key = tuple(labels.items())
        found = self._labelled.get(key)
        if found is None:
            more = {**self._attributes.values, **labels}
            found = CoreMetrics(self._meter, self._prefix, more, self._instruments)
            self._labelled[key] = found
        return found

    def count(self, name: str, amount: int = 1) -> None:
        """So many more of a counter."""
        if self._meter is not None:
            self._instrument(name).update(amount, self._attributes)

    def took(self, name: str, seconds: float) -> None:
        """One more duration; a clock that went backwards counts as no time at all."""
        if self._meter is not None:
            self._instrument(name).update(int(max(0.0, seconds) * 1000), self._attributes)

    def show(self, name: str, value: float) -> None:
        """The value of a gauge from now on."""
        if self._meter is not None:
            self._instrument(name).update(value, self._attributes)

    def _instrument(self, name: str) -> Instrument:
        instrument = self._instruments.get(name)
        if instrument is None:
            instrument = self._instruments[name] = self._new_instrument(name)
        return instrument

    def _new_instrument(self, name: str) -> Instrument:
        assert self._meter is not None
        metric, shown = CATALOGUE[name], f"{self._prefix}{name}"
        if metric.kind == COUNTER:
            return self._meter.new_counter(shown, metric.description)
        if metric.kind == HISTOGRAM:
            return self._meter.new_histogram_duration(shown, metric.description, DURATION)
        return self._meter.new_gauge_float(shown, metric.description)
