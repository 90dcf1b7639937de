"""Messages of one subject as an async iterator, with a bounded buffer.

When the reader is slower than the publishers, the oldest messages are dropped and counted: memory
stays bounded and the reader sees the newest state, which is what a live message is for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from perdure.pubsub.bus import PubSub

__all__ = ["Stream"]


class Stream:
    """An async iterator over payloads, for one reader. Subscribes at once; close it, or use `with`.

    `dropped` counts messages lost to a full buffer. After `close` what is buffered is still
    delivered, then the iteration ends.
    """

    def __init__(self, pubsub: PubSub, subject: str, *, buffer: int = 1024) -> None:
        if buffer < 1:
            raise ValueError(f"the buffer of a stream must hold a message, it was given {buffer}")
        self.dropped = 0
        self._limit = buffer
        self._buffer: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._subscription = pubsub.subscribe(subject, self._receive)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._buffer.popleft()

    def close(self) -> None:
        """Stop receiving. Harmless when already closed."""
        self._closed = True
        self._subscription.close()
        self._changed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self, payload: bytes) -> None:
        if len(self._buffer) == self._limit:
            self._buffer.popleft()
            self.dropped += 1
        self._buffer.append(payload)
        self._changed.set()
