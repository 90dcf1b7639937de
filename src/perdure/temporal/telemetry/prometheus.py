"""A Prometheus endpoint for the metrics of a runtime.

Attribute sets differ from update to update, so values are kept per metric and set of labels and
written in the text format directly, in the order of the compiled core: families by name, series by
the number of labels and their values, global tags after the labels of a series.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from perdure.temporal.telemetry.buckets import Buckets
from perdure.temporal.telemetry.metrics import COUNTER, HISTOGRAM, Attributes, BufferedMetric

if TYPE_CHECKING:
    from temporalio.bridge.runtime import PrometheusConfig

    from perdure.temporal.telemetry.logs import Log

__all__ = ["PrometheusEndpoint", "PrometheusSink"]

_KINDS: Final = ("counter", "gauge", "histogram", "gauge")
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_TARGET: Final = "temporalio_common::telemetry::metrics"
_PAUSE: Final = 0.5

_Labels = tuple[tuple[str, str], ...]


class _Histogram:
    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: list[float]) -> None:
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


class _Family:
    """All series of one name."""

    __slots__ = ("description", "kind", "name", "series")

    def __init__(self, name: str, metric: BufferedMetric) -> None:
        self.name = name
        self.kind = _KINDS[metric.kind]
        self.description = metric.description or name
        self.series: dict[_Labels, float | _Histogram] = {}


class PrometheusSink:
    """All values since the start of the runtime, shown as text.

    What cannot be shown (a name or a label that the format does not allow, a name of another kind
    of metric) is dropped and logged, once for each.
    """

    def __init__(
        self, config: PrometheusConfig, prefix: str, tags: Mapping[str, str], log: Log
    ) -> None:
        self._config = config
        self._buckets = Buckets(
            prefix, config.histogram_bucket_overrides, seconds=config.durations_as_seconds
        )
        self._tags = tuple(sorted((_plain(key), value) for key, value in tags.items()))
        self._log = log
        self._complained: set[str] = set()
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}

    def update(self, metric: BufferedMetric, value: float, attributes: Attributes) -> None:
        labels = tuple(sorted((_plain(key), _text(item)) for key, item in attributes.items()))
        if metric.duration and self._config.durations_as_seconds:
            value /= 1000
        name = self._name(metric)
        with self._lock:
            problem = self._update(name, metric, value, labels)
        if problem and problem not in self._complained:
            self._complained.add(problem)
            self._log.write(
                40, _TARGET, f"Failed to initialize metric, will drop values: {problem}"
            )

    def _update(self, name: str, metric: BufferedMetric, value: float, labels: _Labels) -> str:
        """Take in the value; the text of what stands against it, if anything."""
        family = self._families.get(name)
        if family is None:
            if _NAME.match(name) is None:
                return f"{name!r} is not a valid metric name"
            family = self._families[name] = _Family(name, metric)
        if family.kind != _KINDS[metric.kind]:
            return f"{name!r} exists already as a {family.kind}"
        series = family.series
        before = series.get(labels)
        if before is None:
            for label, _ in labels:
                if _LABEL.match(label) is None:
                    return f"{label!r} is not a valid label name"
            if metric.kind == HISTOGRAM:
                before = series[labels] = _Histogram(self._buckets.of(metric.name))
        if isinstance(before, _Histogram):
            before.add(value)
        elif metric.kind == COUNTER:
            series[labels] = (before or 0) + value
        else:
            series[labels] = value
        return ""

    def text(self) -> str:
        """The exposition of every metric met so far."""
        with self._lock:
            families = sorted(self._families.items())
            return "".join(line for _, family in families for line in self._lines(family))

    def _name(self, metric: BufferedMetric) -> str:
        name = _plain(metric.name)
        if self._config.unit_suffix and metric.kind == HISTOGRAM:
            unit = metric.unit
            if metric.duration:
                unit = "seconds" if self._config.durations_as_seconds else "milliseconds"
            if unit:
                name += f"_{_plain(unit)}"
        if self._config.counters_total_suffix and metric.kind == COUNTER:
            name += "_total"
        return name

    def _lines(self, family: _Family) -> Iterator[str]:
        name = family.name
        if not family.series:
            return
        description = family.description.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {description}\n# TYPE {name} {family.kind}\n"
        for own in sorted(family.series, key=_rank):
            value = family.series[own]
            taken = {key for key, _ in own}
            labels = (*own, *(tag for tag in self._tags if tag[0] not in taken))
            if not isinstance(value, _Histogram):
                yield f"{name}{_braces(labels)} {_number(value)}\n"
                continue
            for bound, count in zip(value.bounds, value.counts, strict=True):
                yield f"{name}_bucket{_braces((*labels, ('le', _number(bound))))} {count}\n"
            yield f"{name}_bucket{_braces((*labels, ('le', '+Inf')))} {value.count}\n"
            yield f"{name}_sum{_braces(labels)} {_number(value.total)}\n"
            yield f"{name}_count{_braces(labels)} {value.count}\n"


def _rank(labels: _Labels) -> tuple[int, list[str]]:
    return len(labels), [value for _, value in labels]


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Without an exponent, and without a fraction that says nothing."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    shown = format(Decimal(repr(value)), "f")
    return shown.removesuffix(".0")


def _braces(labels: _Labels) -> str:
    pairs = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class PrometheusEndpoint:
    """Answers `/metrics` on `host:port` from a thread of its own, until it is closed.

    ValueError if the address is none, or cannot be bound.
    """

    def __init__(self, sink: PrometheusSink, bind_address: str) -> None:
        host, _, port = bind_address.rpartition(":")
        if not (host and port.isdecimal()):
            raise ValueError(
                f"Failed starting Prometheus exporter on {bind_address!r}: an address is host:port"
            )
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(sink))
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"Failed starting Prometheus exporter on {bind_address}: {error}"
            ) from None
        self._server.daemon_threads = True
        self._server.timeout = _PAUSE
        self._closing = threading.Event()
        threading.Thread(target=self._serve, name="perdure-prometheus", daemon=True).start()

    def close(self) -> None:
        """Give the address back soon; returns at once."""
        self._closing.set()

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._server.handle_request()
        self._server.server_close()


def _handler(sink: PrometheusSink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = sink.text().encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Scrapes are not news."""

    return Handler
