"""What a custom slot supplier is told, in order and by kind, and which workers cannot be made."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotConfig,
    ResourceBasedSlotSupplier,
    ResourceBasedTunerConfig,
    SlotPermit,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
)

LONG = timedelta(seconds=20)


@activity.defn
async def step() -> None:
    """Nothing to do."""


@workflow.defn
class Steps:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(step, start_to_close_timeout=LONG)
        await workflow.execute_local_activity(step, start_to_close_timeout=LONG)


class Recording(CustomSlotSupplier):
    """Keeps what it is told, apart from calls whose number is a matter of prefetching."""

    def __init__(self) -> None:
        self.contexts: set[tuple[Any, ...]] = set()
        self.tried: set[str] = set()
        self.used: dict[str, list[Any]] = defaultdict(list)
        self.out = 0

    async def reserve_slot(self, ctx: Any) -> SlotPermit:
        version = ctx.worker_deployment_version
        self.contexts.add((ctx.slot_type, ctx.is_sticky, ctx.worker_build_id, str(dict(version))))
        self.out += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: Any) -> SlotPermit | None:
        self.tried.add(ctx.slot_type)
        self.out += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: Any) -> None:
        self.used[type(ctx.slot_info).__name__].append(["used", fields(ctx.slot_info)])

    def release_slot(self, ctx: Any) -> None:
        self.out -= 1
        if ctx.slot_info is not None:
            self.used[type(ctx.slot_info).__name__].append(["released", fields(ctx.slot_info)])


def fields(info: Any) -> dict[str, Any]:
    """The public attributes of a slot's info."""
    return {name: getattr(info, name) for name in dir(info) if not name.startswith("_")}


def composite(supplier: Any, activity_supplier: Any = None) -> WorkerTuner:
    return WorkerTuner.create_composite(
        workflow_supplier=supplier,
        activity_supplier=activity_supplier or supplier,
        local_activity_supplier=supplier,
        nexus_supplier=FixedSizeSlotSupplier(1),
    )


def follows(memory: float, cpu: float, **config: Any) -> ResourceBasedSlotSupplier:
    return ResourceBasedSlotSupplier(
        ResourceBasedSlotConfig(**config), ResourceBasedTunerConfig(memory, cpu)
    )


def odd_workers() -> Iterator[dict[str, Any]]:
    """Options of workers that may not be possible."""
    yield {"max_concurrent_workflow_task_polls": 1}
    yield {"max_concurrent_workflow_task_polls": 1, "max_cached_workflows": 0}
    yield {"max_cached_workflows": -1}
    yield {"max_activities_per_second": 0.0}
    yield {"max_activities_per_second": -1.0}
    yield {"max_task_queue_activities_per_second": -1.0}
    yield {"graceful_shutdown_timeout": timedelta(seconds=-1)}
    yield {"sticky_queue_schedule_to_start_timeout": timedelta(seconds=-1)}
    yield {"nonsticky_to_sticky_poll_ratio": -1.0}
    for minimum, maximum, initial in ((1, 1, 1), (0, 3, 1), (5, 3, 1), (1, 3, 5), (2, 3, 1)):
        behavior = PollerBehaviorAutoscaling(minimum=minimum, maximum=maximum, initial=initial)
        for kind in ("workflow", "activity", "nexus"):
            yield {f"{kind}_task_poller_behavior": behavior}
    for kind in ("workflow", "activity", "nexus"):
        yield {f"{kind}_task_poller_behavior": PollerBehaviorSimpleMaximum(0)}
    yield {"tuner": composite(FixedSizeSlotSupplier(0))}
    yield {"tuner": composite(FixedSizeSlotSupplier(-1))}
    yield {"tuner": composite(follows(0.5, 0.5), follows(0.5, 0.6))}
    yield {"tuner": composite(follows(0.5, 0.5), follows(0.5, 0.5))}
    yield {"tuner": composite(follows(1.5, -1.0))}
    yield {"tuner": composite(follows(0.5, 0.5, minimum_slots=9, maximum_slots=5))}
    yield {"tuner": composite(follows(0.5, 0.5, minimum_slots=-1))}
    yield {"tuner": composite(follows(0.5, 0.5, ramp_throttle=timedelta(milliseconds=-1)))}


def new_worker(client: Client, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue=str(uuid.uuid4()),
        workflows=[Steps],
        activities=[step],
        workflow_runner=UnsandboxedWorkflowRunner(),
        **options,
    )


async def main(address: str) -> None:
    client = await Client.connect(address)
    supplier = Recording()
    version = WorkerDeploymentVersion(deployment_name="deployment", build_id="1")
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=False)
    async with new_worker(client, tuner=composite(supplier), deployment_config=config) as worker:
        for _ in range(2):
            await client.execute_workflow(
                Steps.run, id=str(uuid.uuid4()), task_queue=worker.task_queue
            )
    refused = []
    for options in odd_workers():
        try:
            new_worker(client, **options)
        except (TypeError, ValueError) as error:
            refused.append(f"{type(error).__name__}: {error}")
        else:
            refused.append("")
    json.dump(
        {
            "contexts": sorted(supplier.contexts),
            "tried": sorted(supplier.tried),
            "used": {kind: sorted(map(str, calls)) for kind, calls in supplier.used.items()},
            "out": supplier.out,
            "refused": refused,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
