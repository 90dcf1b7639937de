"""One timer of a part of a worker: it rings at the next moment its owner waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Calls `ring` at one moment at a time, on the running loop's clock; never once closed."""

    __slots__ = ("_closed", "_handle", "_ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def set(self, at: float | None) -> None:
        """Ring then, and not when it was said before; never mind with None."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if at is not None and not self._closed:
            self._handle = asyncio.get_running_loop().call_at(at, self._due)

    def close(self) -> None:
        """The owner has ended."""
        self._closed = True
        self.set(None)

    def _due(self) -> None:
        self._handle = None
        self._ring()
