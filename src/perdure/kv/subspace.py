"""A region of the key space under one prefix.

Owns nothing but the prefix: it packs tuples behind it, takes it off again and names the range of
everything inside. A subspace is a value; two with the same prefix are equal and interchangeable.
"""

from typing import TypeAlias

from perdure.kv import tuple as tuples
from perdure.kv.tuple import Element, MalformedKey, pack

__all__ = ["Subspace"]

_Tuple: TypeAlias = tuple[Element, ...]


class Subspace:
    """All keys that start with one prefix, given as a tuple or as raw bytes.

    `subspace[element]` is the subspace one element further down.
    """

    __slots__ = ("key",)

    key: bytes
    """The prefix itself, which is also the packed key of the empty tuple."""

    def __init__(self, prefix: _Tuple | bytes = b"") -> None:
        self.key = prefix if isinstance(prefix, bytes) else pack(prefix)

    def pack(self, values: _Tuple = ()) -> bytes:
        """Return the key of `values` inside this subspace; raises `Unpackable`."""
        return pack(values, self.key)

    def unpack(self, key: bytes) -> _Tuple:
        """Return the tuple that was packed into `key`.

        Raises `MalformedKey` when the key lies outside of this subspace or is no packed tuple.
        """
        if not key.startswith(self.key):
            raise MalformedKey(key, f"is not in the subspace {self.key!r}")
        return tuples.unpack(key, len(self.key))

    def range(self, values: _Tuple = ()) -> tuple[bytes, bytes]:
        """Return the range of all keys strictly under `values`: the key itself is not in it."""
        packed = pack(values, self.key)
        return packed + b"\x00", packed + b"\xff"

    def __getitem__(self, element: Element) -> "Subspace":
        return Subspace(pack((element,), self.key))

    def __contains__(self, key: bytes) -> bool:
        return key.startswith(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subspace) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Subspace({self.key!r})"
