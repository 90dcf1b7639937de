"""One pass of the code over the events of one place: which event belongs to which step.

A step is compared with the event under the cursor (`Cursor.compare`), and the cursor then moves
past the place the step was given (`Cursor.advance`). That is all that happens before a step runs.
So `join` gives every member its place first, in order, and then runs the members in any order.

The rules, in this order, for a step of version v:

1. A place before the next event was given out earlier and holds no event: the step gets that place
   (`Insertion`). Such a gap is left by a step that was begun and not recorded: the process died
   while a later member of the same join had finished already, or the step raised an error before
   it did anything. Without this rule the step would meet the event of its neighbour. A gap that
   was left inside a join (the next event says so, `JoinMark`) belongs to members of that join only:
   for a step that came into the code later see rule 4, any other step is `HistoryDiverged`.
2. No event is left: the step is `New`, in the next place.
3. The event is a cancel: it was delivered in the place of this step (`CancelledHere`), of whatever
   version, because it came from outside and not from the code.
4. v is higher than the event's version, or than that of any member of the join whose gap it is:
   the step was put into the code later. It gets a new place before the event or the gap
   (`Insertion`), which stays under the cursor.
5. v is lower: `HistoryDiverged`.
6. Kind or name differ: `HistoryDiverged`. Otherwise the step has happened: `Replay`.

Versions are absolute everywhere: what `ctx.v(n)` sets, what an event stores and what a version
check answers are the same numbers.

A gap outside a join does not say which version its step had. A step of a later version that meets
it takes it, because in a workflow that began with the later code the gap is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from perdure.engine.errors import HistoryDiverged, InvalidVersion
from perdure.engine.history.events import (
    CancelEvent,
    Event,
    EventKind,
    RemovedEvent,
    VersionCheckEvent,
    describe_event,
    describe_step,
    event_name,
)
from perdure.engine.history.location import (
    ROOT,
    START,
    Coordinate,
    Location,
    between,
    first_gap,
)

__all__ = [
    "CancelledHere",
    "Cursor",
    "Insertion",
    "Match",
    "New",
    "Replay",
    "VersionAnswer",
]


class New(msgspec.Struct, frozen=True, gc=False):
    """The step has not happened; its place is after all events."""

    coordinate: Coordinate


class Insertion(msgspec.Struct, frozen=True, gc=False):
    """The step has not happened; its place is before the event under the cursor."""

    coordinate: Coordinate
    gap: bool = False
    """True: the step was begun before and not recorded (rule 1). False: the code got it later."""


class Replay(msgspec.Struct, frozen=True, gc=False):
    """The step has happened, or at least begun: this is its event."""

    coordinate: Coordinate
    event: Event


class CancelledHere(msgspec.Struct, frozen=True, gc=False):
    """The step did not happen, because a cancel reached the code in its place."""

    coordinate: Coordinate
    event: CancelEvent


Match: TypeAlias = New | Insertion | Replay | CancelledHere


class VersionAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a version check answers; to be recorded at `match` if that is new or an insertion.

    If the match is a cancel there is no answer, and the other fields mean nothing.
    """

    match: Match
    version: int
    """Version of the event."""
    inner: int
    """The answer, which the event holds."""


