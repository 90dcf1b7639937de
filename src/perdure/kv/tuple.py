"""Tuples as keys: an order-preserving encoding of small values.

Owns the mapping between tuples and key bytes. Packed keys sort exactly as the tuples do, element
by element, so "everything under ``(a, b)``" is one range of keys.

The encoding is FoundationDB's tuple layer, byte for byte, with one user type of our own: an `Id` is
code 0x40 followed by its 19 bytes. Each element starts with a type code and ends itself: strings by
a zero byte (a zero inside is escaped as 00 ff), integers by the length that their code carries.
Between types the codes decide the order:

    None < bytes < str < tuple < int < float < bool < UUID < Versionstamp < Id

Invariants:

* `unpack(pack(t))` gives `t` back, types included (True stays a bool, 1 an int). Subclasses of the
  supported types, an `IntEnum` for example, come back as the plain type.
* Floats sort by sign, then size; -0.0 and every NaN keep their exact bits.
* Only tuples nest. A list is refused, because it could not come back as a list.

Packing is on the path of every read and write, so the common types are tested inline by exact type
and everything else goes to a slower function.
"""

import builtins
import struct
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from perdure.errors import CallerError, WorldError
from perdure.ids import Id, InvalidId

__all__ = [
    "Element",
    "MalformedKey",
    "Unpackable",
    "Versionstamp",
    "pack",
    "range",
    "unpack",
]

_NULL: Final = 0x00
_BYTES: Final = 0x01
_STRING: Final = 0x02
_NESTED: Final = 0x05
_LONG_NEGATIVE: Final = 0x0B
_ZERO: Final = 0x14
_LONG_POSITIVE: Final = 0x1D
_ID: Final = 0x40

_LONGEST_INT: Final = 255
# FoundationDB's Python binding takes the long form one value early, at 2**64 - 1.
_LARGEST_SHORT_INT: Final = 2**64 - 2

_SIGN_BIT: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1
_DOUBLE_FORMAT: Final = struct.Struct(">d")


class Unpackable(CallerError):
    """A value that cannot be part of a key: its type or its size has no encoding."""

    code = "kv.unpackable"


class MalformedKey(WorldError):
    """Bytes that are not a packed tuple: a foreign or damaged `key`."""

    code = "kv.malformed_key"

    def __init__(self, key: bytes, problem: str) -> None:
        super().__init__(f"the key {key!r} {problem}")
        self.key = key
        self.problem = problem


@dataclass(frozen=True, slots=True, order=True)
class Versionstamp:
    """A place in the order of commits: the 10 bytes of one commit, then an order within it.

    Only complete stamps exist here; the store itself fills in stamps at commit.
    """

    transaction: bytes
    order: int = 0

    def __post_init__(self) -> None:
        if len(self.transaction) != 10 or self.transaction == b"\xff" * 10:
            raise Unpackable(
                f"a version stamp needs the 10 bytes of a finished commit, not {self.transaction!r}"
            )
        if not 0 <= self.order <= 0xFFFF:
            raise Unpackable(f"the order of a version stamp is 0 to 65535, not {self.order}")

    def __bytes__(self) -> bytes:
        return self.transaction + self.order.to_bytes(2, "big")


Element: TypeAlias = (
    "bytes | str | int | float | bool | UUID | Versionstamp | Id | tuple[Element, ...] | None"
)
"""What a tuple in a key may hold."""


def _pack_int(value: int) -> bytes:
    magnitude = -value if value < 0 else value
    size = (magnitude.bit_length() + 7) >> 3
    if magnitude <= _LARGEST_SHORT_INT:
        if value >= 0:
            return bytes((_ZERO + size,)) + value.to_bytes(size, "big")
        return bytes((_ZERO - size,)) + (value + (1 << (size << 3)) - 1).to_bytes(size, "big")
    if size > _LONGEST_INT:
        raise Unpackable(f"an integer in a key has at most {_LONGEST_INT} bytes, this one {size}")
    if value > 0:
        return bytes((_LONG_POSITIVE, size)) + value.to_bytes(size, "big")
    complement = value + (1 << (size << 3)) - 1
    return bytes((_LONG_NEGATIVE, size ^ 0xFF)) + complement.to_bytes(size, "big")


