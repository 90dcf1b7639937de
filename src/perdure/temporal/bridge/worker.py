"""Workers, as the SDK holds them: bytes in and out, futures that are under way, agreed errors.

What a worker does is in `perdure.temporal.worker`, which is imported with the first worker: its
modules need temporalio, whose import needs this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from perdure.errors import CallerError

if TYPE_CHECKING:
    from temporalio.bridge.worker import WorkerConfig

    from perdure.temporal.bridge.client import ClientRef
    from perdure.temporal.bridge.runtime import RuntimeRef
    from perdure.temporal.worker.live import LiveWorker
    from perdure.temporal.worker.replay import ReplayWorker

__all__ = ["HistoryPusher", "WorkerRef", "new_replay_worker", "new_worker"]


class WorkerRef:
    """A worker of the SDK."""

    def __init__(self, runtime: RuntimeRef, worker: LiveWorker | ReplayWorker) -> None:
        self._runtime = runtime
        self._worker = worker

    def validate(self) -> Awaitable[bytes]:
        """Check that the namespace exists; the answer is what is known about it."""
        self._runtime.process.check("use worker")
        return asyncio.get_running_loop().create_task(self._worker.validate())

    def poll_workflow_activation(self) -> Awaitable[bytes]:
        self._runtime.process.check("use worker")
        return self._worker.poll_workflow_activation()

    def poll_activity_task(self) -> Awaitable[bytes]:
        self._runtime.process.check("use worker")
        return self._worker.poll_activity_task()

    def poll_nexus_task(self) -> Awaitable[bytes]:
        self._runtime.process.check("use worker")
        return self._worker.poll_nexus_task()

    def complete_workflow_activation(self, proto: bytes) -> Awaitable[None]:
        """Take lang's answer to an activation.

        Done at once, while the report to the server may still be under way: what becomes of that
        is never told to lang this way but by the next activation (an eviction, if it failed), which
        does not come earlier. `finalize_shutdown` waits for what is under way.
        """
        return _done(self._worker.complete_workflow_activation, proto)

    def complete_activity_task(self, proto: bytes) -> Awaitable[None]:
        return _done(self._worker.complete_activity_task, proto)

    def complete_nexus_task(self, proto: bytes) -> Awaitable[None]:
        return _done(self._worker.complete_nexus_task, proto)

    def record_activity_heartbeat(self, proto: bytes) -> None:
        self._runtime.process.check("use worker")
        try:
            self._worker.record_activity_heartbeat(proto)
        except DecodeError as error:
            raise ValueError(f"Invalid proto: {error}") from None

    def request_workflow_eviction(self, run_id: str) -> None:
        self._worker.request_workflow_eviction(run_id)

    def replace_client(self, client: ClientRef) -> None:
        self._worker.replace_client(client)

    def initiate_shutdown(self) -> None:
        """Take no new work. May be called again."""
        self._worker.initiate_shutdown()

    def finalize_shutdown(self) -> Awaitable[None]:
        """Wait until everything of the worker has ended."""
        return asyncio.get_running_loop().create_task(self._worker.finalize_shutdown())


class HistoryPusher:
    """Feeds histories to a replay worker, one at a time."""

    def __init__(self, worker: ReplayWorker) -> None:
        self._worker = worker

    def push_history(self, workflow_id: str, history: bytes) -> Awaitable[None]:
        """Replay this history next; done when there is room for another one."""
        try:
            return self._worker.push(workflow_id, history)
        except DecodeError as error:
            raise ValueError(f"Invalid proto: {error}") from None

    def close(self) -> None:
        """No more histories will come."""
        self._worker.close()


def new_worker(runtime: RuntimeRef, client: ClientRef, config: WorkerConfig) -> WorkerRef:
    """A worker on a connected client; ValueError when its configuration is wrong."""
    runtime.process.check("create worker")
    from perdure.temporal.worker.live import LiveWorker

    return WorkerRef(runtime, LiveWorker(client, config))


def new_replay_worker(runtime: RuntimeRef, config: WorkerConfig) -> tuple[WorkerRef, HistoryPusher]:
    """A worker that replays histories, without a server."""
    runtime.process.check("create replay worker")
    from perdure.temporal.worker.replay import ReplayWorker

    worker = ReplayWorker(config, runtime.log)
    return WorkerRef(runtime, worker), HistoryPusher(worker)


def _done(complete: Callable[[bytes], None], proto: bytes) -> Awaitable[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        complete(proto)
    except DecodeError as error:
        future.set_exception(ValueError(f"Invalid proto: {error}"))
    except CallerError as error:
        future.set_exception(RuntimeError(f"Completion failure: {error}"))
    else:
        future.set_result(None)
    return future
