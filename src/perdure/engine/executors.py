"""Where sync activities run: a pool of threads, and a pool of processes for CPU-bound ones.

A time-out abandons the thread, it cannot stop it: Python has no way to. The attempt counts as
failed, the thread goes on until the function returns, and its slot is busy until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.engine.definitions import Activity
from perdure.engine.errors import InvalidDefinition
from perdure.engine.options import EngineOptions
from perdure.ids import Id

if TYPE_CHECKING:
    from perdure.engine.context.activity import ActivityContext

__all__ = ["Executors", "ProcessContext"]


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What an activity in another process sees: the plain facts of its attempt."""

    workflow_id: Id
    workflow_name: str
    activity_name: str
    ray_id: Id
    attempt: int


class Executors:
    """The pools of one engine; each starts at first use."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._threads: Executor | None = None
        self._processes: ProcessPoolExecutor | None = None
        self._thread_places = asyncio.Semaphore(options.threads)
        self._process_places = asyncio.Semaphore(options.processes or os.cpu_count() or 1)

    async def call(self, activity: Activity[Any, Any], ctx: ActivityContext, argument: Any) -> Any:
        """Run a sync activity in its pool and return its result.

        It waits for a free place first: the attempt, and with it its time-outs, begins after that.
        """
        places = self._process_places if activity.process else self._thread_places
        await places.acquire()
        ctx.begin()
        if activity.process:
            try:
                return await self._in_process(activity, ctx, argument)
            finally:
                places.release()
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        running = self._thread_pool().submit(context.run, _call, activity, ctx, argument)
        # The place is free when the function ends, also when nobody waits for it any more.
        running.add_done_callback(lambda _: _on_loop(loop, places.release))
        return await asyncio.wrap_future(running)

    async def _in_process(
        self, activity: Activity[Any, Any], ctx: ActivityContext, argument: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        facts = ProcessContext(
            ctx.workflow_id,
            ctx.workflow_name,
            ctx.activity_name,
            ctx.ray_id,
            ctx.attempt,
        )
        stored = activity.input_codec.encode(argument)
        pool = self._process_pool()
        try:
            output = await loop.run_in_executor(
                pool,
                _run_in_process,
                activity.function.__module__,
                activity.function.__qualname__,
                facts,
                stored,
            )
        except BrokenProcessPool:
            # A process was killed or could not start; this pool refuses everything from now on.
            if self._processes is pool:
                self._processes = None
            raise
        return activity.output_codec.decode(output)

    def _thread_pool(self) -> Executor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._options.threads, thread_name_prefix="perdure-activity"
            )
        return self._threads

    def _process_pool(self) -> Executor:
        if self._processes is None:
            # Never fork: the child would share the store's files and threads' locks.
            self._processes = ProcessPoolExecutor(
                self._options.processes,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_end_with_parent,
            )
        return self._processes

    def close(self) -> None:
        """Let the pools go without waiting for functions that do not return."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            self._processes.shutdown(wait=False, cancel_futures=True)


def _on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for a place
        loop.call_soon_threadsafe(callback)


def _call(activity: Activity[Any, Any], ctx: Any, argument: Any) -> Any:
    try:
        return activity.call(ctx, argument)
    except StopIteration as error:
        # A future cannot carry it: whoever awaits that would wait for ever.
        raise RuntimeError(f"activity {activity.name} raised StopIteration") from error


def _end_with_parent() -> None:
    """Make this process end when its engine is killed; else it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="perdure-parent-watch", daemon=True).start()


def _run_in_process(
    module: str, qualified_name: str, facts: ProcessContext, stored: bytes
) -> bytes:
    """Find the activity by its import path and run it; both ends speak the stored form."""
    found: Any = importlib.import_module(module)
    for part in qualified_name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Activity):
        raise InvalidDefinition(
            "activity", qualified_name, f"a process cannot import it as {module}.{qualified_name}"
        )
    result = _call(found, facts, found.input_codec.decode(stored))
    return found.output_codec.encode(result)
