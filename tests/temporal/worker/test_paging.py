"""Pages on their way to a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import (
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
)

import perdure.temporal.worker.paging as paging
from perdure.core.workflow_tasks.completion_pages import Pages
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.worker.paging import send_pages

LOST = (
    b"\x08\x0a\x12\x04lost...temporal.api.errordetails.v1.WorkflowTaskCompletionBufferLostFailure"
)


def pages(count: int) -> Pages:
    return Pages(
        tuple(
            RespondWorkflowTaskCompletedRequest(page_number=number, intermediate_page=True)
            for number in range(count)
        ),
        RespondWorkflowTaskCompletedRequest(page_number=count),
    )


class Server:
    """Counts what comes, and refuses what it is told to, once each."""

    def __init__(self, refusals: dict[int, RPCError] | None = None) -> None:
        self.refusals = refusals or {}
        self.received: list[int] = []
        self.under_way = 0
        self.most_under_way = 0

    async def send(self, page: Any) -> RespondWorkflowTaskCompletedResponse:
        self.received.append(page.page_number)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        refusal = self.refusals.pop(page.page_number, None)
        if refusal is not None:
            raise refusal
        return RespondWorkflowTaskCompletedResponse(reset_history_event_id=page.page_number)


async def test_the_final_page_follows_all_others_and_its_answer_counts() -> None:
    server = Server()
    answer = await send_pages(pages(5), server.send)
    assert sorted(server.received[:5]) == [0, 1, 2, 3, 4]
    assert server.received[5:] == [5]
    assert answer.reset_history_event_id == 5


async def test_three_pages_are_under_way_at_most() -> None:
    server = Server()
    await send_pages(pages(10), server.send)
    assert server.most_under_way == 3


@pytest.mark.parametrize("at", [0, 3])
async def test_a_server_that_lost_pages_gets_all_again(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "_FIRST_PAUSE", 0.0)
    server = Server({at: RPCError(10, "lost", LOST)})
    answer = await send_pages(pages(3), server.send)
    assert sorted(server.received[-4:-1]) == [0, 1, 2]
    assert answer.reset_history_event_id == 3


async def test_any_other_refusal_ends_it() -> None:
    server = Server({1: RPCError(5, "not found", b"")})
    with pytest.raises(RPCError, match="not found"):
        await send_pages(pages(3), server.send)
    assert 3 not in server.received
