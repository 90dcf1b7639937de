"""Counts and latencies of the calls to the server."""

from __future__ import annotations

import time
from typing import Final

from perdure.temporal.bridge.metrics import (
    MetricAttributesRef,
    MetricCounterRef,
    MetricHistogramDurationRef,
    MetricMeterRef,
)

__all__ = ["RequestMetrics", "RequestRecord"]

_CODES: Final = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]


class RequestMetrics:
    """The request instruments of one runtime; without a meter they do nothing."""

    def __init__(self, meter: MetricMeterRef | None, prefix: str) -> None:
        self._meter = meter
        if meter is None:
            return
        self._instruments = {
            long: (
                meter.new_counter(f"{prefix}{name}"),
                meter.new_counter(f"{prefix}{name}_failure"),
                meter.new_histogram_duration(f"{prefix}{name}_latency"),
            )
            for long, name in ((False, "request"), (True, "long_request"))
        }

    def start(self, operation: str, namespace: str | None, *, long: bool) -> RequestRecord:
        """Count a call that begins now."""
        if self._meter is None:
            return _SILENT
        more = {"operation": operation, **({"namespace": namespace} if namespace else {})}
        attributes = self._meter.default_attributes.with_additional_attributes(self._meter, more)
        return _Recording(self._meter, attributes, *self._instruments[long])


class RequestRecord:
    """One call that nobody measures."""

    __slots__ = ()

    def failed(self, code: int) -> None:
        """An attempt ended with this gRPC code."""

    def succeeded(self) -> None:
        """The call was answered."""


_SILENT = RequestRecord()


class _Recording(RequestRecord):
    __slots__ = ("_attributes", "_count", "_failures", "_latency", "_meter", "_started")

    def __init__(
        self,
        meter: MetricMeterRef,
        attributes: MetricAttributesRef,
        count: MetricCounterRef,
        failures: MetricCounterRef,
        latency: MetricHistogramDurationRef,
    ) -> None:
        self._meter = meter
        self._attributes = attributes
        self._failures = failures
        self._latency = latency
        self._started = time.monotonic()
        count.add(1, attributes)

    def failed(self, code: int) -> None:
        more = {"status_code": _CODES[code] if code < len(_CODES) else str(code)}
        self._failures.add(1, self._attributes.with_additional_attributes(self._meter, more))
        self._record()

    def succeeded(self) -> None:
        self._record()

    def _record(self) -> None:
        self._latency.record(round((time.monotonic() - self._started) * 1000), self._attributes)
