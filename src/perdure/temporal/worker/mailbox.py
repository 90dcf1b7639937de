"""What waits to be polled by lang, without a queue or a task between.

Items are put in, or drawn from a source at the very moment when a poll takes them: what may still
be withdrawn or overtaken (a cancellation of something that ends by itself) is not decided earlier
than it must be, and its owner knows exactly when lang has it.

Invariants: nothing put in is lost when a poll is cancelled, and a closed mailbox hands out what it
and its sources still have before it raises its error for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Mailbox"]


class Mailbox:
    """Serialized tasks for one kind of poll."""

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._sources: list[Callable[[], bytes | None]] = []
        self._waiters: deque[asyncio.Future[bytes]] = deque()
        self._error: Exception | None = None
        self._failure: Exception | None = None

    def put(self, item: bytes) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(item)
                return
        self._items.append(item)

    def draw_from(self, source: Callable[[], bytes | None]) -> None:
        """Ask this for items too, after those put in and the sources named before. It must not
        poll, and says with `ring` that it has something."""
        self._sources.append(source)

    def ring(self) -> None:
        """Sources have something: polls that wait get it."""
        while self._waiters:
            if self._waiters[0].done():
                self._waiters.popleft()
                continue
            item = self._draw()
            if item is None:
                return
            self._waiters.popleft().set_result(item)

    def _draw(self) -> bytes | None:
        for source in self._sources:
            item = source()
            if item is not None:
                return item
        return None

    def close(self, error: Exception) -> None:
        """No more items will come: polls raise `error` once the mailbox is empty."""
        self._error = error
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Let one poll raise this; later ones go on as before."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
                return
        self._failure = error

    def poll(self) -> asyncio.Future[bytes]:
        """A future of the next item, done already when one is there."""
        future = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            error, self._failure = self._failure, None
            future.set_exception(error)
        elif self._items:
            future.set_result(self._items.popleft())
        elif (drawn := self._draw()) is not None:
            future.set_result(drawn)
        elif self._error is not None:
            future.set_exception(self._error)
        else:
            self._waiters.append(future)
        return future
