"""The simulation: a seed, and everything that follows from it."""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from perdure.engine.definitions import Workflow
from perdure.engine.engine import Engine
from perdure.engine.options import EngineOptions
from perdure.testing.simulation.bus import SimulatedBus
from perdure.testing.simulation.clock import SimulatedClock
from perdure.testing.simulation.loop import Process, SimulationLoop
from perdure.testing.simulation.store import SimulatedStore

__all__ = ["Machine", "Simulation", "simulate"]

T = TypeVar("T")


class Machine:
    """An engine in a process of its own, with its own clock and its own way to the store.

    `process` pauses and kills it, `clock` is wrong if told so. Call the engine from outside with
    `await machine.process.call(machine.engine.dispatch(...))`.
    """

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        workflows: Iterable[Workflow[Any, Any]],
        options: EngineOptions,
        worker: bool,
    ) -> None:
        self.process = simulation.process(name)
        self.clock = SimulatedClock(simulation.loop)
        self.engine = Engine(
            simulation.store.connect(self.process, self.clock),
            workflows=workflows,
            worker=worker,
            options=options,
            clock=self.clock,
            pubsub=simulation.bus.connect(),
            random=simulation.random_for(name),
        )

    async def start(self) -> None:
        """Start the engine. Raises `ProcessDied`."""
        await self.process.call(self.engine.start())

    async def shutdown(self) -> None:
        """Shut the engine down gracefully. Raises `ProcessDied`."""
        await self.process.call(self.engine.shutdown())


class Simulation:
    """A store, a bus, and the machines on them. All randomness comes from `seed`.

    `wrong` collects what reached the loop's exception handler: nothing should.
    """

    def __init__(self, seed: int, loop: SimulationLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.random = self.random_for("simulation")
        self.clock = SimulatedClock(loop)
        self.store = SimulatedStore(loop, self.random_for("store"))
        self.bus = SimulatedBus(loop, self.random_for("bus"))
        self.processes: list[Process] = []
        self.wrong: list[str] = []

    def random_for(self, part: str) -> random_module.Random:
        """A source of randomness for one part, so that parts do not disturb each other."""
        return random_module.Random(f"{self.seed} {part}")

    def process(self, name: str) -> Process:
        """Make a new process."""
        process = Process(name, self.loop)
        self.processes.append(process)
        return process

    def machine(
        self,
        name: str,
        workflows: Iterable[Workflow[Any, Any]] = (),
        *,
        options: EngineOptions | None = None,
        worker: bool = True,
    ) -> Machine:
        """Make a machine; `name` should be new, also after a restart. Start it with `start`.

        Shedding is off by default: it measures the real CPU, which no seed repeats.
        """
        chosen = options or EngineOptions(shed_load=False)
        return Machine(self, name, workflows, chosen, worker)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        """Kill what still runs and let the dead unwind."""
        for process in self.processes:
            await process.bury()

    def hear(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what the loop complains about."""
        self.wrong.append(f"{context['message']}: {context.get('exception')!r}")


def simulate(seed: int, main: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
    """Run `main(simulation)` in made-up time and return its result.

    The same seed gives the same run, step by step, if `main` takes its randomness from the
    simulation and never waits for anything real.
    """
    loop = SimulationLoop()

    async def run() -> T:
        simulation = Simulation(seed, loop)
        loop.set_exception_handler(simulation.hear)
        try:
            return await main(simulation)
        finally:
            await simulation.end()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())
