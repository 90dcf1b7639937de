"""Asking the process that owns a store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec

from perdure.engine.admin.failures import ErrorView, RemoteRefusal
from perdure.engine.admin.requests import PROTOCOL, Request
from perdure.errors import WorldError

__all__ = ["AdminClient", "OwnerUnreachable"]

Answer = TypeVar("Answer")

LINE_LIMIT: Final = 1 << 30
"""Longest answer, in bytes: a long list or history, from a process that may be trusted."""


class OwnerUnreachable(WorldError):
    """The process behind a socket went away before it answered; `path` is the socket."""

    code = "admin.owner_unreachable"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the process that listens on {path} does not answer ({reason}): it may have ended;"
            " what was asked for may or may not have been done"
        )
        self.path = path
        self.reason = reason


class _Reply(msgspec.Struct, frozen=True):
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ErrorView | None = None


_replies = msgspec.json.Decoder(_Reply)


class AdminClient:
    """A connection to the process that owns a store. Use as an async context manager.

    Requests are answered in the order in which they are asked.
    """

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connect to the socket at `path`. Raises `OSError` if nobody listens there."""
        reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_LIMIT)
        return cls(path, reader, writer)

    async def ask(self, request: Request[Answer]) -> Answer:
        """Have the owner perform `request`. Raises `RemoteRefusal` and `OwnerUnreachable`."""
        line = b'{"protocol":%d,"request":%b}\n' % (PROTOCOL, msgspec.json.encode(request))
        async with self._turn:
            try:
                self._writer.write(line)
                await self._writer.drain()
                answer = await self._reader.readline()
            except OSError as error:
                raise OwnerUnreachable(str(self.path), str(error)) from error
        if not answer.endswith(b"\n"):
            raise OwnerUnreachable(str(self.path), "the connection was closed")
        reply = _replies.decode(answer)
        if reply.error is not None:
            raise RemoteRefusal(reply.error)
        return cast("Answer", msgspec.json.decode(reply.result, type=request.answer))

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
