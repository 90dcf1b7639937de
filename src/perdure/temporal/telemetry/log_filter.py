"""Which log records pass: the filter strings of the official SDK.

A filter is a list of directives separated by commas: `level` for everything, `target=level` for a
target and what is below it, `target` alone for everything of a target. Levels are off, error, warn,
info, debug, trace, or 0 to 5. The longest matching target decides; what no directive speaks of is
off, and an empty filter lets errors pass. Directives about spans never match, as there are none. A
directive that cannot be read is named on standard error and left out, as by the compiled core.
"""

from __future__ import annotations

import re
import sys
from typing import Final

__all__ = ["DEBUG", "ERROR", "INFO", "LEVEL_NAMES", "TRACE", "WARN", "LogFilter"]

TRACE, DEBUG, INFO, WARN, ERROR = 9, 10, 20, 30, 40
_OFF: Final = 100
LEVEL_NAMES: Final = {TRACE: "TRACE", DEBUG: "DEBUG", INFO: "INFO", WARN: "WARN", ERROR: "ERROR"}
"""Levels as Python numbers them, and their names in the core."""

_LEVELS: Final = {
    "off": _OFF,
    "error": ERROR,
    "warn": WARN,
    "info": INFO,
    "debug": DEBUG,
    "trace": TRACE,
    "0": _OFF,
    "1": ERROR,
    "2": WARN,
    "3": INFO,
    "4": DEBUG,
    "5": TRACE,
}
_TARGET: Final = re.compile(r"[\w:\-]+\Z")
_SPAN: Final = re.compile(r"[\w:\-]*\[[^\]]*\](=.*)?\Z")


class LogFilter:
    """A parsed filter; see the module."""

    def __init__(self, text: str) -> None:
        everything: int | None = None
        targets: dict[str, int] = {}
        parts = [part for part in text.split(",") if part]
        for part in parts:
            target, level = _directive(part)
            if level is None:
                continue
            if target:
                targets[target] = level
            else:
                everything = level
        if everything is None:
            everything = _OFF if parts else ERROR
        self._targets = sorted(targets.items(), key=lambda pair: -len(pair[0]))
        self._everything = everything

    def allows(self, target: str, level: int) -> bool:
        for prefix, least in self._targets:
            if target.startswith(prefix):
                return level >= least
        return level >= self._everything


def _directive(part: str) -> tuple[str, int | None]:
    """Target and level; no level when the directive says nothing here."""
    if _SPAN.match(part) is not None:
        return "", None
    target, separator, level = part.rpartition("=")
    if not separator:
        found = _LEVELS.get(part.lower())
        if found is not None:
            return "", found
        target, level = part, "trace"
    found = _LEVELS.get(level.lower())
    if found is None or _TARGET.match(target) is None:
        sys.stderr.write(f"ignoring `{part}`: it is not a log filter directive\n")
    return target, found if _TARGET.match(target) is not None else None
