"""Places in a history: order, packing, text, and room for insertions."""

from itertools import pairwise

import fdb.tuple
import pytest
from hypothesis import given, strategies as st

from perdure.engine.history.location import (
    START,
    Coordinate,
    InvalidLocation,
    between,
    first_gap,
    format_location,
    pack_coordinate,
    pack_location,
    parse_location,
    split_packed,
    unpack_location,
)

ordinates = st.one_of(st.integers(0, 3), st.integers(0, 70_000), st.integers(0, 2**64 - 2))
coordinates = st.lists(ordinates, min_size=1, max_size=5).map(tuple)
locations = st.lists(coordinates, max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("previous", "current", "expected"),
    [
        ((0,), (1,), (0, 1)),
        ((2, 1), (3,), (2, 2)),
        ((2, 2), (3,), (2, 3)),
        ((2, 1), (2, 2), (2, 1, 1)),
        ((2, 1), (2, 1, 1), (2, 1, 0, 1)),
        ((1,), (3,), (1, 1)),
        ((1,), (2, 1), (1, 1)),
        # the places where a rule by length alone meets an event that exists
        ((0,), (0, 1), (0, 0, 1)),
        ((0,), (0, 0, 1), (0, 0, 0, 1)),
        ((1, 1), (1, 1, 0, 1), (1, 1, 0, 0, 1)),
        ((1,), (1, 0, 1), (1, 0, 0, 1)),
    ],
)
def test_between(previous: Coordinate, current: Coordinate, expected: Coordinate) -> None:
    assert between(previous, current) == expected
    assert previous < expected < current


@pytest.mark.parametrize(("previous", "current"), [((1,), (1,)), ((2,), (1, 9)), ((1, 1), (1,))])
def test_between_refuses_a_wrong_order(previous: Coordinate, current: Coordinate) -> None:
    with pytest.raises(ValueError, match="does not lie before"):
        between(previous, current)


@given(st.integers(1, 4), st.lists(st.floats(0, 1, exclude_max=True), max_size=60))
def test_repeated_insertions_stay_in_order_and_leave_no_gap(
    count: int, positions: list[float]
) -> None:
    places = [START, *((number,) for number in range(1, count + 1))]
    for position in positions:
        index = int(position * (len(places) - 1))
        new = between(places[index], places[index + 1])
        assert places[index] < new < places[index + 1]
        assert new[-1] > 0
        places.insert(index + 1, new)
    packed = [pack_coordinate(place) for place in places]
    assert packed == sorted(set(packed))
    for left, right in pairwise(places):
        assert first_gap(left, right) is None


@given(st.integers(1, 4), st.lists(st.floats(0, 1, exclude_max=True), max_size=30), st.data())
def test_a_missing_place_before_its_sibling_is_found(
    count: int, positions: list[float], data: st.DataObject
) -> None:
    places = [START, *((number,) for number in range(1, count + 2))]
    for position in positions:
        index = int(position * (len(places) - 1))
        places.insert(index + 1, between(places[index], places[index + 1]))
    index = data.draw(st.integers(1, len(places) - 2))
    missing, following = places[index], places[index + 1]
    follows_directly = following == (*missing[:-1], missing[-1] + 1)
    if follows_directly or following[: len(missing)] == missing:
        assert first_gap(places[index - 1], following) == missing


@pytest.mark.parametrize(
    ("previous", "current", "gap"),
    [
        ((0,), (1,), None),
        ((0,), (2,), (1,)),
        ((1,), (4,), (2,)),
        ((1, 7), (2,), None),
        ((1, 7), (3,), (2,)),
        ((1,), (1, 2), (1, 1)),
        ((0,), (1, 2), (1,)),
        ((1,), (1, 0, 2), (1, 0, 1)),
        ((0,), (0, 0, 1), None),
        ((1, 1, 5), (1, 3), (1, 2)),
    ],
)
def test_first_gap(previous: Coordinate, current: Coordinate, gap: Coordinate | None) -> None:
    assert first_gap(previous, current) == gap


@given(locations, locations)
def test_packed_order_is_the_order_of_locations(left: object, right: object) -> None:
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert (pack_location(left) < pack_location(right)) == (left < right)


@given(locations)
def test_packing_is_the_general_key_encoding(location: tuple[Coordinate, ...]) -> None:
    packed = pack_location(location)
    assert packed == fdb.tuple.pack(location)
    assert unpack_location(packed) == location
    if location:
        assert split_packed(packed) == (pack_location(location[:-1]), location[-1])


@given(locations)
def test_text_round_trip(location: tuple[Coordinate, ...]) -> None:
    assert parse_location(format_location(location)) == location


def test_text_form() -> None:
    assert format_location(((4,), (0, 3, 1), (0, 6))) == "{4, 0.3.1, 0.6}"
    assert format_location(()) == "{}"
    assert parse_location(" 4,0.3.1 ") == ((4,), (0, 3, 1))


@pytest.mark.parametrize("text", ["{a}", "{1,}", "{1..2}", "{-1}", "{1 2}", "{²}"])
def test_a_text_that_is_no_location(text: str) -> None:
    with pytest.raises(InvalidLocation, match="looks like"):
        parse_location(text)


@given(st.binary(min_size=1, max_size=12))
def test_damaged_keys_are_refused_or_read_back_whole(packed: bytes) -> None:
    try:
        location = unpack_location(packed)
    except InvalidLocation:
        return
    assert len(fdb.tuple.unpack(packed)) == len(location)


@pytest.mark.parametrize(
    "packed", [b"", b"\x05", b"\x05\x00", b"\x05\x15\x01", b"\x05\x15\x01\x00\x01"]
)
def test_split_of_damaged_keys(packed: bytes) -> None:
    with pytest.raises(InvalidLocation):
        split_packed(packed)


def test_ordinates_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidLocation):
        pack_coordinate((-1,))
    with pytest.raises(InvalidLocation):
        pack_coordinate((2**64,))
