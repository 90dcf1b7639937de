"""What waits to be polled by lang, without a queue or a task between.

Invariants: nothing put in is lost when a poll is cancelled, and a closed mailbox hands out what it
still has before it raises its error for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Mailbox"]


class Mailbox:
    """Serialized tasks for one kind of poll."""

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
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
        elif self._error is not None:
            future.set_exception(self._error)
        else:
            self._waiters.append(future)
        return future
