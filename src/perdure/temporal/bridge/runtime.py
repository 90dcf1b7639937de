"""The runtime of the SDK: telemetry and the process it belongs to.

There are no threads here to run a core on: workers and clients live on the caller's event loop. A
runtime therefore only holds where logs and metrics go.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

from perdure.temporal.bridge.sandbox import pass_through
from perdure.temporal.connection.request_metrics import RequestMetrics
from perdure.temporal.process import HomeProcess
from perdure.temporal.telemetry.core_metrics import CoreMetrics
from perdure.temporal.telemetry.log_filter import DEBUG, INFO
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.telemetry.metrics import (
    BufferedMetricUpdate,
    BufferSink,
    MetricMeterRef,
    Sink,
)
from perdure.temporal.telemetry.otlp import OtlpExport
from perdure.temporal.telemetry.prometheus import PrometheusEndpoint, PrometheusSink

if TYPE_CHECKING:
    from temporalio.bridge.runtime import MetricsConfig, RuntimeOptions

__all__ = ["RuntimeRef", "init_runtime", "new_metric_meter", "raise_in_thread"]

_TARGET = "temporal_sdk_bridge::runtime"
_SERVICE_NAME = "temporal-core-sdk"
_PREFIX = "temporal_"


class RuntimeRef:
    """Telemetry of one runtime, as the SDK holds it."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.process = HomeProcess()
        self.log = Log(options.telemetry.logging)
        self.worker_heartbeat_interval_millis = options.worker_heartbeat_interval_millis
        self.tells_environment = not options.disable_environment_info
        config = options.telemetry.metrics
        own_prefix = None if config is None else config.metric_prefix
        self.metric_prefix = _PREFIX if own_prefix is None else own_prefix
        self._buffer: BufferSink | None = None
        self.meter = None if config is None else self._meter(config)
        self.core_metrics = CoreMetrics(self.meter, self.metric_prefix)
        self.request_metrics = RequestMetrics(self.core_metrics)

    def _meter(self, config: MetricsConfig) -> MetricMeterRef:
        sink: Sink
        tags = config.global_tags or {}
        if config.opentelemetry is not None:
            if config.prometheus is not None:
                raise ValueError("Cannot have OpenTelemetry and Prometheus metrics")
            export = OtlpExport(config.opentelemetry, self.metric_prefix, tags, self.log)
            weakref.finalize(self, export.close).atexit = False
            sink = export.sink
        elif config.prometheus is not None:
            sink = PrometheusSink(config.prometheus, self.metric_prefix, tags, self.log)
            endpoint = PrometheusEndpoint(sink, config.prometheus.bind_address)
            weakref.finalize(self, endpoint.close).atexit = False
        elif config.buffered_with_size > 0:
            self._buffer = sink = BufferSink(config.buffered_with_size, self.log)
        else:
            raise ValueError(
                "metrics need OpenTelemetry, Prometheus or a buffer for at least one update"
            )
        named = {"service_name": _SERVICE_NAME} if config.attach_service_name else {}
        return MetricMeterRef(sink, named)

    def retrieve_buffered_metrics(self, durations_as_seconds: object) -> list[BufferedMetricUpdate]:
        """All updates since the last call."""
        if self._buffer is None:
            raise RuntimeError("Attempting to retrieve buffered metrics without buffer")
        return self._buffer.take(seconds=bool(durations_as_seconds))

    def write_test_info_log(self, message: str, extra_data: str) -> None:
        self.log.write(INFO, _TARGET, message, extra_data=extra_data)

    def write_test_debug_log(self, message: str, extra_data: str) -> None:
        self.log.write(DEBUG, _TARGET, message, extra_data=extra_data)


def init_runtime(options: RuntimeOptions) -> RuntimeRef:
    """A runtime; ValueError when its telemetry cannot be set up."""
    pass_through()
    return RuntimeRef(options)


def new_metric_meter(runtime: RuntimeRef) -> MetricMeterRef | None:
    """The meter of a runtime, or None when it has no metrics."""
    runtime.process.check("create metric meter")
    return runtime.meter


def raise_in_thread(thread_id: int, exc_type: type[BaseException]) -> bool:
    """Raise an exception asynchronously in another thread; whether that thread exists."""
    count = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(exc_type)
    )
    return bool(count == 1)
