"""The socket on which the process that owns a store performs admin requests.

An embedded store has one owner, so tools cannot open it while an engine runs: they ask the engine.
The protocol is one line of JSON each way (see `requests`); a connection may carry many requests,
one after the other. Access is the file system's: the socket has mode 0600 before it accepts.

A bad request or a failing one answers with an error and leaves the connection open; nothing that a
client sends can hurt the engine beyond what the admin interface does.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Final

import msgspec

from perdure.engine.admin.endpoint import choose_endpoint, remove_endpoint
from perdure.engine.admin.failures import ErrorView, error_view
from perdure.engine.admin.requests import PROTOCOL, AdminTarget, AnyRequest
from perdure.engine.log import engine_logger
from perdure.errors import PerdureError

__all__ = ["AdminServer"]

LINE_LIMIT: Final = 64 << 20
"""Longest request, in bytes: more than the largest payload in its JSON form."""


class _Envelope(msgspec.Struct, frozen=True):
    protocol: int
    request: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)
_requests: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)


class AdminServer:
    """Serves `target` on the socket of the store in `folder`, which this process must own."""

    def __init__(self, target: AdminTarget, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._requests: set[asyncio.Task[object]] = set()
        self._log = engine_logger("perdure.admin")

    async def start(self) -> Path:
        """Begin to listen; returns the path of the socket."""
        path = choose_endpoint(self._folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            path.chmod(0o600)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=LINE_LIMIT
            )
        except BaseException:
            listener.close()
            raise
        return path

    async def close(self) -> None:
        """Stop listening, end open connections and remove the socket. Harmless when not started."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for connection in list(self._connections):
            connection.cancel()
        # Requests under way are not cancelled: a commit must not be cut short.
        await asyncio.gather(*self._connections, *self._requests, return_exceptions=True)
        await server.wait_closed()
        remove_endpoint(self._folder)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await self._answer(line) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            # ValueError: a line over the limit. There is no way to find the next one.
            self._log.warning("admin connection dropped", reason=str(error))
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = _decode(line)
            result = await self._perform(request)
        except PerdureError as error:
            return _encode_error(error_view(error))
        except msgspec.MsgspecError as error:
            return _encode_error(ErrorView("admin.bad_request", str(error), {}, "caller"))
        except Exception as error:
            self._log.exception("admin request failed")
            return _encode_error(ErrorView("admin.internal", f"{type(error).__name__}: {error}"))
        return b'{"result":' + msgspec.json.encode(result) + b"}"

    async def _perform(self, request: AnyRequest) -> object:
        """Shielded: a connection that ends must not cancel a commit half way."""
        work: asyncio.Task[object] = asyncio.ensure_future(self._target.ask(request))
        self._requests.add(work)
        work.add_done_callback(self._requests.discard)
        return await asyncio.shield(work)


def _decode(line: bytes) -> AnyRequest:
    envelope = _envelopes.decode(line)
    if envelope.protocol != PROTOCOL:
        raise msgspec.ValidationError(
            f"this process speaks admin protocol {PROTOCOL}, the request is in protocol"
            f" {envelope.protocol}: use the perdure command of the release that runs here"
        )
    return _requests.decode(envelope.request)


def _encode_error(view: ErrorView) -> bytes:
    return b'{"error":' + msgspec.json.encode(view) + b"}"
