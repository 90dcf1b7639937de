"""Reading workflows and putting them into views. Snapshot reads only: looking disturbs nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.engine.admin.history_tree import history_tree, progress_of
from perdure.engine.admin.values import failure_view, plain_value
from perdure.engine.admin.views import (
    PendingSignalView,
    ProgressView,
    WorkflowDetail,
    WorkflowHistory,
    WorkflowPage,
    WorkflowView,
)
from perdure.engine.database.inspect import (
    Description,
    ListFilter,
    describe,
    history_rows,
    list_workflows,
    pending_counts,
    values,
)
from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import Status
from perdure.engine.database.signals import pending
from perdure.engine.errors import WorkflowNotFound
from perdure.ids import Id
from perdure.kv import Database, Transaction, transactional
from perdure.kv.chunks import is_chunked

__all__ = ["detail", "history", "list_page", "pending_signals", "view", "views"]

_EVENTS_FOR_PROGRESS: Final = 100
"""A list looks at this many of the newest events of a workflow for work that is under way."""


@transactional
async def list_page(
    tx: Transaction, keys: Keys, wanted: ListFilter, limit: int, page: str | None
) -> WorkflowPage:
    """Workflows that match, with the newest of what they have under way."""
    found = await list_workflows(tx, keys, wanted, limit, page)
    return WorkflowPage(
        workflows=[await _view(tx, keys, each) for each in found.workflows],
        next_page=found.next_page,
    )


@transactional
async def view(tx: Transaction, keys: Keys, workflow_id: Id) -> WorkflowView:
    """One line about a workflow. Raises `WorkflowNotFound`."""
    return await _view(tx, keys, await _described(tx, keys, workflow_id))


async def views(database: Database, keys: Keys, ids: Sequence[Id]) -> list[WorkflowView]:
    """One line about each of these; those that vanished meanwhile are left out."""
    found = []
    for workflow_id in ids:
        try:
            found.append(await view(database, keys, workflow_id))
        except WorkflowNotFound:
            continue
    return found


@transactional
async def detail(tx: Transaction, keys: Keys, workflow_id: Id) -> WorkflowDetail:
    """Everything about a workflow but its history. Raises `WorkflowNotFound`."""
    found = await _described(tx, keys, workflow_id)
    payloads = await values(tx, keys, workflow_id)
    record, status, cancel = found.record, found.status, found.cancel
    progress = [] if status.phase.closed else progress_of(await history_rows(tx, keys, workflow_id))
    return WorkflowDetail(
        **_common(found, progress),
        ray_id=str(record.ray_id),
        parent=None if record.parent is None else str(record.parent),
        unique=record.unique,
        worker=None if status.worker is None else str(status.worker),
        epoch=status.epoch,
        input=plain_value(payloads.input),
        value=plain_value(payloads.state),
        output=plain_value(payloads.output),
        failure=None if found.failure is None else failure_view(found.failure),
        cancel_requested_at=None if cancel is None else cancel.at,
        cancel_reason=None if cancel is None else cancel.reason,
        silenced_at=status.silenced_at,
        pruned_at=found.pruned_at,
        pending_signals=await pending_counts(tx, keys, workflow_id),
    )


@transactional
async def history(
    tx: Transaction, keys: Keys, workflow_id: Id, *, forgotten: bool
) -> WorkflowHistory:
    """The tree of recorded events. Raises `WorkflowNotFound`."""
    found = await _described(tx, keys, workflow_id)
    active = await history_rows(tx, keys, workflow_id)
    old = await history_rows(tx, keys, workflow_id, forgotten=True) if forgotten else []
    progress = [] if found.status.phase.closed else progress_of(active)
    return WorkflowHistory(
        workflow=WorkflowView(**_common(found, progress)), events=history_tree(active, old)
    )


async def pending_signals(
    database: Database, keys: Keys, workflow_id: Id, limit: int
) -> list[PendingSignalView]:
    """Signals that were not received yet, in commit order. Raises `WorkflowNotFound`."""
    return [
        PendingSignalView(
            id=str(signal.id),
            name=signal.name,
            sent_at=signal.sent_at,
            ray_id=str(signal.ray_id),
            body=plain_value(signal.body),
        )
        for signal in await pending(database, keys, workflow_id, limit)
    ]


async def _described(tx: Transaction, keys: Keys, workflow_id: Id) -> Description:
    [found] = await describe(tx, keys, [workflow_id])
    if found is None:
        raise WorkflowNotFound(workflow_id)
    return found


async def _view(tx: Transaction, keys: Keys, found: Description) -> WorkflowView:
    closed = found.status.phase.closed
    progress = [] if closed else progress_of(await _newest_events(tx, keys, found.id))
    return WorkflowView(**_common(found, progress))


async def _newest_events(tx: Transaction, keys: Keys, workflow_id: Id) -> list[tuple[bytes, bytes]]:
    """The last events in order of location, those of one row only: enough for a list."""
    prefix = keys.history(workflow_id)
    rows = await tx.get_range(
        prefix, prefix + b"\xff", limit=_EVENTS_FOR_PROGRESS, reverse=True, snapshot=True
    )
    return [
        (key[len(prefix) :], value[1:]) for key, value in reversed(rows) if not is_chunked(value)
    ]


def _common(found: Description, progress: list[ProgressView]) -> dict[str, Any]:
    """The fields of `WorkflowView`."""
    record, status = found.record, found.status
    wakes = [at for at in (status.immediate_at, status.deadline) if at is not None]
    return {
        "id": str(found.id),
        "name": record.name,
        "state": found.state,
        "created_at": record.created_at,
        "changed_at": status.changed_at,
        "tags": record.tags,
        "wake_at": min(wakes, default=None),
        "waiting_for": _waiting_for(status),
        "error": None if found.failure is None else _one_line(found.failure.summary),
        "progress": progress,
    }


def _waiting_for(status: Status) -> list[str]:
    signals = [f"signal {name}" for name in status.signals]
    return signals + [f"workflow {child}" for child in status.children]


def _one_line(text: str) -> str:
    return text.partition("\n")[0]
