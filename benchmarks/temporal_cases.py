# mypy: disable-error-code="import-untyped"
"""What both Temporal cores are measured with: one function per case, arguments as text.

Nothing here knows which core it is: `temporal_script` has chosen it before this was imported.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from time import perf_counter

import psutil
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from benchmarks import temporal_history, temporal_workflows
from benchmarks.load import Load, closed_loop

__all__ = ["live", "memory", "replay"]

Found = Mapping[str, object]
WaitingHandle = WorkflowHandle[temporal_workflows.Waiting, None]

_HISTORIES = {"rounds": temporal_history.rounds, "batches": temporal_history.batches}
_WORKFLOWS = [
    temporal_workflows.Rounds,
    temporal_workflows.Batches,
    temporal_workflows.OneActivity,
    temporal_workflows.OneLocalActivity,
    temporal_workflows.Waiting,
]
_RUNNERS: dict[str, Callable[[], WorkflowRunner]] = {
    "sandboxed": SandboxedWorkflowRunner,
    "unsandboxed": UnsandboxedWorkflowRunner,
}
_STARTERS = 50


async def replay(history: str, runner: str, events: str, repeats: str) -> Found:
    """Seconds of the fastest of several replays of one history, and how long it is."""
    made = _HISTORIES[history](int(events))
    recorded = WorkflowHistory("workflow", list(made.events))
    replayer = Replayer(workflows=_WORKFLOWS, workflow_runner=_RUNNERS[runner]())
    best = float("inf")
    for _ in range(int(repeats)):
        gc.collect()
        before = perf_counter()
        await replayer.replay_workflow(recorded)
        best = min(best, perf_counter() - before)
    return {"seconds": best, "events": len(made.events)}


async def live(workflow: str, concurrency: str, seconds: str, address: str, folder: str) -> Found:
    """Workflows that ended, in how long, and each one's latency."""
    client = await Client.connect(address)
    queue = str(uuid.uuid4())

    async def run_one() -> None:
        await client.execute_workflow(workflow, 1, id=str(uuid.uuid4()), task_queue=queue)

    async with Worker(
        client,
        task_queue=queue,
        workflows=_WORKFLOWS,
        activities=[temporal_workflows.add_one],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await run_one()
        cpu = psutil.Process().cpu_times()
        load = Load(int(concurrency), 1, float(seconds))
        outcome = await closed_loop(load, run_one, disk=Path(folder))
        after = psutil.Process().cpu_times()
    return {
        "elapsed": outcome.elapsed,
        "latencies": outcome.workflow_latencies,
        "cpu": after.user + after.system - cpu.user - cpu.system,
    }


async def memory(workflows: str, address: str) -> Found:
    """Bytes that the process has grown by while it caches so many workflows."""
    client = await Client.connect(address)
    queue = str(uuid.uuid4())
    count = int(workflows)
    async with Worker(
        client,
        task_queue=queue,
        workflows=_WORKFLOWS,
        max_cached_workflows=2 * count,
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await _begin_waiting(client, queue, 50)
        before = _resident()
        handles = await _begin_waiting(client, queue, count)
        grown = _resident() - before
        for handle in handles:
            await handle.terminate()
    return {"bytes": grown}


async def _begin_waiting(client: Client, queue: str, count: int) -> list[WaitingHandle]:
    numbers = iter(range(count))
    handles: list[WaitingHandle] = []

    async def starter() -> None:
        for _ in numbers:
            handle = await client.start_workflow(
                temporal_workflows.Waiting.run,
                id=str(uuid.uuid4()),
                task_queue=queue,
                task_timeout=timedelta(seconds=60),
            )
            handles.append(handle)
            # An answered query proves that its first task is over and the workflow is cached.
            await handle.query("__temporal_workflow_metadata")

    await asyncio.gather(*(starter() for _ in range(_STARTERS)))
    return handles


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
