"""Noticing that a host name means other addresses now.

gRPC spreads calls over the addresses of a name, but looks the name up again only when a connection
breaks: servers that were added would never get work. So the name is looked up again while calls are
made, and a different answer is the reason for a new channel. A lookup that fails changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time

__all__ = ["NameWatch"]


class NameWatch:
    """The addresses of one name, looked up at most every `interval` seconds."""

    def __init__(self, host: str, port: int, interval: float) -> None:
        self._host = host
        self._port = port
        self._interval = interval
        self._known: frozenset[str] | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._due = 0.0
        self._changed = False

    def changed(self) -> bool:
        """Whether the answer differs from the one before; true once for every difference."""
        if time.monotonic() >= self._due and (self._lookup is None or self._lookup.done()):
            self._due = time.monotonic() + self._interval
            self._lookup = asyncio.get_running_loop().create_task(self._look_up())
        changed, self._changed = self._changed, False
        return changed

    async def _look_up(self) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
        except OSError:
            return
        addresses = frozenset(str(address[0]) for *_, address in found)
        self._changed = self._known is not None and addresses != self._known
        self._known = addresses
