"""Ids of everything that is stored: workflows, signals, nodes, leases.

An id is 19 bytes: a version byte (1), 16 random bytes in the form of a version 4 UUID (if the id
stands for a key: 16 bytes of its digest, as a version 8 UUID), and a label of two bytes
(big-endian) that a deployment may use to tell regions or clusters apart. Its text is
30 base-36 digits, lower case, least significant digit first, of the 19 bytes read as one big-endian
number. 36**30 is larger than 2**152, so every id fits and all texts have the same length.

`Id` is a subclass of `bytes`: hashing, comparing and sorting cost what they cost for bytes, and an
id equals the same 19 plain bytes. The random source is injected so that simulations repeat exactly.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import ClassVar, Self
from uuid import UUID

from perdure.errors import CallerError

__all__ = ["Id", "InvalidId"]

_SIZE = 19
_TEXT_SIZE = 30
_VERSION = 1
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS = [low + high for high in _DIGITS for low in _DIGITS]
_ALLOWED = frozenset(_DIGITS + _DIGITS.upper())


class InvalidId(CallerError):
    """A text or a byte string is not an id. `value` is what was given."""

    code = "caller.invalid_id"

    def __init__(self, value: str | bytes, problem: str) -> None:
        super().__init__(f"{value!r} is not an id: {problem}")
        self.value = value
        self.problem = problem


class Id(bytes):
    """An id: 19 bytes, written as 30 base-36 characters."""

    __slots__ = ()

    SIZE: ClassVar[int] = _SIZE
    TEXT_SIZE: ClassVar[int] = _TEXT_SIZE

    def __new__(cls, raw: bytes) -> Self:
        """Take 19 raw bytes as they are stored. Raises `InvalidId`."""
        if len(raw) != _SIZE:
            raise InvalidId(bytes(raw), f"an id has {_SIZE} bytes, this has {len(raw)}")
        if raw[0] != _VERSION:
            raise InvalidId(bytes(raw), f"the first byte must be {_VERSION}, it is {raw[0]}")
        return super().__new__(cls, raw)

    @classmethod
    def new(cls, label: int = 0, random_bytes: Callable[[int], bytes] = os.urandom) -> Self:
        """Make a new random id. `label` is 0 to 65535; `random_bytes(n)` gives n random bytes."""
        if not 0 <= label <= 0xFFFF:
            raise InvalidId(str(label), "a label must be between 0 and 65535")
        return cls._made(int.from_bytes(random_bytes(16), "big"), 4, label)

    @classmethod
    def of(cls, key: str, label: int = 0) -> Self:
        """The id that stands for `key`: the same key gives the same id, everywhere and always.

        A workflow dispatched under it is started once, however often that is asked for, also after
        it has ended (until it is pruned as a whole).
        """
        if not 0 <= label <= 0xFFFF:
            raise InvalidId(str(label), "a label must be between 0 and 65535")
        digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
        return cls._made(int.from_bytes(digest, "big"), 8, label)

    @classmethod
    def _made(cls, number: int, uuid_version: int, label: int) -> Self:
        number = number & ~(0xF << 76) | uuid_version << 76
        number = number & ~(0x3 << 62) | 2 << 62
        return super().__new__(cls, (_VERSION << 144 | number << 16 | label).to_bytes(_SIZE, "big"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form, in either case. Raises `InvalidId`."""
        if len(text) != _TEXT_SIZE:
            raise InvalidId(text, f"an id has {_TEXT_SIZE} characters, this has {len(text)}")
        if not _ALLOWED.issuperset(text):
            raise InvalidId(text, "only the letters a to z and the digits 0 to 9 may appear")
        number = int(text[::-1], 36)
        if number >> 8 * _SIZE:
            raise InvalidId(text, f"the number does not fit in {_SIZE} bytes")
        raw = number.to_bytes(_SIZE, "big")
        if raw[0] != _VERSION:
            raise InvalidId(text, f"its version is {raw[0]}, only version {_VERSION} is known")
        return super().__new__(cls, raw)

    @property
    def label(self) -> int:
        """The label given when the id was made, 0 to 65535."""
        return self[17] << 8 | self[18]

    @property
    def uuid(self) -> UUID:
        """The middle part as a UUID: version 4 if random, version 8 if made of a key."""
        return UUID(bytes=bytes(self[1:17]))

    def __str__(self) -> str:
        number = int.from_bytes(self, "big")
        pairs = []
        for _ in range(_TEXT_SIZE // 2):
            number, pair = divmod(number, 36 * 36)
            pairs.append(_PAIRS[pair])
        return "".join(pairs)

    def __repr__(self) -> str:
        return f"Id({str(self)!r})"

    def __reduce__(self) -> tuple[type[Id], tuple[bytes]]:
        return type(self), (bytes(self),)