_SMALL_INTS: Final = tuple(_pack_int(value) for value in builtins.range(1024))
_SMALL: Final = len(_SMALL_INTS)


def _pack_float(value: float) -> bytes:
    bits = int.from_bytes(_DOUBLE_FORMAT.pack(value), "big")
    # Negative numbers sort backwards as bits, so all their bits turn; others only lose the sign.
    bits ^= _ALL_BITS if bits & _SIGN_BIT else _SIGN_BIT
    return b"\x21" + bits.to_bytes(8, "big")


def _pack_string(value: str) -> bytes:
    try:
        text = value.encode()
    except UnicodeEncodeError as error:
        raise Unpackable(f"the string {value!r} cannot be in a key: {error.reason}") from error
    return b"\x02" + text.replace(b"\x00", b"\x00\xff") + b"\x00"


def _pack_rare(value: object) -> bytes:
    """Encode any element whose exact type is not one of the common ones."""
    match value:
        case bool():
            return b"\x27" if value else b"\x26"
        case int():
            return _pack_int(value)
        case float():
            return _pack_float(value)
        case str():
            return _pack_string(value)
        case bytes():
            return b"\x01" + value.replace(b"\x00", b"\x00\xff") + b"\x00"
        case tuple():
            return _pack_nested(value)
        case UUID():
            return b"\x30" + value.bytes
        case Versionstamp():
            return b"\x33" + bytes(value)
    raise Unpackable(
        f"a {type(value).__name__} cannot be part of a key; use None, bytes, str, int, float, "
        "bool, UUID, Versionstamp, Id or a tuple of these"
    )


def _pack_nested(values: tuple[Element, ...]) -> bytes:
    packed = b"\x05"
    for value in values:
        if type(value) is int and 0 <= value < _SMALL:
            packed += _SMALL_INTS[value]
        elif value is None:
            # A bare zero would end the tuple.
            packed += b"\x00\xff"
        else:
            packed += pack((value,))
    return packed + b"\x00"


def pack(values: tuple[Element, ...], prefix: bytes = b"") -> bytes:
    """Return the key of a tuple, after ``prefix``.

    Raises `Unpackable` for a value that has no encoding.
    """
    packed = prefix
    for value in values:
        kind = type(value)
        if kind is int:
            if 0 <= value < _SMALL:  # type: ignore[operator]
                packed += _SMALL_INTS[value]  # type: ignore[index]
            else:
                packed += _pack_int(value)  # type: ignore[arg-type]
        elif kind is str:
            packed += _pack_string(value)  # type: ignore[arg-type]
        elif kind is Id:
            packed += b"\x40" + value  # type: ignore[operator]
        elif kind is tuple:
            packed += _pack_nested(value)  # type: ignore[arg-type]
        elif value is None:
            packed += b"\x00"
        else:
            packed += _pack_rare(value)
    return packed


def range(values: tuple[Element, ...] = ()) -> tuple[bytes, bytes]:
    """Return the range of keys of all tuples that start with ``values`` and are longer."""
    packed = pack(values)
    return packed + b"\x00", packed + b"\xff"


def _unpack_string(key: bytes, start: int) -> tuple[bytes, int]:
    end = key.find(b"\x00", start)
    if key[end + 1 : end + 2] != b"\xff" and end >= 0:
        return key[start:end], end + 1
    while end >= 0 and key[end + 1 : end + 2] == b"\xff":
        end = key.find(b"\x00", end + 2)
    if end < 0:
        raise MalformedKey(key, f"ends inside a string that starts at byte {start}")
    return key[start:end].replace(b"\x00\xff", b"\x00"), end + 1


