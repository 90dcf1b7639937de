"""The answer of a call that is not lost when its caller is cancelled too late.

A server counts a task as given out once it has answered the poll. If the poll is cancelled when
the answer is already here, but nobody has looked at it yet, the task would wait for its time-out.
So for polls an answer goes before a cancellation; the caller finds out by `Task.cancelling`.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

__all__ = ["kept_answer"]


async def kept_answer(call: grpc.aio.UnaryUnaryCall[bytes, bytes]) -> bytes:
    """Like `await call`, but a cancellation only counts if there is no answer by then."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    call.add_done_callback(end)
    try:
        await ended
    except asyncio.CancelledError:
        if call.cancel() or await call.code() is not grpc.StatusCode.OK:
            raise
    answer: bytes = await call
    return answer
