"""Metrics by OTLP, over gRPC or HTTP, by means of the OpenTelemetry SDK.

The SDK aggregates and exports; what is ours is the thread that makes it do so, because it has to
end with the runtime and must not come back to life in a forked process. It exports once more when
the runtime is dropped or the program ends, for a short while then: an absent collector must not
keep a program from ending.
"""

from __future__ import annotations

import atexit
import math
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from perdure.temporal.errors import PackageMissing
from perdure.temporal.telemetry.buckets import Buckets
from perdure.temporal.telemetry.log_filter import ERROR
from perdure.temporal.telemetry.metrics import COUNTER, HISTOGRAM, Attributes, BufferedMetric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from temporalio.bridge.runtime import OpenTelemetryConfig

    from perdure.temporal.telemetry.logs import Log

__all__ = ["OtlpExport", "OtlpSink"]

_NAME: Final = "temporal-core-sdk"
_TARGET: Final = "temporalio_common::telemetry::otel::metric_export"
_PERIOD: Final = 1.0
_TIMEOUT: Final = 10.0
_AT_EXIT: Final = 2.0

_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+\Z")

_Recorder = Callable[[float, Attributes], None]


class OtlpSink:
    """Hands every update to an instrument of the OpenTelemetry SDK.

    An instrument that the SDK refuses (its name, its unit) is logged once and records nothing.
    """

    def __init__(self, meter: Meter, buckets: Buckets, *, seconds: bool, log: Log) -> None:
        self._meter = meter
        self._buckets = buckets
        self._seconds = seconds
        self._log = log
        self._recorders: dict[BufferedMetric, _Recorder] = {}

    def update(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None:
        recorder = self._recorders.get(metric)
        if recorder is None:
            recorder = self._recorders[metric] = self._recorder(metric)
        if metric.duration and self._seconds:
            value /= 1000
        recorder(value, attributes)

    def _recorder(self, metric: BufferedMetric) -> _Recorder:
        name, description = metric.name, metric.description or ""
        unit = metric.unit or ""
        if metric.duration:
            unit = "s" if self._seconds else "ms"
        try:
            if metric.kind == COUNTER:
                return self._meter.create_counter(name, unit, description).add
            if metric.kind == HISTOGRAM:
                bounds = self._buckets.of(name)
                return self._meter.create_histogram(
                    name, unit, description, explicit_bucket_boundaries_advisory=bounds
                ).record
            return self._meter.create_gauge(name, unit, description).set
        except Exception as error:  # the SDK raises plain exceptions
            text = f"Failed to initialize metric {name!r}, will drop values: {error}"
            self._log.write(ERROR, _TARGET, text)
            return lambda _value, _attributes: None


class OtlpExport:
    """The export of one runtime, by a thread; `sink` takes its metrics.

    ValueError when the URL cannot be used, `PackageMissing` without the OpenTelemetry packages.
    """

    def __init__(
        self, config: OpenTelemetryConfig, prefix: str, tags: Mapping[str, str], log: Log
    ) -> None:
        seconds = config.durations_as_seconds
        buckets = Buckets(prefix, config.histogram_bucket_overrides, seconds=seconds)
        exporter = _exporter(config)
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        self._reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        self._provider = MeterProvider(
            [self._reader],
            Resource.create({"service.name": _NAME, **tags}),
            shutdown_on_exit=False,
        )
        millis = config.metric_periodicity_millis
        self._period = _PERIOD if millis is None else millis / 1000
        meter = self._provider.get_meter(_NAME)
        self.sink = OtlpSink(meter, buckets, seconds=seconds, log=log)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-otlp", daemon=True)
        self._thread.start()
        atexit.register(_end, weakref.ref(self))

    def close(self) -> None:
        """Export once more and end soon; returns at once."""
        self._closing.set()

    def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, but not longer than that."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closing.wait(self._period):
            self._reader.collect()
        self._reader.collect()
        self._provider.shutdown()


def _end(reference: weakref.ref[OtlpExport]) -> None:
    export = reference()
    if export is not None:
        export.close()
        export.wait(_AT_EXIT)


def _exporter(config: OpenTelemetryConfig) -> MetricExporter:
    if not config.url.startswith(("http://", "https://")):
        raise ValueError(f"an OTLP collector is named by an http or https URL, not {config.url!r}")
    headers = {key.lower(): value for key, value in config.headers.items()}
    for key in headers:
        if _HEADER.match(key) is None:
            raise ValueError(f"{key!r} is not the name of an HTTP header")
    try:
        from opentelemetry.sdk.metrics import Counter, Histogram
        from opentelemetry.sdk.metrics.export import AggregationTemporality

        exporter = _exporter_class(http=config.http)
    except ImportError as error:
        raise PackageMissing(
            "the export of metrics by OTLP", error.name or "opentelemetry", "otel"
        ) from None
    delta = config.metric_temporality_delta
    temporality = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE
    options: dict[str, Any] = {} if config.http else {"insecure": config.url.startswith("http:")}
    made: MetricExporter = exporter(
        endpoint=config.url,
        headers=headers,
        timeout=_TIMEOUT,
        preferred_temporality={Counter: temporality, Histogram: temporality},
        **options,
    )
    return made


def _exporter_class(*, http: bool) -> Any:
    if http:
        from opentelemetry.exporter.otlp.proto.http import metric_exporter

        return metric_exporter.OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_exporter

    return grpc_exporter.OTLPMetricExporter
