"""What stands at the other end of a client's wire in the tests of the transport.

`StubServer` is a gRPC server that records calls and answers by a script; `Relay` passes bytes on
and records them, as a plain relay or as an HTTP CONNECT proxy; `frames` reads HTTP/2 from them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

__all__ = ["Call", "Relay", "StubServer", "frames", "relay", "stub_server"]

DATA, SETTINGS, PING = 0x0, 0x4, 0x6


@dataclass
class Call:
    """One call as the server saw it."""

    method: str
    metadata: dict[str, str | bytes]
    seconds: float | None
    peer: str
    auth: dict[str, Any]

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]


class StubServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every RPC with an empty message, or as `script` says.

    An item of the script is a status to fail with (code, text, trailing metadata), bytes to answer
    or an event to wait for; `GetSystemInfo` is not scripted.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.script: list[Any] = []
        self.cancelled = asyncio.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def last(self) -> Call:
        return self.calls[-1]

    def named(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.name == name]

    def service(self, details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            self.calls.append(
                Call(
                    details.method,
                    dict(context.invocation_metadata()),
                    context.time_remaining(),
                    context.peer(),
                    context.auth_context(),
                )
            )
            if details.method.endswith("/GetSystemInfo") or not self.script:
                return b""
            return await self._scripted(self.script.pop(0), context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _scripted(self, item: Any, context: Any) -> bytes:
        if isinstance(item, bytes):
            return item
        if isinstance(item, asyncio.Event):
            try:
                await item.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return b""
        code, text, *trailing = item
        if trailing:
            context.set_trailing_metadata(trailing)
        await context.abort(code, text)
        raise AssertionError("abort returns never")


@asynccontextmanager
async def stub_server(
    credentials: grpc.ServerCredentials | None = None, address: str = "127.0.0.1:0"
) -> AsyncIterator[StubServer]:
    """A running stub server."""
    stub = StubServer()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([stub])
    stub.port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    await server.start()
    try:
        yield stub
    finally:
        await server.stop(None)


@dataclass
class Relay:
    """A TCP relay; `sent` are the client's bytes, a list of one entry for every connection."""

    port: int = 0
    sent: list[bytearray] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def relay(
    target: str | None = None, *, login: tuple[str, str] | None = None
) -> AsyncIterator[Relay]:
    """A relay to the target, or a CONNECT proxy (that may want a login) if there is none."""
    found = Relay()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        goal = target
        if goal is None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            found.heads.append(head)
            if login is not None and _login(*login) not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                writer.close()
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            goal = head.split()[1]
        host, _, port = goal.rpartition(":")
        upstream, downstream = await asyncio.open_connection(host, int(port))
        sent = bytearray()
        found.sent.append(sent)
        tasks = {
            asyncio.ensure_future(_pump(reader, downstream, sent)),
            asyncio.ensure_future(_pump(upstream, writer, bytearray())),
        }
        found.tasks |= tasks

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)


def _login(user: str, password: str) -> str:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return f"Proxy-Authorization: Basic {token}\r\n"


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, record: bytearray
) -> None:
    try:
        while data := await source.read(65536):
            record += data
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


def frames(sent: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    """The HTTP/2 frames a client sent: type and payload."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert sent.startswith(preface)
    rest = bytes(sent[len(preface) :])
    while len(rest) >= 9:
        length = int.from_bytes(rest[:3], "big")
        yield rest[3], rest[9 : 9 + length]
        rest = rest[9 + length :]
