"""The simulation itself: time, processes, and that a seed repeats."""

import asyncio

import pytest
from tests.engine.chaos.chaos import Chaos

from perdure.kv import Transaction
from perdure.testing.simulation import (
    BusTrouble,
    Process,
    ProcessDied,
    Simulation,
    SimulationStuck,
    simulate,
)


def test_time_passes_only_when_everybody_waits() -> None:
    async def main(simulation: Simulation) -> list[float]:
        times = []
        for seconds in (86_400, 0, 0.25):
            await simulation.sleep(seconds)
            times.append(simulation.loop.time())
        return times

    assert simulate(1, main) == [86_400, 86_400, 86_400.25]


def test_a_world_in_which_nothing_can_happen_is_told() -> None:
    async def main(simulation: Simulation) -> None:
        await simulation.loop.create_future()

    with pytest.raises(SimulationStuck, match="no timer is left"):
        simulate(1, main)


async def count(numbers: list[int]) -> None:
    try:
        while True:
            numbers.append(len(numbers))
            await asyncio.sleep(1)
    finally:
        numbers.append(-1)


def test_a_paused_process_does_nothing_and_goes_on() -> None:
    async def main(simulation: Simulation) -> None:
        process, numbers = simulation.process("p"), list[int]()
        process.spawn(count(numbers))
        await simulation.sleep(2.5)
        process.pause()
        await simulation.sleep(100)
        assert numbers == [0, 1, 2]
        process.resume()
        await simulation.sleep(1.5)
        assert numbers == [0, 1, 2, 3, 4]

    simulate(1, main)


def test_a_killed_process_runs_nothing_more_not_even_its_finally() -> None:
    async def main(simulation: Simulation) -> None:
        process, numbers = simulation.process("p"), list[int]()
        process.spawn(count(numbers))
        call = asyncio.ensure_future(process.call(asyncio.sleep(1000)))
        await simulation.sleep(0.5)
        process.kill()
        await simulation.sleep(100)
        assert numbers == [0]
        with pytest.raises(ProcessDied):
            await call
        with pytest.raises(ProcessDied):
            await process.call(asyncio.sleep(0))
        await process.bury()
        assert numbers == [0, -1]
        assert process.tasks == []

    simulate(1, main)


def test_a_process_can_die_at_any_await() -> None:
    async def main(simulation: Simulation) -> None:
        for turns in range(1, 5):
            process, numbers = simulation.process(f"p{turns}"), list[int]()
            process.kill_after(turns)
            process.spawn(count(numbers))
            await simulation.sleep(100)
            assert not process.alive
            assert process.turns == turns

    simulate(1, main)


def test_the_store_does_what_it_was_sent_by_one_who_died() -> None:
    async def main(simulation: Simulation) -> None:
        process = simulation.process("p")
        database = simulation.store.connect(process, simulation.clock)

        async def write(tx: Transaction) -> None:
            tx.set(b"key", b"value")

        call = asyncio.ensure_future(process.call(database.run(write, name="write")))
        simulation.store.before = lambda dead, _batch: dead.kill()
        with pytest.raises(ProcessDied):
            await call
        await simulation.sleep(1)
        assert await simulation.store.database().transaction().get(b"key") == b"value"

    simulate(1, main)


@pytest.mark.parametrize(
    ("trouble", "heard"), [(BusTrouble(lose=1), 0), (BusTrouble(double=1, latest=5), 2)]
)
def test_messages_are_lost_and_doubled(trouble: BusTrouble, heard: int) -> None:
    async def main(simulation: Simulation) -> None:
        simulation.bus.trouble = trouble
        payloads: list[bytes] = []
        listener, speaker = simulation.bus.connect(), simulation.bus.connect()
        listener.subscribe("subject", payloads.append)
        speaker.publish("subject", b"hello")
        await simulation.sleep(10)
        assert payloads == [b"hello"] * heard
        await listener.close()
        assert simulation.bus.subscriptions == []

    simulate(1, main)


def test_a_seed_repeats_step_by_step() -> None:
    async def main(simulation: Simulation) -> list[tuple[float, str, int]]:
        story: list[tuple[float, str, int]] = []
        chaos = Chaos(simulation)
        watched = simulation.store.before

        def tell(process: Process, batch: object) -> None:
            watched(process, batch)  # type: ignore[arg-type]  # handed on as it is
            story.append((simulation.loop.time(), process.name, process.turns))

        simulation.store.before = tell
        await chaos.rage()
        return story

    first = simulate(5, main)
    assert len(first) > 20
    assert simulate(5, main) == first
    assert simulate(6, main) != first
