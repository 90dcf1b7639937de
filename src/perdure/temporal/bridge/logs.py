"""What the core logs, filtered by target and level, forwarded to Python or written to stderr.

Forwarded entries are handed over in batches, at the latest ten milliseconds after the first or
when 2048 wait, from a thread of their own: the official SDK's callback expects no loop.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from temporalio.bridge.runtime import LoggingConfig

__all__ = ["BufferedLogEntry", "Filter", "Log"]

_LEVELS: Final = {"TRACE": 9, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "OFF": 100}
_NAMES: Final = {value: name for name, value in _LEVELS.items()}
_BATCH = 2048
_PAUSE = 0.01


class BufferedLogEntry:
    """One record; `time` in seconds since the epoch, `level` as Python numbers levels."""

    __slots__ = ("fields", "level", "message", "target", "time")

    def __init__(self, target: str, message: str, level: int, fields: dict[str, Any]) -> None:
        self.target = target
        self.message = message
        self.level = level
        self.fields = fields
        self.time = time.time()


class Filter:
    """A list of `level` and `target=level`, the longest matching target deciding."""

    def __init__(self, text: str) -> None:
        self._default = _LEVELS["ERROR"]
        targets: list[tuple[str, int]] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            target, _, level = part.rpartition("=")
            if level.upper() not in _LEVELS:
                raise ValueError(f"invalid log filter {text!r}: {level!r} is not a level")
            if target:
                targets.append((target, _LEVELS[level.upper()]))
            else:
                self._default = _LEVELS[level.upper()]
        self._targets = sorted(targets, key=lambda pair: -len(pair[0]))

    def allows(self, target: str, level: int) -> bool:
        for prefix, least in self._targets:
            if target.startswith(prefix):
                return level >= least
        return level >= self._default


class Log:
    """Where the core writes; without a configuration nothing is kept."""

    def __init__(self, config: LoggingConfig | None) -> None:
        self._filter = Filter(config.filter) if config is not None else None
        self._forward: Callable[[Sequence[BufferedLogEntry]], None] | None = (
            config.forward_to if config is not None else None
        )
        self._lock = threading.Lock()
        self._waiting: list[BufferedLogEntry] = []

    def write(self, level: int, target: str, message: str, **fields: Any) -> None:
        """Record one message if the filter lets it pass."""
        if self._filter is None or not self._filter.allows(target, level):
            return
        entry = BufferedLogEntry(target, message, level, fields)
        if self._forward is None:
            sys.stderr.write(_line(entry))
            return
        with self._lock:
            self._waiting.append(entry)
            first = len(self._waiting) == 1
            full = len(self._waiting) == _BATCH
        if full:
            self._flush()
        elif first:
            timer = threading.Timer(_PAUSE, self._flush)
            timer.daemon = True
            timer.start()

    def _flush(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        if batch and self._forward is not None:
            self._forward(batch)


def _line(entry: BufferedLogEntry) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.time))
    fields = "".join(f" {key}={value}" for key, value in entry.fields.items())
    return f"{stamp}Z {_NAMES[entry.level]:>5} {entry.target}: {entry.message}{fields}\n"
