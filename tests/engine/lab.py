"""Where tests of the programming model run: a store, engines on it, and a clock.

In the usual lab the store is in memory and the clock moves by itself: it stands still while
anything can run and then jumps to the next timer, so a sleep of a week takes a millisecond and
tests may simply await a result. Code that leaves the event loop (threads, files) needs the lab with
real time.

Every lab exists twice: with a bus that delivers, and with one that loses every message. A test that
needs the bus for more than speed fails in the second.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from perdure import Engine, EngineOptions, Handle, Workflow
from perdure.clock import SYSTEM_CLOCK, Clock, VirtualClock
from perdure.engine.admin.views import HistoryNode
from perdure.engine.database.inspect import Description
from perdure.kv import Database, open_database
from perdure.pubsub import DroppingPubSub, MemoryPubSub, PubSub

IDLE_TURNS = 20_000
MOST_JUMPS = 20_000
TRIES = 200
GROWTH = 1.03
"""Waiting for something gives up after about two minutes: pauses grow from 10 ms."""
REAL_TIMES = EngineOptions(poll_interval=0.05, linger=0.02, shed_load=False)
VIRTUAL_TIMES = EngineOptions(shed_load=False)


class Lab:
    """One store, and the engines started on it one after the other."""

    def __init__(self, clock: Clock, *, store: str | None, deaf: bool) -> None:
        self.clock = clock
        self.deaf = deaf
        self.options = VIRTUAL_TIMES if isinstance(clock, VirtualClock) else REAL_TIMES
        self.wrong: list[str] = []
        self._random = random.Random(7)
        self._path = store
        self._memory: Database | None = None
        self._engines: list[Engine] = []
        self._mover: asyncio.Task[None] | None = None

    async def open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._hear_loop)
        if self._path is None:
            self._memory = await open_database("memory:", clock=self.clock)
        if isinstance(self.clock, VirtualClock):
            self._mover = asyncio.create_task(self._move(self.clock))

    async def close(self) -> None:
        """Shut everything down; fail if anything went wrong behind the scenes."""
        for engine in self._engines:
            await engine.shutdown()
        if self._mover is not None:
            self._mover.cancel()
            await asyncio.wait([self._mover])
        if self._memory is not None:
            await self._memory.close()
        assert not self.wrong, self.wrong

    def _hear_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.wrong.append(f"{context['message']}: {context.get('exception')!r}")

    # -- engines

    async def engine(
        self,
        *workflows: Workflow[Any, Any],
        worker: bool = True,
        options: EngineOptions | None = None,
        **parts: Any,
    ) -> Engine:
        """Start an engine that runs these workflows."""
        bus: PubSub = DroppingPubSub() if self.deaf else MemoryPubSub.shared(f"lab:{id(self)}")
        engine = Engine(
            self._memory or f"rocksdb:{self._path}",
            workflows=workflows,
            worker=worker,
            options=options or self.options,
            clock=self.clock,
            pubsub=bus,
            random=random.Random(self._random.random()),
            **parts,
        )
        await engine.start()
        self._engines.append(engine)
        return engine

    async def restart(self, *workflows: Workflow[Any, Any]) -> Engine:
        """Shut the last engine down and start another one, with these workflows, on its store."""
        last = self._engines[-1]
        await last.shutdown()
        self._engines.remove(last)
        return await self.engine(*workflows)

    def again(self, handle: Handle[Any]) -> Handle[Any]:
        """Return a handle on the same workflow through the latest engine."""
        return self._engines[-1].handle(handle._workflow, handle.id)

    # -- waiting

    async def pause(self, seconds: float) -> None:
        """Let this much time pass."""
        await self.clock.sleep(seconds)

    async def until(self, check: Callable[[], bool]) -> None:
        """Wait until `check()` holds."""
        pause = 0.01
        for _ in range(TRIES):
            if check():
                return
            await self.clock.sleep(pause)
            pause *= GROWTH
        raise AssertionError("it did not happen")

    async def in_state(self, handle: Handle[Any], state: str) -> Description:
        """Wait until the workflow is in a state; `sleeping` means that nothing is due."""
        handle = self.again(handle)
        pause = 0.01
        for _ in range(TRIES):
            found = await handle.describe()
            if found.state == state and found.status.immediate_at is None:
                return found
            await self.clock.sleep(pause)
            pause *= GROWTH
        raise AssertionError(f"the workflow is {found.state}, not {state}")

    async def asleep(self, handle: Handle[Any]) -> Description:
        """Wait until the workflow has left memory."""
        return await self.in_state(handle, "sleeping")

    async def history(self, handle: Handle[Any], *, forgotten: bool = False) -> list[HistoryNode]:
        """Return the tree of recorded events."""
        admin = self._engines[-1].admin
        return (await admin.history(str(handle.id), forgotten=forgotten)).events

    async def outline(self, handle: Handle[Any], *, forgotten: bool = False) -> list[str]:
        """Return the recorded events as lines such as `{2, 1} activity charge`."""
        return _lines(await self.history(handle, forgotten=forgotten))

    # -- the clock that moves by itself

    async def _move(self, clock: VirtualClock) -> None:
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(MOST_JUMPS):
            for _ in range(IDLE_TURNS):
                await asyncio.sleep(0)
                if not ready:
                    break
            else:
                self.wrong.append("something runs round and round without the clock moving")
                break
            step = clock.next_timer_in()
            if step is None:
                await asyncio.sleep(0.001)
            else:
                clock.advance(step * 1000)
        else:
            self.wrong.append("time passes and passes, and what the test waits for does not happen")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _lines(nodes: list[HistoryNode]) -> list[str]:
    lines = []
    for node in nodes:
        mark = " (forgotten)" if node.forgotten else ""
        lines.append(f"{node.location} {node.kind}{f' {node.name}' if node.name else ''}{mark}")
        lines += _lines(node.children)
    return lines


def virtual(*, deaf: bool) -> Lab:
    """A lab in memory whose clock moves by itself."""
    return Lab(VirtualClock(), store=None, deaf=deaf)


def real(*, deaf: bool, store: str | None = None) -> Lab:
    """A lab with real time, in memory or on a RocksDB store."""
    return Lab(SYSTEM_CLOCK, store=store, deaf=deaf)
