"""Runtimes: metrics, logs, threads and forks, through the official `temporalio.runtime`."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from typing import Any

import pytest
from temporalio.bridge.runtime import Runtime as BridgeRuntime
from temporalio.client import Client
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    MetricBuffer,
    MetricBufferDurationFormat,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)


def test_buffered_metrics_keep_their_identity() -> None:
    """Global tags belong to what exports, not to the attributes of a buffer."""
    buffer = MetricBuffer(100)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer, global_tags={"tag": "value"}))
    meter = runtime.metric_meter.with_additional_attributes({"more": 1})
    counter = meter.create_counter("counter", "what it counts", "things")
    counter.add(2)
    counter.add(3, {"own": True})
    meter.create_gauge_float("gauge").set(1.5)
    updates = list(buffer.retrieve_updates())
    assert [(u.metric.name, u.metric.kind, u.value) for u in updates] == [
        ("counter", 0, 2),
        ("counter", 0, 3),
        ("gauge", 1, 1.5),
    ]
    assert updates[0].metric is updates[1].metric
    assert updates[0].metric.description == "what it counts"
    assert updates[0].metric.unit == "things"
    assert updates[0].attributes == {
        "service_name": "temporal-core-sdk",
        "more": 1,
    }
    assert updates[1].attributes["own"] is True
    assert buffer.retrieve_updates() == []


@pytest.mark.parametrize(
    ("form", "unit", "value"),
    [
        (MetricBufferDurationFormat.MILLISECONDS, "ms", 1500),
        (MetricBufferDurationFormat.SECONDS, "s", 1.5),
    ],
)
def test_durations_have_the_asked_unit(
    form: MetricBufferDurationFormat, unit: str, value: float
) -> None:
    from datetime import timedelta

    buffer = MetricBuffer(100, form)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    meter = runtime.metric_meter
    for own in ("duration", "moments", None):
        histogram = meter.create_histogram_timedelta("took", unit=own)
        histogram.record(timedelta(seconds=1.5))
    updates = buffer.retrieve_updates()
    assert [update.metric.unit for update in updates] == [unit, "moments", None]
    assert [update.value for update in updates] == [value] * 3


def test_a_full_buffer_drops() -> None:
    buffer = MetricBuffer(2)
    counter = Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter.create_counter("c")
    for number in range(5):
        counter.add(number)
    assert [u.value for u in buffer.retrieve_updates()] == [0, 1]


def test_metrics_take_only_what_they_can_hold() -> None:
    buffer = MetricBuffer(100)
    meter = Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter
    whole: Any = [meter.create_counter("c").add, meter.create_histogram("h").record]
    for record in (*whole, meter.create_gauge("g").set):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            record(1.5)
        with pytest.raises(OverflowError, match=r"2\*\*64"):
            record(2**64)
        with pytest.raises(ValueError, match="negative"):
            record(-1)
    with pytest.raises(TypeError, match="Invalid value type for key a, must be str, int, float"):
        whole[0](1, {"a": None})
    with pytest.raises(TypeError, match="the key of an attribute is a str, not 1"):
        whole[0](1, {1: "a"})
    assert buffer.retrieve_updates() == []
    meter.create_gauge_float("f").set(2)
    (update,) = buffer.retrieve_updates()
    assert type(update.value) is float


async def test_requests_are_measured(server: str) -> None:
    buffer = MetricBuffer(1000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    client = await Client.connect(server, runtime=runtime)
    await client.count_workflows()
    names = {(u.metric.name, u.attributes.get("operation")) for u in buffer.retrieve_updates()}
    assert ("temporal_request", "CountWorkflowExecutions") in names
    assert ("temporal_request_latency", "CountWorkflowExecutions") in names


def test_logs_are_forwarded_by_level() -> None:
    records: queue.Queue[logging.LogRecord] = queue.Queue()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.put(record)

    logger = logging.Logger("forwarded", logging.DEBUG)  # noqa: LOG001
    logger.addHandler(Handler())
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(
                filter=TelemetryFilter(core_level="INFO", other_level="ERROR"),
                forwarding=LogForwardingConfig(logger),
            )
        )
    )
    runtime._core_runtime.write_test_debug_log("not this", "x")
    runtime._core_runtime.write_test_info_log("this", "extra")
    record = records.get(timeout=5)
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("[sdk_core::temporal_sdk_bridge::runtime] this")
    assert record.temporal_log.fields == {"extra_data": "extra"}  # type: ignore[attr-defined]
    assert records.empty()


def test_an_exception_is_raised_in_another_thread() -> None:
    class Stop(BaseException):
        pass

    started, stopped = threading.Event(), threading.Event()

    def work() -> None:
        try:
            started.set()
            while True:
                time.sleep(0.001)
        except Stop:
            stopped.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(5)
    assert thread.ident is not None
    assert BridgeRuntime._raise_in_thread(thread.ident, Stop)
    thread.join(5)
    assert stopped.is_set()
    assert not BridgeRuntime._raise_in_thread(2**40 + 1, Stop)


async def test_a_runtime_stays_in_its_process(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(AssertionError, match=f"original runtime PID is {parent}"):
        await client.service_client.check_health()
