"""Metrics that leave the process: by OTLP to a collector, and at a Prometheus endpoint.

Rows: IT/metrics_tests.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from temporalio.client import Client
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    MetricBuffer,
    OpenTelemetryConfig,
    OpenTelemetryMetricTemporality,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from tests.temporal.support.otlp_collector import Collector, metrics, over_grpc, over_http, plain

from perdure.temporal.ephemeral import _free_port
from perdure.temporal.errors import PackageMissing

SOON = timedelta(milliseconds=100)


def runtime(collector: Collector, *, tags: dict[str, str] | None = None, **options: Any) -> Runtime:
    config = OpenTelemetryConfig(
        url=collector.url, headers={"X-Key": "secret"}, metric_periodicity=SOON, **options
    )
    return Runtime(telemetry=TelemetryConfig(logging=None, metrics=config, global_tags=tags or {}))


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def ends_with(runtime: list[Runtime], name: str) -> None:
    """The threads of that name end when the only runtime is dropped."""
    running = threads(name)
    assert running
    runtime.clear()
    gc.collect()
    for thread in running:
        thread.join(20)
        assert not thread.is_alive()


def wait_until(is_so: Callable[[], bool]) -> None:
    """For what a thread does soon."""
    given_up_at = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < given_up_at
        time.sleep(0.01)


@pytest.mark.parametrize(("collecting", "http"), [(over_grpc, False), (over_http, True)])
def test_otlp_carries_every_kind_of_metric(
    collecting: Callable[[], AbstractContextManager[Collector]], http: bool
) -> None:
    with collecting() as collector:
        made = [runtime(collector, http=http, tags={"tag": "value"})]
        meter = made[0].metric_meter
        meter.create_counter("my-counter", "counts", "things").add(2, {"s": "x", "i": 1, "b": True})
        meter.create_gauge("gauge").set(3)
        meter.create_gauge_float("float", unit="%").set(1.25)
        meter.create_histogram("sizes", "described", "By").record(70)
        meter.create_histogram_timedelta("took").record(timedelta(seconds=1.5))
        headers, request = collector.next()
        assert headers["x-key"] == "secret"
        (resource,) = request.resource_metrics
        attributes = plain(resource.resource.attributes)
        assert (attributes["service.name"], attributes["tag"]) == ("temporal-core-sdk", "value")
        assert [scope.scope.name for scope in resource.scope_metrics] == ["temporal-core-sdk"]
        found = metrics(request)
        counter = found["my-counter"]
        assert (counter.description, counter.unit) == ("counts", "things")
        assert counter.sum.is_monotonic
        (point,) = counter.sum.data_points
        assert point.as_int == 2
        service = {"service_name": "temporal-core-sdk"}
        assert plain(point.attributes) == {"s": "x", "i": 1, "b": True, **service}
        assert [each.as_int for each in found["gauge"].gauge.data_points] == [3]
        assert [each.as_double for each in found["float"].gauge.data_points] == [1.25]
        (sizes,) = found["sizes"].histogram.data_points
        assert list(sizes.explicit_bounds) == [50, 100, 500, 1000, 2500, 10000]
        assert list(sizes.bucket_counts) == [0, 1, 0, 0, 0, 0, 0]
        assert (found["took"].unit, found["took"].histogram.data_points[0].sum) == ("ms", 1500)
        del meter
        ends_with(made, "perdure-otlp")


def test_otlp_obeys_its_options() -> None:
    with over_grpc() as collector:
        made = [
            runtime(
                collector,
                durations_as_seconds=True,
                metric_temporality=OpenTelemetryMetricTemporality.DELTA,
                histogram_bucket_overrides={"sizes": [1, 2.5]},
            )
        ]
        meter = made[0].metric_meter
        counter = meter.create_counter("counter")
        counter.add(2)
        meter.create_histogram("sizes").record(2)
        meter.create_histogram_timedelta("took").record(timedelta(seconds=1.5))
        _, request = collector.next()
        found = metrics(request)
        delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        assert found["counter"].sum.aggregation_temporality == delta
        (sizes,) = found["sizes"].histogram.data_points
        assert list(sizes.explicit_bounds) == [1, 2.5]
        (took,) = found["took"].histogram.data_points
        assert (found["took"].unit, took.sum) == ("s", 1.5)
        assert list(took.explicit_bounds) == [0.05, 0.1, 0.5, 1, 2.5, 10]
        counter.add(3)
        assert [each.as_int for each in collector.metric("counter").sum.data_points] == [3]
        del meter, counter
        ends_with(made, "perdure-otlp")


def test_what_was_recorded_last_is_exported_when_the_runtime_is_dropped() -> None:
    with over_grpc() as collector:
        config = OpenTelemetryConfig(url=collector.url, metric_periodicity=timedelta(hours=1))
        made = [Runtime(telemetry=TelemetryConfig(logging=None, metrics=config))]
        made[0].metric_meter.create_counter("late").add(1)
        ends_with(made, "perdure-otlp")
        assert [each.as_int for each in collector.metric("late").sum.data_points] == [1]


def test_a_metric_that_the_exporter_refuses_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with over_grpc() as collector:
        logging_ = LoggingConfig(
            filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"),
            forwarding=LogForwardingConfig(logging.getLogger("refused")),
        )
        config = OpenTelemetryConfig(url=collector.url, metric_periodicity=SOON)
        made = [Runtime(telemetry=TelemetryConfig(logging=logging_, metrics=config))]
        meter = made[0].metric_meter
        counter = meter.create_counter("no name")
        counter.add(1)
        counter.add(1)
        meter.create_counter("counter").add(2)
        assert collector.metric("counter").sum.data_points
        del meter, counter
        ends_with(made, "perdure-otlp")
    wait_until(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert "Failed to initialize metric 'no name'" in record.getMessage()


async def test_the_core_exports_its_own_metrics(server: str) -> None:
    with over_grpc() as collector:
        made = [runtime(collector)]
        client = await Client.connect(server, runtime=made[0])
        await client.count_workflows()
        found = collector.metric("temporal_request")
        operations = {plain(point.attributes)["operation"] for point in found.sum.data_points}
        assert operations <= {"GetSystemInfo", "CountWorkflowExecutions"}
        del client
        ends_with(made, "perdure-otlp")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    metrics = OpenTelemetryConfig(url="http://localhost:4317")
    with pytest.raises(PackageMissing, match=r"pip install 'perdure\[otel\]'"):
        Runtime(telemetry=TelemetryConfig(metrics=metrics))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (OpenTelemetryConfig(url="nowhere"), "http or https URL"),
        (OpenTelemetryConfig(url="http://x", headers={"a b": "c"}), "'a b' is not the name"),
        (MetricBuffer(0), "at least one update"),
        (
            OpenTelemetryConfig(url="http://x", histogram_bucket_overrides={"a": [2, 1]}),
            "'a' must rise",
        ),
        (
            PrometheusConfig(bind_address="127.0.0.1:0", histogram_bucket_overrides={"a": [1, 1]}),
            "'a' must rise",
        ),
        (
            PrometheusConfig(bind_address="nowhere"),
            "exporter on 'nowhere': an address is host:port",
        ),
        (PrometheusConfig(bind_address=":9000"), "exporter on ':9000': an address is host:port"),
        (PrometheusConfig(bind_address="localhost:99999"), "Failed starting Prometheus exporter"),
    ],
)
def test_wrong_options_are_refused(config: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Runtime(telemetry=TelemetryConfig(metrics=config))


def test_a_prometheus_endpoint_goes_with_its_runtime() -> None:
    address = f"127.0.0.1:{_free_port('127.0.0.1')}"
    config = TelemetryConfig(metrics=PrometheusConfig(bind_address=address))
    made = [Runtime(telemetry=config)]
    with pytest.raises(ValueError, match="Failed starting Prometheus exporter"):
        Runtime(telemetry=config)
    ends_with(made, "perdure-prometheus")
    made.append(Runtime(telemetry=config))
    ends_with(made, "perdure-prometheus")
