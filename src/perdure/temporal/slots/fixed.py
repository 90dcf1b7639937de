"""A fixed number of slots, handed over in the order of asking.

A slot that comes back goes to who waits longest, directly: nobody can take it in between. Who
waits and is cancelled passes on what it may just have been given.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

__all__ = ["FixedSlots"]


class FixedSlots:
    """See the module; all slots are alike, so every token is True."""

    asks_ahead = False

    def __init__(self, slots: int) -> None:
        self.size: int | None = slots
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def reserve(self, context: object) -> object:
        if self.try_reserve(context) is None:
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            try:
                await slot
            except asyncio.CancelledError:
                if slot.done() and not slot.cancelled():
                    self.release(None, True)
                raise
        return True

    def try_reserve(self, context: object) -> object | None:
        del context
        if self._free == 0:
            return None
        self._free -= 1
        return True

    def mark_used(self, info: Any, token: Any) -> None:
        """A slot is a slot, whatever it is used for."""

    def release(self, info: Any | None, token: Any) -> None:
        del info, token
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
