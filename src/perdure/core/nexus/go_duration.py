"""Durations as Go writes them, such as `1h2m3.5s`: the form of time-outs in Nexus headers."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["parse_go_duration"]

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST: Final = 2**63 - 1
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def parse_go_duration(text: str) -> int | None:
    """Nanoseconds, negative ones too; None when Go's own parser would refuse the text."""
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned == "0":
        return 0
    total = 0
    at = 0
    while at < len(unsigned):
        part = _PART.match(unsigned, at)
        if part is None:
            return None
        whole, fraction, unit = part.group(1), part.group(2) or "", part.group(3)
        if not whole and not fraction:
            return None
        total += int(whole + fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
        at = part.end()
    if not unsigned or total > _LONGEST:
        return None
    return -total if text.startswith("-") else total
