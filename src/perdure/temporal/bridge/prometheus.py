"""A Prometheus endpoint for the core's metrics.

Attribute sets differ from update to update, so values are kept per metric and label set and
written in the text format directly.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from perdure.temporal.bridge.metrics import COUNTER, HISTOGRAM, Attributes, BufferedMetric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from temporalio.bridge.runtime import PrometheusConfig

__all__ = ["PrometheusSink", "serve"]

_KINDS: Final = ("counter", "gauge", "histogram")
_GENERAL: Final = (50, 100, 500, 1000, 2500, 10000)
_BUCKETS: Final[Mapping[str, Sequence[float]]] = {
    "workflow_endtoend_latency": (100, 500, 1000, 1500, 2000, 5000, 10000, 30000, 60000, 86400000),
    "workflow_task_execution_latency": (1, 10, 20, 50, 100, 200, 500, 1000),
    "workflow_task_replay_latency": (1, 10, 20, 50, 100, 200, 500, 1000),
    "workflow_task_schedule_to_start_latency": (100, 500, 1000, 5000, 10000, 100000, 1000000),
    "activity_schedule_to_start_latency": (100, 500, 1000, 5000, 10000, 100000, 1000000),
    "activity_execution_latency": (50, 100, 500, 1000, 5000, 10000, 60000),
}


class _Histogram:
    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        for index, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[index] += 1


class PrometheusSink:
    """All values since the start of the runtime, shown as text."""

    def __init__(self, config: PrometheusConfig, prefix: str) -> None:
        self._config = config
        self._prefix = prefix
        self._overrides = dict(config.histogram_bucket_overrides or {})
        self._lock = threading.Lock()
        self._values: dict[BufferedMetric, dict[tuple[tuple[str, str], ...], Any]] = {}

    def update(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None:
        labels = tuple(sorted((_label(key), str(item)) for key, item in attributes.items()))
        if metric.duration and self._config.durations_as_seconds:
            value /= 1000
        with self._lock:
            series = self._values.setdefault(metric, {})
            if metric.kind == HISTOGRAM:
                if labels not in series:
                    series[labels] = _Histogram(self._bounds(metric))
                series[labels].add(value)
            elif metric.kind == COUNTER:
                series[labels] = series.get(labels, 0) + value
            else:
                series[labels] = value

    def text(self) -> str:
        """The exposition of every metric met so far."""
        with self._lock:
            return "".join(
                line
                for metric, series in self._values.items()
                for line in self._family(metric, series)
            )

    def _bounds(self, metric: BufferedMetric) -> Sequence[float]:
        bare = metric.name.removeprefix(self._prefix)
        override = self._overrides.get(metric.name) or self._overrides.get(bare)
        if override is not None:
            return override
        bounds = _BUCKETS.get(bare, _GENERAL)
        if metric.duration and self._config.durations_as_seconds:
            return [bound / 1000 for bound in bounds]
        return bounds

    def _family(self, metric: BufferedMetric, series: dict[Any, Any]) -> Iterator[str]:
        name = self._name(metric)
        if metric.description:
            yield f"# HELP {name} {metric.description}\n"
        yield f"# TYPE {name} {_KINDS[metric.kind]}\n"
        for labels, value in series.items():
            if isinstance(value, _Histogram):
                for bound, count in zip(value.bounds, value.counts, strict=True):
                    yield f"{name}_bucket{_labels(labels, f'{bound:g}')} {count}\n"
                yield f"{name}_bucket{_labels(labels, '+Inf')} {value.count}\n"
                yield f"{name}_sum{_labels(labels)} {value.total:g}\n"
                yield f"{name}_count{_labels(labels)} {value.count}\n"
            else:
                yield f"{name}{_labels(labels)} {value:g}\n"

    def _name(self, metric: BufferedMetric) -> str:
        name = _label(metric.name)
        if self._config.unit_suffix:
            unit = metric.unit
            if metric.duration:
                unit = "seconds" if self._config.durations_as_seconds else "milliseconds"
            if unit:
                name += f"_{_label(unit)}"
        if self._config.counters_total_suffix and metric.kind == COUNTER:
            name += "_total"
        return name


def _label(name: str) -> str:
    return "".join(char if char.isalnum() or char in "_:" else "_" for char in name)


def _labels(labels: tuple[tuple[str, str], ...], bound: str | None = None) -> str:
    pairs = [*labels, *([("le", bound)] if bound is not None else [])]
    if not pairs:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def serve(sink: PrometheusSink, bind_address: str) -> ThreadingHTTPServer:
    """Answer `/metrics` on `host:port` from a daemon thread; ValueError if it cannot be bound."""
    host, _, port = bind_address.rpartition(":")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = sink.text().encode()
            found = self.path.partition("?")[0] == "/metrics"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Scrapes are not news."""

    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(
            f"Failed starting Prometheus exporter on {bind_address}: {error}"
        ) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="perdure-prometheus", daemon=True).start()
    return server
