"""Sending the answer of a workflow task in pages.

Intermediate pages may arrive in any order, so a few are under way at a time; the final one waits
for them. A server that has lost what it had says so, and gets everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from temporalio.api.workflowservice.v1 import (
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
)

from perdure.core.workflow_tasks.completion_pages import Pages
from perdure.temporal.connection.retry import is_completion_lost
from perdure.temporal.sdk_errors import RPCError

__all__ = ["send_pages"]

_AT_A_TIME: Final = 3
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

_Send = Callable[
    [RespondWorkflowTaskCompletedRequest], Awaitable[RespondWorkflowTaskCompletedResponse]
]


async def send_pages(pages: Pages, send: _Send) -> RespondWorkflowTaskCompletedResponse:
    """Send all pages; the answer to the final one. Raises `RPCError` of the first that fails."""
    pause = _FIRST_PAUSE
    while True:
        try:
            await _send_all(pages.intermediate, send)
            return await send(pages.final)
        except RPCError as error:
            if not is_completion_lost(error.details):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _send_all(pages: Iterable[RespondWorkflowTaskCompletedRequest], send: _Send) -> None:
    remaining = iter(pages)

    async def send_remaining() -> None:
        for page in remaining:
            await send(page)

    senders = [asyncio.ensure_future(send_remaining()) for _ in range(_AT_A_TIME)]
    try:
        await asyncio.gather(*senders)
    finally:
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
