"""The seed of a workflow's random numbers.

A workflow draws the same random numbers on every worker and on every replay, so the seed is a hash
of the run it descends from: 64-bit SipHash with 1 and 3 rounds and a key of zeros, over the UTF-8
bytes of the run id and one closing byte 0xFF. Histories depend on it: it must never change.
"""

from __future__ import annotations

from typing import Final

__all__ = ["seed_of_run", "siphash_1_3"]

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_INITIAL: Final = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)


def seed_of_run(original_run_id: str) -> int:
    """The randomness seed of a run, by the id of the run it was first started as."""
    return siphash_1_3(original_run_id.encode() + b"\xff")


def siphash_1_3(data: bytes) -> int:
    """SipHash-1-3 of the data with a key of 128 zero bits."""
    v0, v1, v2, v3 = _INITIAL
    whole = len(data) // 8 * 8
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little")
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ last)
    v0 ^= last
    v2 ^= 0xFF
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
    v0 = (v0 << 32 | v0 >> 32) & _MASK
    v2 = (v2 + v3) & _MASK
    v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
    v2 = (v2 << 32 | v2 >> 32) & _MASK
    return v0, v1, v2, v3
