"""The admin interface as data: one request record per method of `Admin`.

A request knows the type of its answer, so the same typed call works on an `Admin` in this process
and over the socket: `await target.ask(GetWorkflow(id=...))` is a `WorkflowDetail` in both cases.
The tag of a record is the name of the method.

On the wire a request is one line of JSON `{"protocol": 1, "request": {"method": "get", ...}}`, an
answer is one line `{"result": ...}` or `{"error": {"code", "message", "fields", "fault"}}`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from perdure.engine.admin.views import (
    ControlResult,
    DispatchResult,
    PendingSignalView,
    PruneResult,
    ReviveResult,
    SignalResult,
    StatsView,
    WorkflowDetail,
    WorkflowHistory,
    WorkflowPage,
)
from perdure.engine.tags import Tags

__all__ = [
    "PROTOCOL",
    "AdminTarget",
    "AnyRequest",
    "CancelWorkflow",
    "DispatchWorkflow",
    "GetWorkflow",
    "ListSignals",
    "ListWorkflows",
    "Prune",
    "ReadHistory",
    "Request",
    "ReviveWorkflows",
    "SendSignal",
    "SilenceWorkflow",
    "Stats",
    "TerminateWorkflow",
    "UnsilenceWorkflow",
    "WakeWorkflow",
]

PROTOCOL = 1

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Request(
    msgspec.Struct, Generic[Answer_co], frozen=True, kw_only=True, tag_field="method",
    forbid_unknown_fields=True,
):  # fmt: skip
    """A call of one admin method. `answer` is the type of what it gives back."""

    answer: ClassVar[Any]
    writes: ClassVar[bool] = False


class AdminTarget(Protocol):
    """Something that performs requests: the store in this process, or the process that owns it."""

    async def ask(self, request: Request[Answer]) -> Answer:
        """Perform `request`. Raises `PerdureError`s: the method's own, or `RemoteRefusal`."""


class ListWorkflows(Request[WorkflowPage], frozen=True, kw_only=True, tag="list"):
    """See `Admin.list`."""

    answer = WorkflowPage
    state: str | None = None
    name: str | None = None
    tags: Tags = {}
    since: int | None = None
    before: int | None = None
    limit: int = 100
    page: str | None = None


class GetWorkflow(Request[WorkflowDetail], frozen=True, kw_only=True, tag="get"):
    """See `Admin.get`."""

    answer = WorkflowDetail
    id: str


class ReadHistory(Request[WorkflowHistory], frozen=True, kw_only=True, tag="history"):
    """See `Admin.history`."""

    answer = WorkflowHistory
    id: str
    forgotten: bool = False


class ListSignals(Request[list[PendingSignalView]], frozen=True, kw_only=True, tag="signals"):
    """See `Admin.signals`."""

    answer = list[PendingSignalView]
    id: str
    limit: int = 100


class Stats(Request[StatsView], frozen=True, kw_only=True, tag="stats"):
    """See `Admin.stats`."""

    answer = StatsView


class DispatchWorkflow(Request[DispatchResult], frozen=True, kw_only=True, tag="dispatch"):
    """See `Admin.dispatch`."""

    answer = DispatchResult
    writes = True
    name: str
    input: Any = None
    tags: Tags = {}
    unique: bool | str = False


class SendSignal(Request[SignalResult], frozen=True, kw_only=True, tag="signal"):
    """See `Admin.signal`."""

    answer = SignalResult
    writes = True
    id: str
    name: str
    body: Any = None


class CancelWorkflow(Request[ControlResult], frozen=True, kw_only=True, tag="cancel"):
    """See `Admin.cancel`."""

    answer = ControlResult
    writes = True
    id: str
    reason: str = ""


class TerminateWorkflow(Request[ControlResult], frozen=True, kw_only=True, tag="terminate"):
    """See `Admin.terminate`."""

    answer = ControlResult
    writes = True
    id: str
    reason: str = ""


class WakeWorkflow(Request[ControlResult], frozen=True, kw_only=True, tag="wake"):
    """See `Admin.wake`."""

    answer = ControlResult
    writes = True
    id: str


class SilenceWorkflow(Request[ControlResult], frozen=True, kw_only=True, tag="silence"):
    """See `Admin.silence`."""

    answer = ControlResult
    writes = True
    id: str


class UnsilenceWorkflow(Request[ControlResult], frozen=True, kw_only=True, tag="unsilence"):
    """See `Admin.unsilence`."""

    answer = ControlResult
    writes = True
    id: str


class ReviveWorkflows(Request[ReviveResult], frozen=True, kw_only=True, tag="revive"):
    """See `Admin.revive`."""

    answer = ReviveResult
    writes = True
    ids: list[str] = []
    name: str | None = None
    error: str | None = None
    dry_run: bool = False
    limit: int = 1000


class Prune(Request[PruneResult], frozen=True, kw_only=True, tag="prune"):
    """See `Admin.prune`."""

    answer = PruneResult
    writes = True
    closed_before: int
    limit: int = 10_000


AnyRequest = (
    ListWorkflows
    | GetWorkflow
    | ReadHistory
    | ListSignals
    | Stats
    | DispatchWorkflow
    | SendSignal
    | CancelWorkflow
    | TerminateWorkflow
    | WakeWorkflow
    | SilenceWorkflow
    | UnsilenceWorkflow
    | ReviveWorkflows
    | Prune
)
