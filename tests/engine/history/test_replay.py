"""Whole replays of little programs: code that grows by versions, and processes that die.

A program is a tree of steps. All activities have the same name, so nothing but the places keeps
their events apart; each event holds the number of the step that wrote it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings, strategies as st

from perdure.engine.history.cursor import Cursor, Match, Replay
from perdure.engine.history.events import (
    ActivityEvent,
    BranchEvent,
    Event,
    EventKind,
    encode_event,
)
from perdure.engine.history.history import History
from perdure.engine.history.location import ROOT, Location, pack_location


@dataclass
class Step:
    """An activity; or a branch, if it has a body."""

    number: int
    version: int
    body: list[Step | Join] | None = None
    raises: bool = False
    """It takes a place and raises before anything is recorded; the code catches that."""


@dataclass
class Join:
    members: list[Step]


@dataclass
class Program:
    rng: random.Random
    root: list[Step | Join] = field(default_factory=list)
    steps: int = 0

    def grow(self, count: int, version: int, *, raising: float = 0.0) -> None:
        """Put `count` new steps of this version into random places, as an edit of the code."""
        for _ in range(count):
            block = self._block(self.root, version)
            block.insert(self.rng.randint(0, len(block)), self._piece(version, raising))

    def _block(self, block: list[Step | Join], version: int) -> list[Step | Join]:
        inner = [step.body for step in block if isinstance(step, Step) and step.body is not None]
        inner += [
            step.body
            for join in block
            if isinstance(join, Join)
            for step in join.members
            if step.body is not None
        ]
        if inner and self.rng.random() < 0.6:
            return self._block(self.rng.choice(inner), version)
        return block

    def _piece(self, version: int, raising: float) -> Step | Join:
        if self.rng.random() < 0.3:
            return Join([self._step(version, raising) for _ in range(self.rng.randint(1, 4))])
        return self._step(version, raising)

    def _step(self, version: int, raising: float) -> Step:
        self.steps += 1
        raises = self.rng.random() < raising
        body: list[Step | Join] | None = [] if not raises and self.rng.random() < 0.3 else None
        return Step(self.steps, version, body, raises)


class Died(BaseException):
    """The process ends here."""


class Process:
    """Runs a program over a store, and dies after so many records."""

    def __init__(self, store: dict[Location, Event], records: int, rng: random.Random) -> None:
        self.store = store
        self.records = records
        self.rng = rng
        self.history = History.from_rows(
            sorted((pack_location(place), encode_event(event)) for place, event in store.items())
        )
        self.places: dict[int, Location] = {}
        self.written: set[int] = set()

    def run(self, block: list[Step | Join], root: Location = ROOT) -> None:
        cursor = Cursor(self.history.events(root), root)
        for item in block:
            members = item.members if isinstance(item, Join) else [item]
            placed = [(step, self.place(cursor, step)) for step in members]
            self.rng.shuffle(placed)
            for step, match in placed:
                self.perform(step, match, (*root, match.coordinate))
        assert cursor.remaining() == []

    def place(self, cursor: Cursor, step: Step) -> Match:
        kind = EventKind.ACTIVITY if step.body is None else EventKind.BRANCH
        match = cursor.compare(kind, step.version, "step" if step.body is None else None)
        cursor.advance(match)
        return match

    def perform(self, step: Step, match: Match, location: Location) -> None:
        self.places[step.number] = location
        if step.raises:
            assert not isinstance(match, Replay)
            return
        if isinstance(match, Replay):
            if isinstance(match.event, ActivityEvent):
                assert match.event.attempts == step.number
        else:
            if self.records == 0:
                raise Died
            self.records -= 1
            assert location not in self.store
            self.store[location] = (
                ActivityEvent(step.version, 0, 0, "step", attempts=step.number)
                if step.body is None
                else BranchEvent(step.version, 0, 0)
            )
            self.written.add(step.number)
        if step.body is not None:
            self.run(step.body, location)


def run_to_the_end(
    program: Program, store: dict[Location, Event], longest_life: int
) -> tuple[dict[int, Location], set[int]]:
    """Run and run again until the program ends; every step must be recorded once, in one place."""
    places: dict[int, Location] = {}
    written: set[int] = set()
    while True:
        process = Process(store, program.rng.randint(1, longest_life), program.rng)
        try:
            process.run(program.root)
        except Died:
            ended = False
        else:
            ended = True
        assert not written & process.written
        written |= process.written
        for number, place in process.places.items():
            assert places.setdefault(number, place) == place
        if ended:
            return places, written


seeds = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(seeds, st.lists(st.integers(1, 8), min_size=2, max_size=6), st.sampled_from([1, 3, 10**6]))
def test_inserted_steps_leave_everything_else_in_its_place(
    seed: int, edits: list[int], longest_life: int
) -> None:
    program = Program(random.Random(seed))
    store: dict[Location, Event] = {}
    known: dict[int, Location] = {}
    for version, count in enumerate(edits, start=1):
        steps_before = program.steps
        events_before = dict(store)
        program.grow(count, version)
        places, written = run_to_the_end(program, store, longest_life)
        assert written == set(range(steps_before + 1, program.steps + 1))
        assert events_before.items() <= store.items()
        assert known.items() <= places.items()
        known = places
    replay = Process(store, 0, program.rng)
    replay.run(program.root)
    assert replay.places == known


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 25), st.integers(1, 4))
def test_a_program_of_many_versions_survives_deaths_and_steps_that_raise(
    seed: int, count: int, longest_life: int
) -> None:
    program = Program(random.Random(seed))
    for version in (1, 2, 3):
        program.grow(count, version, raising=0.2)
    store: dict[Location, Event] = {}
    places, _ = run_to_the_end(program, store, longest_life)
    replay = Process(store, 0, program.rng)
    replay.run(program.root)
    assert replay.places == places
    assert not replay.written


def test_a_hundred_insertions_in_one_spot_on_each_side() -> None:
    program = Program(random.Random(1), [Step(1, 1), Step(2, 1)], steps=2)
    store: dict[Location, Event] = {}
    known, _ = run_to_the_end(program, store, 10)
    for version in range(2, 102):
        program.steps += 1
        spot = 1 if version % 2 else len(program.root) // 2
        program.root.insert(spot, Step(program.steps, version))
        places, _ = run_to_the_end(program, store, 10)
        assert known.items() <= places.items()
        known = places
