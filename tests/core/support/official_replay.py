"""Replays random histories on the compiled core and prints the activations it made.

A process of its own: `python -m tests.core.support.official_replay SEED COUNT`. Each line of its
output is a list of activations in base 64, of one history, the eviction last.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from random import Random

from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from tests.core.support.random_histories import Lang, Story, random_story


def _config() -> bridge.WorkerConfig:
    slots = bridge.FixedSizeSlotSupplier(2)
    polling = bridge.PollerBehaviorSimpleMaximum(2)
    return bridge.WorkerConfig(
        namespace="namespace",
        task_queue="task-queue",
        versioning_strategy=bridge.WorkerVersioningStrategyNone(build_id_no_versioning=""),
        identity_override=None,
        max_cached_workflows=2,
        tuner=bridge.TunerHolder(
            workflow_slot_supplier=slots,
            activity_slot_supplier=slots,
            local_activity_slot_supplier=slots,
            nexus_slot_supplier=slots,
        ),
        workflow_task_poller_behavior=polling,
        nonsticky_to_sticky_poll_ratio=1,
        activity_task_poller_behavior=polling,
        no_remote_activities=True,
        task_types=bridge.WorkerTaskTypes(
            enable_workflows=True,
            enable_local_activities=False,
            enable_remote_activities=False,
            enable_nexus=False,
        ),
        sticky_queue_schedule_to_start_timeout_millis=1000,
        max_heartbeat_throttle_interval_millis=1000,
        default_heartbeat_throttle_interval_millis=1000,
        max_activities_per_second=None,
        max_task_queue_activities_per_second=None,
        max_eager_activity_reservations_per_workflow_task=3,
        graceful_shutdown_period_millis=0,
        nondeterminism_as_workflow_fail=False,
        nondeterminism_as_workflow_fail_for_types=set(),
        nexus_task_poller_behavior=polling,
        plugins=[],
        storage_drivers=set(),
        disable_payload_error_limit=True,
    )


async def _replay(worker: bridge.Worker, story: Story) -> list[WorkflowActivation]:
    """Poll and answer until the run leaves the cache."""
    lang = Lang(story)
    activations = []
    while True:
        activation = await worker.poll_workflow_activation()
        activations.append(activation)
        await worker.complete_workflow_activation(lang.answer(activation))
        if any(job.HasField("remove_from_cache") for job in activation.jobs):
            return activations


async def main(seed: int, count: int) -> None:
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    runtime = Runtime(telemetry=TelemetryConfig(logging=quiet))
    worker, pusher = bridge.Worker.for_replay(runtime._core_runtime, _config())
    random = Random(seed)
    for number in range(count):
        story = random_story(random, f"run-{number}")
        data = story.built.history().SerializeToString()
        push = asyncio.ensure_future(pusher.push_history(story.built.workflow_id, data))
        activations = await _replay(worker, story)
        await push
        lines = [base64.b64encode(one.SerializeToString()).decode() for one in activations]
        sys.stdout.write(json.dumps(lines) + "\n")
    pusher.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
