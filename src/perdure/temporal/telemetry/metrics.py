"""Metrics of the core and of SDK users: instruments that feed one sink.

A sink is the buffer the SDK drains, or what a Prometheus endpoint shows. Instruments may be used
from any thread. Attribute sets are dictionaries made once and passed by reference, because the SDK
recognises metrics and attribute sets by identity.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from perdure.temporal.telemetry.logs import Log

__all__ = [
    "Attributes",
    "BufferSink",
    "BufferedMetric",
    "BufferedMetricUpdate",
    "Instrument",
    "MetricAttributesRef",
    "MetricCounterRef",
    "MetricGaugeFloatRef",
    "MetricGaugeRef",
    "MetricHistogramDurationRef",
    "MetricHistogramFloatRef",
    "MetricHistogramRef",
    "MetricMeterRef",
    "Sink",
]

Attributes = Mapping[str, str | int | float | bool]

COUNTER, GAUGE, HISTOGRAM = 0, 1, 2

DURATION = "duration"
"""The unit of durations that a buffer shows as `s` or `ms`; users may give another one."""


class BufferedMetric:
    """What is measured; `kind` is 0 counter, 1 gauge, 2 histogram."""

    __slots__ = ("description", "duration", "kind", "name", "unit")

    def __init__(
        self,
        name: str,
        description: str | None,
        unit: str | None,
        kind: int,
        *,
        duration: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.unit = unit
        self.kind = kind
        self.duration = duration


class BufferedMetricUpdate:
    """One value: a delta of a counter, a value of the others."""

    __slots__ = ("attributes", "metric", "value")

    def __init__(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None:
        self.metric = metric
        self.value = value
        self.attributes = attributes


class Sink(Protocol):
    """Takes every update; durations arrive in milliseconds."""

    def update(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None: ...


class BufferSink:
    """Keeps updates until the SDK takes them; a full buffer drops, and says so once until then."""

    def __init__(self, size: int, log: Log) -> None:
        self._size = size
        self._log = log
        self._lock = threading.Lock()
        self._updates: list[BufferedMetricUpdate] = []
        self._overflowed = False
        self._shown: dict[tuple[BufferedMetric, bool], BufferedMetric] = {}

    def update(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None:
        with self._lock:
            if len(self._updates) < self._size:
                self._updates.append(BufferedMetricUpdate(metric, value, attributes))
                return
            first, self._overflowed = not self._overflowed, True
        if first:
            self._log.write(
                40,
                "temporalio_sdk_core::telemetry::metrics",
                "The metrics buffer is full! Updates are dropped until it is drained; drain it "
                "more often",
            )

    def take(self, *, seconds: bool) -> list[BufferedMetricUpdate]:
        """All updates since the last call, durations in the asked unit."""
        with self._lock:
            updates, self._updates = self._updates, []
            self._overflowed = False
        for update in updates:
            if update.metric.duration:
                update.metric = self._in_unit(update.metric, seconds)
                update.value = update.value / 1000 if seconds else round(update.value)
        return updates

    def _in_unit(self, metric: BufferedMetric, seconds: bool) -> BufferedMetric:
        shown = self._shown.get((metric, seconds))
        if shown is None:
            unit = metric.unit
            if unit == DURATION:
                unit = "s" if seconds else "ms"
            shown = BufferedMetric(metric.name, metric.description, unit, metric.kind)
            self._shown[metric, seconds] = shown
        return shown


class MetricAttributesRef:
    """An attribute set."""

    __slots__ = ("values",)

    def __init__(self, values: Attributes) -> None:
        self.values = values

    def with_additional_attributes(
        self, meter: MetricMeterRef, new: Attributes
    ) -> MetricAttributesRef:
        del meter
        for key, value in new.items():
            if not isinstance(key, str):
                raise TypeError(f"the key of an attribute is a str, not {key!r}")
            if not isinstance(value, str | int | float | bool):
                raise TypeError(
                    f"Invalid value type for key {key}, must be str, int, float, or bool"
                )
        return MetricAttributesRef({**self.values, **new})


class Instrument:
    """One metric of a sink."""

    __slots__ = ("_metric", "_sink")

    def __init__(self, sink: Sink, metric: BufferedMetric) -> None:
        self._sink = sink
        self._metric = metric

    def update(self, value: float, attributes: MetricAttributesRef) -> None:
        self._sink.update(self._metric, value, attributes.values)


class _OfWholeNumbers(Instrument):
    """TypeError for what is no whole number, OverflowError for one that 64 bits do not hold."""

    __slots__ = ()

    def take(self, value: int, attributes: MetricAttributesRef) -> None:
        number = operator.index(value)
        if not 0 <= number < 1 << 64:
            raise OverflowError("a metric holds whole numbers from 0 to 2**64 - 1")
        self.update(number, attributes)


class _OfNumbers(Instrument):
    """TypeError for what is no number."""

    __slots__ = ()

    def take(self, value: float, attributes: MetricAttributesRef) -> None:
        self.update(float(value), attributes)


class MetricCounterRef(_OfWholeNumbers):
    """Counts up."""

    add = _OfWholeNumbers.take


class MetricHistogramRef(_OfWholeNumbers):
    """A distribution of whole numbers."""

    record = _OfWholeNumbers.take


class MetricHistogramFloatRef(_OfNumbers):
    """A distribution of numbers."""

    record = _OfNumbers.take


class MetricHistogramDurationRef(_OfWholeNumbers):
    """A distribution of durations, recorded in milliseconds."""

    record = _OfWholeNumbers.take


class MetricGaugeRef(_OfWholeNumbers):
    """A whole number that goes up and down."""

    set = _OfWholeNumbers.take


class MetricGaugeFloatRef(_OfNumbers):
    """A number that goes up and down."""

    set = _OfNumbers.take


class MetricMeterRef:
    """Makes instruments; one name gives one metric, however often it is asked for."""

    def __init__(self, sink: Sink, attributes: Attributes) -> None:
        self._sink = sink
        self._metrics: dict[tuple[Any, ...], BufferedMetric] = {}
        self.default_attributes = MetricAttributesRef(attributes)

    def new_counter(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricCounterRef:
        return MetricCounterRef(self._sink, self._metric(name, description, unit, COUNTER))

    def new_histogram(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricHistogramRef:
        return MetricHistogramRef(self._sink, self._metric(name, description, unit, HISTOGRAM))

    def new_histogram_float(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricHistogramFloatRef:
        metric = self._metric(name, description, unit, HISTOGRAM)
        return MetricHistogramFloatRef(self._sink, metric)

    def new_histogram_duration(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricHistogramDurationRef:
        metric = self._metric(name, description, unit, HISTOGRAM, duration=True)
        return MetricHistogramDurationRef(self._sink, metric)

    def new_gauge(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricGaugeRef:
        return MetricGaugeRef(self._sink, self._metric(name, description, unit, GAUGE))

    def new_gauge_float(
        self, name: str, description: str | None = None, unit: str | None = None
    ) -> MetricGaugeFloatRef:
        return MetricGaugeFloatRef(self._sink, self._metric(name, description, unit, GAUGE))

    def _metric(
        self,
        name: str,
        description: str | None,
        unit: str | None,
        kind: int,
        *,
        duration: bool = False,
    ) -> BufferedMetric:
        key = (name, description, unit, kind, duration)
        metric = self._metrics.get(key)
        if metric is None:
            metric = BufferedMetric(name, description, unit, kind, duration=duration)
            self._metrics[key] = metric
        return metric
