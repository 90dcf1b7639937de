"""The store dies, or misbehaves, at every single commit of a workflow, and nothing comes out wrong.

Right means: the result; the state, in which every finished activity is exactly once; no activity
called again that was recorded as finished; the history, event by event the one of an undisturbed
run; and no row left behind.
"""

import dataclasses
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from tests.engine.proof.everything import (
    LEDGER,
    SAGA_LEDGER,
    Ledger,
    Scene,
    double,
    everything,
    expected,
    helper,
    saga,
)
from tests.engine.proof.stage import KEYS, OPTIONS, Stage

from perdure import Engine, Id, WorkflowCancelled, WorkflowFinished, WorldError
from perdure.engine.database.inspect import history_rows
from perdure.engine.history.events import SleepEvent, decode_event
from perdure.kv.faults import Crash, Faults

# Rare pings: they are commits too, and all alike.
SETTINGS = dataclasses.replace(OPTIONS, ping_interval=200.0, lost_after=600.0)
ID = Id.new(random_bytes=bytes)
WORKFLOWS = (everything, helper, double, saga)

Order = Callable[[Faults], object]


class Everything:
    """The workflow of all steps, from outside."""

    ledger = LEDGER
    counts = MappingProxyType(
        {
            "everything": {"complete": 1},
            "helper": {"complete": 1},
            "double": {"complete": 2},
        }
    )

    async def play(self, stage: Stage, engine: Engine) -> None:
        handle = await engine.dispatch(everything, 21, id=ID)
        assert await handle.result() == expected(21)


class Saga:
    """A workflow that is cancelled in its sleep, and compensates."""

    ledger = SAGA_LEDGER
    counts = MappingProxyType({"saga": {"cancelled": 1}})

    async def play(self, stage: Stage, engine: Engine) -> None:
        handle = await engine.dispatch(saga, id=ID)
        while not await self._sleeps(stage):
            await stage.clock.sleep(1)
        with suppress(WorkflowFinished):
            await handle.cancel("rain")
        with pytest.raises(WorkflowCancelled, match="rain"):
            await handle.result()

    async def _sleeps(self, stage: Stage) -> bool:
        rows = await history_rows(stage.database, KEYS, ID)
        return any(isinstance(decode_event(value), SleepEvent) for _, value in rows)


class Outcome:
    """One performance: how many commits it took, whether it died, and the history it left."""

    def __init__(self, stage: Stage, died: bool, story: list[str]) -> None:
        self.commits = stage.faults.commits
        self.died = died
        self.story = story
        self.ran = set(stage.ran)


async def perform(stage: Stage, piece: Everything | Saga, order: Order) -> Outcome:
    """Play a piece to its end, whatever happens, and check what can be checked in any case."""
    Scene.stage = stage
    order(stage.faults)
    died = False
    while True:
        try:
            engine = await stage.engine(*WORKFLOWS, options=SETTINGS)
            await stage.until(piece.play(stage, engine))
            break
        except Crash:
            died = True
            await stage.restart()
        except WorldError:
            # The caller's own transaction: it does what callers do and asks again.
            await stage.die()
    ledger: Any = await engine.handle(None, ID).state(Ledger)
    assert ledger.lines == piece.ledger
    assert await stage.leftovers() == []
    assert await stage.counts() == piece.counts
    outcome = Outcome(stage, died, await stage.story(ID))
    await stage.close()
    return outcome


async def undisturbed(piece: Everything | Saga) -> Outcome:
    return await perform(Stage(), piece, lambda _faults: None)


@pytest.mark.parametrize("durable", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("piece", [Everything(), Saga()], ids=["everything", "saga"])
async def test_death_at_every_commit(piece: Everything | Saga, durable: bool) -> None:
    model = await undisturbed(piece)
    deaths = 0
    for commit in range(1, model.commits + 1):
        played = await perform(
            Stage(), piece, partial(Faults.crash, commit=commit, durable=durable)
        )
        assert played.story == model.story, f"commit {commit}"
        assert played.ran == model.ran, f"commit {commit}"
        deaths += played.died
    assert deaths > 0.9 * model.commits


@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
@pytest.mark.parametrize("piece", [Everything(), Saga()], ids=["everything", "saga"])
async def test_no_answer_at_every_commit(piece: Everything | Saga, applied: bool) -> None:
    model = await undisturbed(piece)
    for commit in range(1, model.commits + 1):
        played = await perform(
            Stage(), piece, partial(Faults.unknown, commit=commit, applied=applied)
        )
        assert played.story == model.story, f"commit {commit}"


@pytest.mark.parametrize("piece", [Everything(), Saga()], ids=["everything", "saga"])
async def test_conflict_at_every_commit(piece: Everything | Saga) -> None:
    model = await undisturbed(piece)
    for commit in range(1, model.commits + 1):
        played = await perform(Stage(), piece, partial(Faults.conflict, commit=commit))
        assert played.story == model.story, f"commit {commit}"
        assert played.ran == model.ran


@pytest.mark.parametrize("seed", range(4))
async def test_every_other_commit_goes_wrong(seed: int) -> None:
    """By the dice, because a strict pattern can be in step with what is tried again."""
    piece = Everything()
    model = await undisturbed(piece)
    dice = random.Random(seed)

    def order(faults: Faults) -> None:
        for commit in range(1, 3 * model.commits):
            match dice.randrange(6):
                case 0:
                    faults.conflict(commit=commit)
                case 1:
                    faults.unknown(commit=commit, applied=True)
                case 2:
                    faults.unknown(commit=commit, applied=False)

    assert (await perform(Stage(), piece, order)).story == model.story
