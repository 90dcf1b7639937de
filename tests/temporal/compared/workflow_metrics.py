"""Metrics of a workflow's own, in the sandbox and replayed for every task: nothing counts twice."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.runtime import (
    MetricBuffer,
    MetricBufferDurationFormat,
    Runtime,
    TelemetryConfig,
)
from temporalio.worker import Worker


@workflow.defn
class Measuring:
    def __init__(self) -> None:
        self._signals = 0

    @workflow.signal
    def go_on(self) -> None:
        self._signals += 1

    @workflow.run
    async def run(self) -> None:
        meter = workflow.metric_meter().with_additional_attributes({"own": True})
        counter = meter.create_counter("own-counter", "counts", "things")
        counter.add(1)
        meter.create_histogram_timedelta("own-duration").record(timedelta(milliseconds=1500))
        meter.create_gauge_float("own-gauge").set(1.5)
        for number in (1, 2):
            await workflow.wait_condition(lambda wanted=number: self._signals == wanted)  # type: ignore[misc]
            counter.add(10**number)


async def main() -> None:
    buffer = MetricBuffer(10_000, MetricBufferDurationFormat.SECONDS)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer, logging=None))
    client = await Client.connect(sys.argv[1], runtime=runtime)
    queue = f"queue-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Measuring], max_cached_workflows=0):
        handle = await client.start_workflow(Measuring.run, id=queue, task_queue=queue)
        for _ in range(2):
            await asyncio.sleep(0.3)
            await handle.signal(Measuring.go_on)
        await handle.result()
    own = [update for update in buffer.retrieve_updates() if update.metric.name.startswith("own-")]
    shown = [
        [
            u.metric.name,
            u.metric.kind,
            u.metric.unit,
            u.metric.description,
            u.value,
            *sorted(u.attributes),
        ]
        for u in own
    ]
    sys.stdout.write(json.dumps(shown))


if __name__ == "__main__":
    asyncio.run(main())
