"""The clock of one process: the simulation's time, and a wall clock that may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.clock import Timer
from perdure.testing.simulation.loop import SimulationLoop

__all__ = ["SimulatedClock"]

_START_MS = 1_700_000_000_000


class SimulatedClock:
    """A `perdure.clock.Clock` on a simulation's loop. `offset_ms` is how wrong the wall clock is.

    The monotonic clock is the same everywhere: it is right by definition, and nobody compares those
    of two processes.
    """

    def __init__(self, loop: SimulationLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self.offset_ms = offset_ms

    def now(self) -> int:
        # A timer fires at a sum of floats; a hair too early must not look like a millisecond less.
        return _START_MS + self.offset_ms + int(self._loop.time() * 1000 + 1e-3)

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(max(seconds, 0), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))

    def jump(self, ms: int) -> None:
        """Move the wall clock of this process only, forward or (negative) back."""
        self.offset_ms += ms
