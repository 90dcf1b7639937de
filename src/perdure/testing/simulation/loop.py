"""An event loop whose time is made up, and the processes that share it.

**Time.** The loop asks its selector how long to wait. This one never waits: when every task is
blocked it moves the time to the next timer. A day of sleep costs a microsecond. When nothing is
left that could ever happen, it says so instead of hanging (`SimulationStuck`).

**Processes.** A `Process` is everything that was started by one `spawn`, found by its context: the
tasks, callbacks and timers that come of it belong to it. A process can be *paused* (nothing of it
runs, the world goes on: a stopped machine, a long collection of garbage) and *killed* (nothing of
it ever runs again, no `finally`, no `except`: a power cut). Both can happen at any await, because
an await ends with a callback and every callback passes through its process.

The dead keep their tasks until `bury`, which lets them unwind when it can no longer matter; without
that, Python would do so at a moment of its own choice, and a run would not repeat.

Work in threads and processes runs in real time and is not waited for: simulate async code only.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

__all__ = ["Process", "ProcessDied", "SimulationLoop", "SimulationStuck"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_TURNS: Final = 200_000
"""Turns of the loop without time passing, after which something runs round and round."""

_TOLD_TURNS: Final = 10
_RESOLUTION: Final = 1e-6

_current: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimulationStuck(RuntimeError):
    """Nothing can happen any more, or the same things happen without end."""


class ProcessDied(Exception):
    """The process that was to do something was killed before it was done."""

    def __init__(self, name: str) -> None:
        super().__init__(f"process {name} was killed")
        self.name = name


class _Selector(selectors.DefaultSelector):
    """Moves the time of its loop instead of waiting."""

    loop: SimulationLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise SimulationStuck("all tasks wait, and no timer is left that could wake one")
        self.loop.move(timeout)
        return ready


class SimulationLoop(asyncio.SelectorEventLoop):
    """See the module. `time()` begins at zero, in seconds."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self._elapsed = 0.0
        self._turns = 0
        self._round: set[str] = set()
        # Timers this close together fire in one turn: it covers the rounding of sums of floats.
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        return self._elapsed

    def move(self, seconds: float) -> None:
        """Let time pass, without firing timers; the loop does that next."""
        if seconds > 0:
            self._elapsed += seconds
            self._turns = 0
            return
        self._turns += 1
        if self._turns > MOST_TURNS:
            round_and_round, self._round = sorted(self._round), set()
            self._turns = 0
            raise SimulationStuck(
                f"no time passes, and these run again and again: {round_and_round}"
            )

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._turns > MOST_TURNS - _TOLD_TURNS:
            self._round.add(repr(getattr(callback, "__self__", callback)))
        process = _owner(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        turn = _Turn(process, callback, args, context)
        turn.handle = handle = super().call_soon(turn, context=turn.context)
        return handle

    def again(self, turn: _Turn) -> None:
        """Schedule once more what could not run when it was its turn."""
        super().call_soon(turn, context=turn.context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if when > self._elapsed:
            # A wait of no length would come back at once, and time would never pass.
            when = max(when, self._elapsed + 2 * _RESOLUTION)
        process = _owner(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        turn = _Turn(process, callback, args, context)
        turn.handle = handle = super().call_at(when, turn, context=turn.context)
        return handle

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        process = _owner(context)
        if process is not None:
            process.adopt(task)
        return task


def _owner(context: contextvars.Context | None) -> Process | None:
    return _current.get() if context is None else context.get(_current)


class _Turn:
    """One callback of a process, on its way through the loop."""

    __slots__ = ("args", "callback", "context", "handle", "process")

    handle: asyncio.Handle

    def __init__(
        self,
        process: Process,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context

    def __call__(self) -> None:
        # It may have been cancelled while its process was paused.
        if not self.handle.cancelled() and self.process.may_run(self):
            self.callback(*self.args)


class Process:
    """Everything that one part of a simulated system does. Made by `Simulation.process`."""

    def __init__(self, name: str, loop: SimulationLoop) -> None:
        self.name = name
        self.turns = 0
        """How many callbacks of it have run."""
        self.alive = True
        self.paused = False
        self.died: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._waiting: list[_Turn] = []
        self._killed_at: int | None = None
        self._buried = False
        self._context = contextvars.copy_context()
        self._context.run(_current.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that belongs to this process, and all that comes of it."""
        return self._loop.create_task(work, context=self._context.copy())

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Let this process do something and wait for the result. Raises `ProcessDied`."""
        if not self.alive:
            work.close()
            raise ProcessDied(self.name)
        task = self.spawn(work)
        ends: list[asyncio.Future[Any]] = [task, self.died]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProcessDied(self.name)
        return task.result()

    def pause(self) -> None:
        """Stop everything until `resume`; messages and answers pile up meanwhile."""
        self.paused = True

    def resume(self) -> None:
        """Go on as if no time had passed."""
        self.paused = False
        if self.alive:
            self._release()

    def kill(self) -> None:
        """End it where it is. No code of it runs any more."""
        if self.alive:
            self.alive = False
            self.died.set_result(None)

    def kill_after(self, turns: int) -> None:
        """Kill it after so many more callbacks: at an await somewhere in its code."""
        self._killed_at = self.turns + turns

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Its tasks that have not ended, oldest first."""
        return list(self._tasks)

    async def bury(self) -> None:
        """Unwind the tasks of a dead process. Call it when nothing of it can matter any more."""
        self.kill()
        self._buried = True
        while self._tasks:
            for task in self.tasks:
                task.cancel()
            self._release()
            await asyncio.wait(self.tasks, timeout=1)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task as one of this process."""
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=contextvars.Context())

    def may_run(self, turn: _Turn) -> bool:
        """Say whether a callback runs now; if not, it waits in this process."""
        if self._killed_at is not None and self.turns >= self._killed_at:
            self.kill()
        if (self.alive and not self.paused) or self._buried:
            self.turns += 1
            return True
        self._waiting.append(turn)
        return False

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            self._loop.again(turn)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self._buried and not task.cancelled():
            task.exception()  # whatever it is, it is told to nobody
