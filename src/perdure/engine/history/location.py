"""Where an event lies in a workflow's history.

A *coordinate* is a non-empty tuple of ordinates (integers >= 0); a *location* is a tuple of
coordinates, one per nesting level. The root is the empty location. Steps of the root are numbered
``{1}``, ``{2}``, and so on; the events of a branch at ``{2}`` are ``{2, 1}``, ``{2, 2}``. A step
that a later version of the code inserts between ``{1}`` and ``{2}`` gets more ordinates: ``{1.1}``.

Invariants:

* Coordinates order as tuples do: ordinate by ordinate, a shorter prefix first. The packed form (one
  nested tuple of the key encoding per coordinate) orders the same way, so a range scan returns the
  events of a place in the order in which the code made them.
* `between` is strictly between its arguments, at any depth. So an insertion never meets an event
  that exists. Ordinate 0 is never the last one of an event's coordinate (only `START`, the bound
  before the first event, ends in 0): there is always room before the first.

The packing is written out here, not taken from the general key encoding, because it lies on the
path of every step and of every row that is loaded; a test holds the two equal.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from perdure.errors import CallerError

__all__ = [
    "ROOT",
    "START",
    "Coordinate",
    "InvalidLocation",
    "Location",
    "between",
    "first_gap",
    "format_coordinate",
    "format_location",
    "pack_coordinate",
    "pack_location",
    "parse_location",
    "split_packed",
    "unpack_location",
]

Coordinate: TypeAlias = tuple[int, ...]
Location: TypeAlias = tuple[Coordinate, ...]

ROOT: Final[Location] = ()
START: Final[Coordinate] = (0,)
"""The bound before the first event of a place. No event lies here."""

_NESTED: Final = 0x05
_END: Final = 0x00
_ZERO: Final = 0x14
"""Type code of the integer 0; code ``_ZERO + n`` is followed by n big-endian bytes."""
_WIDEST: Final = 8
_LARGEST_ORDINATE: Final = 2**64 - 2


class InvalidLocation(CallerError):
    """A text or a key is not a location; `text` is what was given."""

    code = "engine.invalid_location"

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(
            f"{text!r} is not a location: {problem}. A location looks like {{4, 0.3.1}}"
        )
        self.text = text
        self.problem = problem


def between(previous: Coordinate, current: Coordinate) -> Coordinate:
    """A coordinate strictly between two others, of which `previous` is the smaller.

    Leaves room on both sides for any number of later insertions.
    """
    if not previous < current:
        raise ValueError(f"{previous} does not lie before {current}")
    if len(previous) > len(current):
        return (*previous[:-1], previous[-1] + 1)
    if len(previous) == len(current) or current[: len(previous)] != previous:
        return (*previous, 1)
    zeros = 0
    while current[len(previous) + zeros] == 0:
        zeros += 1
    return (*previous, *(0,) * (zeros + 1), 1)


def first_gap(previous: Coordinate, current: Coordinate) -> Coordinate | None:
    """The first place between two neighbours that must have been given out before `current` was.

    Numbering and `between` never give out ``{3}`` before ``{2}``, nor ``{1.2}`` before ``{1.1}``. A
    place of that kind without an event belongs to a step that was begun and not recorded. None if
    there is no such place.
    """
    last = len(current) - 1
    for depth, ordinate in enumerate(current):
        stem = current[:depth]
        shared = len(previous) > depth and previous[:depth] == stem
        candidate = previous[depth] + 1 if shared else 1
        if candidate < ordinate or (candidate == ordinate and depth < last):
            return (*stem, candidate)
    return None


def format_coordinate(coordinate: Coordinate) -> str:
    """``0.3.1``"""
    return ".".join(map(str, coordinate))


def format_location(location: Location) -> str:
    """``{4, 0.3.1}``; the root is ``{}``."""
    return "{" + ", ".join(map(format_coordinate, location)) + "}"


def parse_location(text: str) -> Location:
    """The inverse of `format_location`. Braces and spaces may be left out.

    Raises `InvalidLocation`.
    """
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    if not inner:
        return ROOT
    location = []
    for part in inner.split(","):
        ordinates = part.strip().split(".")
        if not all(ordinate.isascii() and ordinate.isdecimal() for ordinate in ordinates):
            raise InvalidLocation(text, f"{part.strip()!r} is not numbers joined by dots")
        location.append(tuple(map(int, ordinates)))
    return tuple(location)


@lru_cache(maxsize=8192)
def pack_coordinate(coordinate: Coordinate) -> bytes:
    """The coordinate as a nested tuple of the key encoding."""
    packed = bytearray((_NESTED,))
    for ordinate in coordinate:
        if not 0 <= ordinate <= _LARGEST_ORDINATE:
            raise InvalidLocation(format_coordinate(coordinate), f"{ordinate} is out of range")
        size = (ordinate.bit_length() + 7) // 8
        packed.append(_ZERO + size)
        packed += ordinate.to_bytes(size, "big")
    packed.append(_END)
    return bytes(packed)


def pack_location(location: Location) -> bytes:
    """The location as the end of a key: its coordinates one after the other."""
    return b"".join(map(pack_coordinate, location))


def unpack_location(packed: bytes) -> Location:
    """The inverse of `pack_location`. Raises `InvalidLocation`."""
    location = []
    position = 0
    while position < len(packed):
        end = _end_of_coordinate(packed, position)
        location.append(_unpack_coordinate(packed[position:end]))
        position = end
    return tuple(location)


def split_packed(packed: bytes) -> tuple[bytes, Coordinate]:
    """The packed root of a location that is not the root, and its last coordinate.

    Raises `InvalidLocation`.
    """
    start = position = 0
    while position < len(packed):
        start = position
        position = _end_of_coordinate(packed, position)
    if not packed:
        raise InvalidLocation("", "it is empty")
    return packed[:start], _unpack_coordinate(packed[start:])


def _end_of_coordinate(packed: bytes, position: int) -> int:
    """Where the coordinate that begins at `position` ends."""
    length = len(packed)
    if packed[position] == _NESTED:
        position += 1
        while position < length:
            code = packed[position]
            position += 1
            if code == _END:
                return position
            if not _ZERO <= code <= _ZERO + _WIDEST:
                break
            position += code - _ZERO
    raise InvalidLocation(packed.hex(), "its key is damaged")


@lru_cache(maxsize=8192)
def _unpack_coordinate(packed: bytes) -> Coordinate:
    ordinates = []
    position = 1
    while packed[position] != _END:
        size = packed[position] - _ZERO
        position += 1
        ordinates.append(int.from_bytes(packed[position : position + size], "big"))
        position += size
    if not ordinates:
        raise InvalidLocation(packed.hex(), "a coordinate is empty")
    return tuple(ordinates)
