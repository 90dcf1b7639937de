"""A wake-up inside one process, for any number of waiters, without a task or a queue."""

from __future__ import annotations

import asyncio

__all__ = ["Pulse"]


class Pulse:
    """Wakes everything that waits for the next beat; a beat nobody waits for is forgotten."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def beat(self) -> None:
        """Wake all who wait now."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)

    def next(self) -> asyncio.Future[None]:
        """Return a future that the next beat completes. Take it before checking what it tells."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future
