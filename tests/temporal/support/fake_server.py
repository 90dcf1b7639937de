"""A Temporal server whose every answer a test writes, for faults that a real one does not show.

Calls that no test scripts are answered as an idle server does: polls wait until they are
cancelled, everything else gets an empty answer. All requests are kept, by name of the RPC; `idle`
is set while no call is open, and `cancelled` counts calls that their caller gave up.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import temporalio.api.workflowservice.v1 as messages
from google.protobuf.message import Message

__all__ = ["FakeServer", "Refused", "fake_server"]

Answer = Callable[[Any], Awaitable[Message]]


class Refused(Exception):
    """The call ends with this status; `code` is gRPC's number."""

    def __init__(self, code: int, message: str = "scripted") -> None:
        super().__init__(code, message)
        self.code = next(code_ for code_ in grpc.StatusCode if code_.value[0] == code)
        self.message = message


class FakeServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """See the module."""

    def __init__(self) -> None:
        self.target = ""
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.answers: dict[str, Answer] = {
            "PollWorkflowTaskQueue": self.wait,
            "PollActivityTaskQueue": self.wait,
            "PollNexusTaskQueue": self.wait,
        }
        self.cancelled: Counter[str] = Counter()
        self.idle = asyncio.Event()
        self.idle.set()
        self._open = 0
        self._arrived = asyncio.Condition()

    async def wait(self, request: Any) -> Any:
        """Answer never; the caller gives up."""
        del request
        await asyncio.Event().wait()

    def script(self, rpc: str, *answers: Message | Exception, then: Answer | None = None) -> None:
        """Give these answers to the next calls, and then go on with `then` or as before."""
        remaining = list(answers)
        after = then or self.answers.get(rpc)

        async def answer(request: Any) -> Any:
            if remaining:
                next_ = remaining.pop(0)
                if isinstance(next_, Exception):
                    raise next_
                return next_
            return await after(request) if after is not None else self._empty(rpc)

        self.answers[rpc] = answer

    def namespace_can(self, **capabilities: bool) -> None:
        """Give the namespace these capabilities."""
        answer = messages.DescribeNamespaceResponse()
        for name, can in capabilities.items():
            setattr(answer.namespace_info.capabilities, name, can)
        self.script("DescribeNamespace", answer)

    def hold(self, rpc: str) -> asyncio.Event:
        """Answer the calls of an RPC, with nothing, once the event is set."""
        released = asyncio.Event()

        async def answer(request: Any) -> Message:
            del request
            await released.wait()
            return self._empty(rpc)

        self.answers[rpc] = answer
        return released

    async def seen(self, rpc: str, count: int = 1) -> list[Any]:
        """Wait until so many calls of an RPC have come."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests[rpc]) >= count)
        return self.requests[rpc]

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rsplit("/", 1)[1]
        request = getattr(messages, f"{name}Request", None)
        if request is None:
            return None

        async def handle(raw: bytes, context: Any) -> bytes:
            self._open += 1
            self.idle.clear()
            try:
                return await self._answer(name, request.FromString(raw))
            except asyncio.CancelledError:
                self.cancelled[name] += 1
                raise
            except Refused as refused:
                await context.abort(refused.code, refused.message)
                raise AssertionError("abort raises") from None
            finally:
                self._open -= 1
                if not self._open:
                    self.idle.set()

        return grpc.unary_unary_rpc_method_handler(handle)

    async def _answer(self, name: str, request: Any) -> bytes:
        async with self._arrived:
            self.requests[name].append(request)
            self._arrived.notify_all()
        answer = self.answers.get(name)
        response = await answer(request) if answer is not None else self._empty(name)
        return response.SerializeToString()

    def _empty(self, name: str) -> Message:
        empty: Message = getattr(messages, f"{name}Response")()
        return empty


@asynccontextmanager
async def fake_server() -> AsyncIterator[FakeServer]:
    """A server on a free port of this machine."""
    fake = FakeServer()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((fake,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    fake.target = f"127.0.0.1:{port}"
    try:
        yield fake
    finally:
        await server.stop(None)
