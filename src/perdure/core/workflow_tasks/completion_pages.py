"""The answer of a workflow task in pages, for servers that can put them together again.

A server takes gRPC messages up to 4 MiB. Commands can be many, so they may go ahead in
intermediate pages; the final page is the answer without them. One command is never split: with a
command that is too large for a page the answer is sent whole, and refused as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from temporalio.api.workflowservice.v1.request_response_pb2 import (
    RespondWorkflowTaskCompletedRequest,
)

__all__ = ["COMPLETION_TOO_LARGE", "Pages", "pages_of"]

_PAGE_SIZE: Final = 4 * 1024 * 1024 - 512 * 1024
"""The most bytes of commands in a page; the rest of a gRPC message is left for everything else."""

COMPLETION_TOO_LARGE: Final = "Workflow task completion exceeds the namespace size limit"
"""Why an answer is not sent that is too large even in pages."""


@dataclass(frozen=True, slots=True)
class Pages:
    """`final` answers the task, once the server has all `intermediate` pages, in any order."""

    intermediate: tuple[RespondWorkflowTaskCompletedRequest, ...]
    final: RespondWorkflowTaskCompletedRequest


def pages_of(
    request: RespondWorkflowTaskCompletedRequest, page_size: int = _PAGE_SIZE
) -> Pages | None:
    """The pages of an answer; None when it is to be sent whole."""
    if request.ByteSize() <= page_size or not request.commands:
        return None
    page = _page(request, 0)
    pages, used = [page], 0
    for command in request.commands:
        size = command.ByteSize()
        if size > page_size:
            return None
        if used + size > page_size:
            page = _page(request, len(pages))
            pages.append(page)
            used = 0
        page.commands.append(command)
        used += size
    final = RespondWorkflowTaskCompletedRequest()
    final.CopyFrom(request)
    final.ClearField("commands")
    final.page_number = len(pages)
    return Pages(tuple(pages), final)


def _page(
    request: RespondWorkflowTaskCompletedRequest, number: int
) -> RespondWorkflowTaskCompletedRequest:
    return RespondWorkflowTaskCompletedRequest(
        task_token=request.task_token,
        identity=request.identity,
        namespace=request.namespace,
        page_number=number,
        intermediate_page=True,
    )
