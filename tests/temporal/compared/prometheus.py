"""The texts of Prometheus endpoints with all kinds of options, line by line."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from datetime import timedelta
from typing import Any

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig


def shown(*, tags: dict[str, str] | None = None, service: bool = True, **options: Any) -> str:
    """The text of an endpoint after some of everything was recorded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=None,
            metrics=PrometheusConfig(bind_address=address, **options),
            global_tags=tags or {},
            attach_service_name=service,
        )
    )
    _record(runtime)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        return f"{answer.headers['content-type']}\n{answer.read().decode()}"


def _record(runtime: Runtime) -> None:
    meter = runtime.metric_meter
    counter = meter.create_counter("a-counter", 'says "x"\nand \\', "things")
    counter.add(2, {"a-b": 'say "x"\n\\', "i": 3, "f": 1.5, "b": True})
    for labels in ({"z": "b", "y": "1"}, {"z": "a", "y": "2"}, {"z": "10"}, {"z": "9"}, {}):
        counter.add(1, labels)
    counter.add(4, {"z": "9"})
    meter.create_counter("undescribed_total").add(0)
    meter.create_counter("not.valid").add(1)
    meter.create_counter("label").add(1, {"not.valid": "x"})
    meter.create_gauge("whole", unit="bytes").set(7)
    gauge = meter.create_gauge_float("float", unit="%")
    for index, value in enumerate((0.1 + 0.2, 1e21, 1e-7, 7.0, 1e16, float("nan"))):
        gauge.set(value, {"index": index})
    meter.create_histogram("sizes", "described", "bytes").record(2**40)
    meter.create_histogram("many-sizes-of").record(70)
    meter.create_histogram_float("ratios", unit="1").record(0.25)
    took = meter.create_histogram_timedelta("took", unit="anything")
    took.record(timedelta(milliseconds=1500))
    took.record(timedelta(milliseconds=20), {"which": "other"})


if __name__ == "__main__":
    overrides = {"sizes": [1.5, 1234.5678, 1e9], "took": [0.25, 2]}
    texts = (
        shown(tags={"tag": "value", "another": "1"}),
        shown(unit_suffix=True, histogram_bucket_overrides=overrides),
        shown(
            service=False, unit_suffix=True, counters_total_suffix=True, durations_as_seconds=True
        ),
    )
    sys.stdout.write(json.dumps("".join(texts).splitlines()))