def _fixed(key: bytes, start: int, size: int) -> bytes:
    part = key[start : start + size]
    if len(part) < size:
        raise MalformedKey(key, f"ends inside the element before byte {start}")
    return part


def _unpack_long_int(key: bytes, position: int) -> tuple[int, int]:
    """Decode an integer of 8 to 255 bytes whose length byte is at ``position``."""
    negative = key[position - 1] == _LONG_NEGATIVE
    (size,) = _fixed(key, position, 1)
    if negative:
        size ^= 0xFF
    value = int.from_bytes(_fixed(key, position + 1, size), "big")
    if negative:
        value -= (1 << (size << 3)) - 1
    return value, position + 1 + size


def _unpack_nested(key: bytes, position: int) -> tuple[tuple[Element, ...], int]:
    values: list[Element] = []
    size = len(key)
    while position < size:
        if key[position] != _NULL:
            value, position = _unpack_element(key, position)
            values.append(value)
        elif key[position + 1 : position + 2] == b"\xff":
            values.append(None)
            position += 2
        else:
            return tuple(values), position + 1
    raise MalformedKey(key, "ends inside a nested tuple")


def _unpack_rare(key: bytes, position: int) -> tuple[Element, int]:
    """Decode the element whose code is at ``position``, of any type that is not common."""
    start = position + 1
    match key[position]:
        case 0x0B | 0x1D:
            return _unpack_long_int(key, start)
        case 0x21:
            bits = int.from_bytes(_fixed(key, start, 8), "big")
            bits ^= _SIGN_BIT if bits & _SIGN_BIT else _ALL_BITS
            (number,) = _DOUBLE_FORMAT.unpack(bits.to_bytes(8, "big"))
            return float(number), start + 8
        case 0x26:
            return False, start
        case 0x27:
            return True, start
        case 0x30:
            return UUID(bytes=_fixed(key, start, 16)), start + 16
        case 0x33:
            stamp = _fixed(key, start, 12)
            if stamp.startswith(b"\xff" * 10):
                raise MalformedKey(key, "holds an unfinished version stamp")
            return Versionstamp(stamp[:10], int.from_bytes(stamp[10:], "big")), start + 12
        case code:
            raise MalformedKey(key, f"has the unknown type code 0x{code:02x}")


def _unpack_id(key: bytes, start: int) -> Id:
    try:
        return Id(key[start : start + 19])
    except InvalidId as error:
        raise MalformedKey(key, f"holds a damaged id: {error.problem}") from error


def _unpack_element(key: bytes, position: int) -> tuple[Element, int]:
    code = key[position]
    start = position + 1
    if _LONG_NEGATIVE < code < _LONG_POSITIVE:
        # A cut integer is noticed by the caller, whose position is then behind the end of the key.
        if code >= _ZERO:
            end = start + code - _ZERO
            return int.from_bytes(key[start:end], "big"), end
        end = start + _ZERO - code
        return int.from_bytes(key[start:end], "big") - (1 << (end - start << 3)) + 1, end
    if code == _STRING:
        text, end = _unpack_string(key, start)
        try:
            return text.decode(), end
        except UnicodeDecodeError as error:
            raise MalformedKey(key, "holds a string that is not UTF-8") from error
    if code == _ID:
        return _unpack_id(key, start), start + 19
    if code == _NESTED:
        return _unpack_nested(key, start)
    if code == _BYTES:
        return _unpack_string(key, start)
    if code == _NULL:
        return None, start
    return _unpack_rare(key, position)


def unpack(key: bytes, skip: int = 0) -> tuple[Element, ...]:
    """Return the tuple of a key, ignoring its first ``skip`` bytes.

    Raises `MalformedKey` when the bytes are not a packed tuple.
    """
    values: list[Element] = []
    position = skip
    size = len(key)
    while position < size:
        value, position = _unpack_element(key, position)
        values.append(value)
    if position > size:
        raise MalformedKey(key, "ends inside an integer")
    return tuple(values)
