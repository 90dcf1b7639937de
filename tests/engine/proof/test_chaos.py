"""Everything goes wrong at once, by the dice: crashes, lost answers, conflicts, workers that come,
go and die, cancels at any moment. A seed that fails fails again.
"""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from tests.engine.proof.everything import (
    LEDGER,
    Ledger,
    Scene,
    double,
    everything,
    expected,
    helper,
    saga,
)
from tests.engine.proof.stage import Stage

from perdure import Engine, Id, WorkflowCancelled, WorkflowFinished, WorldError
from perdure.kv.faults import Crash

WORKFLOWS = (everything, helper, double, saga)
ALL = 4
SAGAS = 6


class Monkey:
    """Disturbs a stage until the work is done."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.dice = random.Random(seed)
        self.crashes = 8
        self.client: Engine | None = None

    def id_of(self, number: int) -> Id:
        return Id.new(random_bytes=random.Random(number).randbytes)

    async def perform(self) -> None:
        while True:
            self._order_faults()
            try:
                self.client = await self.stage.engine(*WORKFLOWS)
                disturbing = asyncio.ensure_future(self._disturb())
                await self.stage.until(self._all())
                disturbing.cancel()
                return
            except Crash:
                await self.stage.restart()
            except WorldError:
                # A caller got no answer; it asks again, after the death of its process.
                await self.stage.restart()

    def _order_faults(self) -> None:
        faults, dice = self.stage.faults, self.dice
        for commit in dice.sample(range(20, 1500), 150):
            if dice.random() < 0.5:
                faults.conflict(commit=commit)
            else:
                faults.unknown(commit=commit, applied=dice.random() < 0.5)
        if self.crashes:
            self.crashes -= 1
            faults.crash(commit=dice.randrange(10, 400), durable=dice.random() < 0.5)

    async def _all(self) -> None:
        await asyncio.gather(
            *(self._everything(number) for number in range(ALL)),
            *(self._saga(number) for number in range(ALL, ALL + SAGAS)),
        )

    async def _everything(self, number: int) -> None:
        assert self.client is not None
        handle = await self.client.dispatch(everything, number, id=self.id_of(number))
        assert await handle.result() == expected(number)

    async def _saga(self, number: int) -> None:
        assert self.client is not None
        handle = await self.client.dispatch(saga, id=self.id_of(number), unique=f"saga {number}")
        assert handle.id == self.id_of(number)
        await self.stage.clock.sleep(self.dice.choice([0, 0.1, 1, 50, 500]))
        with suppress(WorkflowFinished):
            await handle.cancel("rain")
        with pytest.raises(WorkflowCancelled, match="rain"):
            await handle.result()

    async def _disturb(self) -> None:
        """Start, stop and kill other workers."""
        stage, dice = self.stage, self.dice
        others: list[Engine] = []
        while True:
            await stage.clock.sleep(dice.uniform(0.1, 40))
            with suppress(WorldError):
                if len(others) < 3:
                    others.append(stage.prepare(*WORKFLOWS))
                    await others[-1].start()
                elif dice.random() < 0.5:
                    await others.pop(0).shutdown(timeout=dice.choice([0, 1, 30]))
                else:
                    self._kill(others.pop(0))

    def _kill(self, engine: Engine) -> None:
        self.stage.engines.remove(engine)
        if engine.worker is not None:
            for task in (*engine.worker._loops, *engine.worker._tasks):
                task.cancel()

    async def check(self) -> None:
        assert self.client is not None
        for number in range(ALL):
            state = await self.client.handle(None, self.id_of(number)).state(Ledger)
            assert state is not None
            assert state.lines == LEDGER
        for number in range(ALL, ALL + SAGAS):
            state = await self.client.handle(None, self.id_of(number)).state(Ledger)
            assert state is not None
            booked = [line[5:] for line in state.lines if line.startswith("book ")]
            released = [line[8:] for line in state.lines if line.startswith("release ")]
            assert released == booked[::-1]
            assert booked == ["flight", "hotel"][: len(booked)]
            assert state.lines[-1] == "tell: rain 3"
        assert await self.stage.leftovers() == []
        counts: dict[str, Any] = await self.stage.counts()
        assert counts == {
            "everything": {"complete": ALL},
            "helper": {"complete": ALL},
            "double": {"complete": 2 * ALL},
            "saga": {"cancelled": SAGAS},
        }


async def play(seed: int) -> None:
    stage = Stage()
    Scene.stage = stage
    monkey = Monkey(stage, seed)
    await monkey.perform()
    # What was ordered beyond the end must not disturb the check.
    stage.driver.faults._ordered.clear()
    await monkey.check()
    for engine in list(stage.engines):
        # The dice may have left a half-closed one.
        await stage.until(engine.shutdown())
    await stage.die()
    assert not stage.wrong, stage.wrong


@pytest.mark.parametrize("seed", range(12))
async def test_chaos(seed: int) -> None:
    await play(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
async def test_more_chaos(seed: int) -> None:
    await play(seed)
