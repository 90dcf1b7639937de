"""Whole fleets in one thread, in made-up time, from one seed.

Several engines run on one store, with a network in between that loses, delays and doubles messages,
a store that conflicts, forgets its answers and takes its time, clocks that are wrong, and processes
that are paused and killed at any await. A seed repeats a run step by step. Use it to test your own
workflows:

    async def scenario(simulation: Simulation) -> None:
        simulation.store.trouble = StoreTrouble(conflict=0.1, unknown=0.05)
        first, second = (simulation.machine(name, [fulfil]) for name in ("first", "second"))
        await first.start()
        await second.start()
        handle = await first.process.call(first.engine.dispatch(fulfil, order))
        first.process.kill_after(turns=simulation.random.randrange(500))
        again = second.engine.handle(fulfil, handle.id)
        assert await second.process.call(again.result()) == expected

    for seed in range(100):
        simulate(seed, scenario)

Activities must be async and take their time from `asyncio.sleep`: threads run in real time, which
no seed repeats.
"""

from perdure.testing.simulation.bus import BusTrouble, SimulatedBus
from perdure.testing.simulation.clock import SimulatedClock
from perdure.testing.simulation.loop import (
    Process,
    ProcessDied,
    SimulationLoop,
    SimulationStuck,
)
from perdure.testing.simulation.store import SimulatedStore, StoreTrouble
from perdure.testing.simulation.world import Machine, Simulation, simulate

__all__ = [
    "BusTrouble",
    "Machine",
    "Process",
    "ProcessDied",
    "SimulatedBus",
    "SimulatedClock",
    "SimulatedStore",
    "Simulation",
    "SimulationLoop",
    "SimulationStuck",
    "StoreTrouble",
    "simulate",
]
