"""The limits every driver shares, and the checks that enforce them early.

The numbers are part of the contract, not of a driver, so that a program that works on one driver
works on all. Sizes are checked where the bytes enter a transaction (`set`, `get`, ...), so the
error points at the line that caused it and not at a commit far away.

Keys from `RESERVED` on belong to the drivers; a range may end there, a key may not start with it.
"""

from __future__ import annotations

from typing import Final, NoReturn

from perdure.kv.errors import InvalidRange, KeyTooLarge, ReservedKey, ValueTooLarge

__all__ = [
    "KEY_BYTES",
    "RESERVED",
    "TRANSACTION_BYTES",
    "TRANSACTION_SECONDS",
    "VALUE_BYTES",
    "check_range",
    "refuse_key",
    "refuse_row",
]

KEY_BYTES: Final = 10_000
VALUE_BYTES: Final = 100_000
TRANSACTION_BYTES: Final = 10_000_000
TRANSACTION_SECONDS: Final = 5.0
RESERVED: Final = b"\xff"


def refuse_key(key: bytes) -> NoReturn:
    """Raise the error for a key that is not acceptable."""
    if not isinstance(key, bytes):
        raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    if len(key) > KEY_BYTES:
        raise KeyTooLarge(key, len(key), KEY_BYTES)
    raise ReservedKey(key)


def refuse_row(key: bytes, value: bytes) -> NoReturn:
    """Raise the error for a row whose key or value is not acceptable."""
    if not isinstance(value, bytes):
        raise TypeError(f"a value must be bytes, not {type(value).__name__}")
    if len(value) > VALUE_BYTES:
        raise ValueTooLarge(key, len(value), VALUE_BYTES)
    refuse_key(key)


def check_range(begin: bytes, end: bytes) -> None:
    """Raise `InvalidRange`, `KeyTooLarge` or `ReservedKey` unless [begin, end) may be used."""
    if begin > end:
        raise InvalidRange(begin, end, "it ends before it begins")
    if end > RESERVED:
        raise ReservedKey(end)
    # An end may be one byte longer than a key: the range of exactly one key is [key, key + 00).
    if len(begin) > KEY_BYTES + 1 or len(end) > KEY_BYTES + 1:
        longest = max(begin, end, key=len)
        raise KeyTooLarge(longest, len(longest), KEY_BYTES)