class Cursor:
    """Walks the events directly below `root`, which are in the order of their coordinates.

    The events are those that were loaded: what a run records itself is not added.
    """

    __slots__ = ("_after_last", "_count", "_events", "_index", "_previous", "_root")

    def __init__(self, events: Sequence[tuple[Coordinate, Event]], root: Location = ROOT) -> None:
        self._events = events
        self._count = len(events)
        self._index = 0
        self._previous = START
        self._root = root
        self._after_last = events[-1][0][0] - self._count + 1 if events else 1

    @property
    def current(self) -> Coordinate:
        """The place of the event under the cursor, or the next one after all events."""
        if self._index < self._count:
            return self._events[self._index][0]
        return (self._after_last + self._index,)

    def peek(self) -> Event | None:
        """The event under the cursor, or None if none is left."""
        return self._events[self._index][1] if self._index < self._count else None

    def compare(
        self, kind: EventKind, version: int, name: str | None = None, *, in_join: bool = False
    ) -> Match:
        """Find the place of the next step, which may be a member of a join.

        The cursor does not move. Raises `HistoryDiverged`.
        """
        if self._index >= self._count:
            return New((self._after_last + self._index,))
        coordinate, event = self._events[self._index]
        if len(coordinate) > 1 or coordinate[0] != self._previous[0] + 1:
            gap = first_gap(self._previous, coordinate)
            if gap is not None:
                mark = event.joined
                if mark is None or gap < mark.first or (in_join and version <= mark.newest):
                    return Insertion(gap, gap=True)
                if version > mark.newest:
                    return Insertion(between(self._previous, gap))
                raise self._in_join(gap, describe_step(kind, name, version), event)
        if (
            version == event.version
            and kind == event.KIND
            and (name is None or name == event_name(event))
        ):
            return Replay(coordinate, event)
        if isinstance(event, CancelEvent):
            return CancelledHere(coordinate, event)
        if version > event.version:
            return Insertion(between(self._previous, coordinate))
        raise self._diverged(coordinate, describe_step(kind, name, version), event)

    def compare_removed(self, kind: EventKind, name: str | None = None) -> Match | None:
        """Find the place of a step that the code no longer has.

        A replay is its event, or the mark that it was removed; of whatever version. None: this
        history never had the step, and the cursor stays where it is.
        """
        if self._index >= self._count:
            return New((self._after_last + self._index,))
        coordinate, event = self._events[self._index]
        gap = first_gap(self._previous, coordinate)
        if gap is not None:
            mark = event.joined
            return None if mark is not None and gap >= mark.first else Insertion(gap, gap=True)
        if isinstance(event, CancelEvent):
            return CancelledHere(coordinate, event)
        found = event.kind if isinstance(event, RemovedEvent) else event.KIND
        if found == kind and (name is None or name == event_name(event)):
            return Replay(coordinate, event)
        return None

    def check_version(self, requested: int, version: int) -> VersionAnswer:
        """Find the answer of a version check in a context of version `version`.

        A history that has come this far before the check was in the code gets the version of its
        next event, recorded once, so that later changes of the code cannot turn the answer. Any
        other history gets `requested`. Raises `InvalidVersion` if that is not positive.
        """
        if requested < 1:
            raise InvalidVersion(requested, 1)
        if self._index >= self._count:
            return VersionAnswer(New((self._after_last + self._index,)), version, requested)
        coordinate, event = self._events[self._index]
        if isinstance(event, VersionCheckEvent):
            return VersionAnswer(Replay(coordinate, event), event.version, event.inner)
        gap = first_gap(self._previous, coordinate)
        if gap is None and isinstance(event, CancelEvent):
            return VersionAnswer(CancelledHere(coordinate, event), version, requested)
        place = Insertion(between(self._previous, gap or coordinate))
        return VersionAnswer(place, event.version + 1, event.version)

    def advance(self, match: Match) -> None:
        """Move past the place that a step was given."""
        self._previous = match.coordinate
        if type(match) is not Insertion:
            self._index += 1

    def remaining(self) -> list[tuple[Location, str]]:
        """The events that no step has used, as `LatentHistoryFound` tells them."""
        return [
            ((*self._root, coordinate), describe_event(event))
            for coordinate, event in self._events[self._index :]
        ]

    def _in_join(self, gap: Coordinate, expected: str, event: Event) -> HistoryDiverged:
        found = f"an unfinished member of the join of {describe_event(event)}"
        return HistoryDiverged((*self._root, gap), expected, found)

    def _diverged(self, coordinate: Coordinate, expected: str, event: Event) -> HistoryDiverged:
        return HistoryDiverged((*self._root, coordinate), expected, describe_event(event))
