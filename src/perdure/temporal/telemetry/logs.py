"""What the core logs, filtered by target and level, forwarded to Python or written to stdout.

Forwarded entries are handed over in batches, at the latest ten milliseconds after the first or
when 2048 wait, from a thread of their own: the official SDK's callback expects no loop. A program
that ends waits for that thread, so nothing logged is lost.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.temporal.telemetry.console import console_format
from perdure.temporal.telemetry.log_filter import LogFilter

if TYPE_CHECKING:
    from temporalio.bridge.runtime import LoggingConfig

__all__ = ["BufferedLogEntry", "Log"]

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


class Log:
    """Where the core writes; without a configuration nothing is kept."""

    def __init__(self, config: LoggingConfig | None) -> None:
        self._filter = LogFilter(config.filter) if config is not None else None
        self._format = console_format(None if config is None else config.format)
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
            self._print(entry)
            return
        with self._lock:
            self._waiting.append(entry)
            first = len(self._waiting) == 1
            full = len(self._waiting) == _BATCH
        if full:
            self._flush()
        elif first:
            threading.Timer(_PAUSE, self._flush).start()

    def _print(self, entry: BufferedLogEntry) -> None:
        """A console that is closed or cannot show the text must not stop who wrote it."""
        if sys.stdout is not None:
            with suppress(OSError, ValueError):
                sys.stdout.write(self._format(entry))
                sys.stdout.flush()

    def _flush(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        if batch and self._forward is not None:
            self._forward(batch)
