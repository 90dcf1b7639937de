"""Rows become events, grouped by place and decoded on demand."""

import pytest

from perdure.engine.errors import CorruptHistory
from perdure.engine.history.events import ActivityEvent, BranchEvent, Event, LoopEvent, encode_event
from perdure.engine.history.history import History
from perdure.engine.history.location import Location, pack_location


def rows(events: dict[Location, Event]) -> list[tuple[bytes, bytes]]:
    return sorted((pack_location(place), encode_event(event)) for place, event in events.items())


def step(name: str) -> ActivityEvent:
    return ActivityEvent(1, 0, 0, name)


LOOP = LoopEvent(1, 0, 0, 2, b"")
BRANCH = BranchEvent(1, 0, 0)
EVENTS: dict[Location, Event] = {
    ((1,),): step("a"),
    ((1, 1),): step("b"),
    ((2,),): LOOP,
    ((2,), (300,)): BRANCH,
    ((2,), (300,), (1,)): step("c"),
    ((2,), (300,), (2,)): BRANCH,
    ((2,), (300,), (2,), (1,)): step("d"),
    ((2,), (301,)): BRANCH,
    ((3,),): step("e"),
}


def test_events_are_grouped_by_place_and_in_order() -> None:
    history = History.from_rows(rows(EVENTS))
    assert history.events() == [
        ((1,), step("a")),
        ((1, 1), step("b")),
        ((2,), LOOP),
        ((3,), step("e")),
    ]
    assert history.events(((2,),)) == [((300,), BRANCH), ((301,), BRANCH)]
    inner: Location = ((2,), (300,))
    assert history.events(inner) == history.events(pack_location(inner))
    assert history.events((*inner, (2,))) == [((1,), step("d"))]
    assert history.events(((1,),)) == []


def test_an_empty_history() -> None:
    assert History.from_rows([]).events() == []


def test_a_damaged_row_hurts_only_when_its_place_is_visited() -> None:
    damaged = [*rows(EVENTS), (pack_location(((4,), (0, 3))), b"\xc1")]
    history = History.from_rows(damaged)
    assert len(history.events()) == 4
    with pytest.raises(CorruptHistory, match=r"\{4, 0\.3\}"):
        history.events(((4,),))


@pytest.mark.parametrize("key", [b"", b"\x05", b"\x02a\x00", b"\x05\x15\x01\x00\xff"])
def test_a_damaged_key(key: bytes) -> None:
    with pytest.raises(CorruptHistory):
        History.from_rows([(key, encode_event(BRANCH))])
