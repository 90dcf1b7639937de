"""What one core does in the comparison: it runs programs, is told to evict runs, and replays.

The same code serves both cores: ours in the process of the tests, the compiled one in a process of
its own (`compiled`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker
from tests.temporal.fuzz.interpreter import ACTIVITIES, WORKFLOWS, replays

__all__ = ["CACHES", "Host", "host", "queue_of", "quiet_client"]

CACHES = (0, 1, 2)


def queue_of(prefix: str, cache: int) -> str:
    """The task queue of the worker that keeps this many workflows."""
    return f"{prefix}-{cache}"


async def quiet_client(server: str) -> Client:
    """A client whose core does not log what the programs do on purpose."""
    filtered = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=filtered)))
    return await Client.connect(server, runtime=runtime)


class Host:
    """The workers of one core."""

    def __init__(self, workers: Sequence[Worker], runtime: Runtime) -> None:
        self._workers = workers
        self._runtime = runtime

    async def evict(self, run_id: str) -> None:
        """Drop the run from the cache of whoever has it."""
        for worker in self._workers:
            assert worker._bridge_worker is not None
            worker._bridge_worker.request_workflow_eviction(run_id)

    async def replay(self, histories: dict[str, list[str]], *, later: bool) -> dict[str, Any]:
        """Replay histories; how each ended: an error, or the kind and content of its last event.

        By the run's id, `histories` has the workflow's id and the history as JSON. With `later`
        the code of the next release replays them.
        """
        replayer = Replayer(
            workflows=WORKFLOWS,
            workflow_runner=UnsandboxedWorkflowRunner(),
            runtime=self._runtime,
        )
        replays.running |= histories.keys()
        if later:
            replays.later |= histories.keys()
        parsed = [WorkflowHistory.from_json(*history) for history in histories.values()]
        results = await replayer.replay_workflows(_each(parsed), raise_on_replay_failure=False)
        ends: dict[str, Any] = {}
        for run_id in histories:
            failure = results.replay_failures.get(run_id)
            kind, end = replays.ends.pop(run_id, ("unfinished", "null"))
            ends[run_id] = ["error", str(failure)] if failure else [kind, json.loads(end)]
            replays.running.discard(run_id)
            replays.later.discard(run_id)
        return ends


async def _each(histories: list[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for history in histories:
        yield history


@asynccontextmanager
async def host(client: Client, prefix: str) -> AsyncIterator[Host]:
    """Workers of every size of cache, on the core of this process."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                Worker(
                    client,
                    task_queue=queue_of(prefix, cache),
                    workflows=WORKFLOWS,
                    activities=ACTIVITIES,
                    workflow_runner=UnsandboxedWorkflowRunner(),
                    max_cached_workflows=cache,
                    max_heartbeat_throttle_interval=timedelta(milliseconds=50),
                    default_heartbeat_throttle_interval=timedelta(milliseconds=50),
                )
            )
            for cache in CACHES
        ]
        yield Host(workers, client.service_client.config.runtime or Runtime.default())
