"""Reading all that a run needs, once its workflow is leased.

Record, status, input, state, cancel request and active history lie side by side, so this is one
range scan. It is a step of its own and not part of `take`, to keep the contended transaction small.

Unreadable rows raise a typed error for this workflow alone; the caller sets that workflow aside
with `finish.quarantine`.
"""

from __future__ import annotations

import asyncio

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease
from perdure.engine.database.rows import CancelRequest, WorkflowRecord, decode
from perdure.engine.errors import CorruptRecord, LeaseLost
from perdure.engine.history.history import History
from perdure.ids import InvalidId
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import join_rows
from perdure.kv.errors import CorruptValue

__all__ = ["Loaded", "load", "read_cancel"]

_PAGE = 2_000


class Loaded(msgspec.Struct, frozen=True):
    """A leased workflow, ready to run.

    `record.input` is always present. `state` is the user's value as last stored.
    """

    record: WorkflowRecord
    state: bytes | None
    history: History
    cancel: CancelRequest | None


@transactional
async def load(tx: Transaction, keys: Keys, lease: Lease) -> Loaded:
    """Read a leased workflow.

    Raises `LeaseLost`, and `CorruptRecord` if a row cannot be read. Events are decoded when the run
    reaches them, so `CorruptHistory` comes from the history itself.
    """
    workflow_id = lease.workflow_id
    rows: dict[bytes, bytes] = {}
    events: list[tuple[bytes, bytes]] = []
    history, start = lease.history_key, len(lease.history_key)
    try:
        pages = await _read_all(tx, keys.record(workflow_id), history + b"\xff")
        for key, value in join_rows(pages):
            if key.startswith(history):
                events.append((key[start:], value))
            else:
                rows[key] = value
    except CorruptValue as error:
        raise CorruptRecord(workflow_id, "rows", str(error)) from error
    if rows.get(lease.status_key) != lease.token[1:]:
        raise LeaseLost(workflow_id)
    try:
        record = _record(keys, lease, rows)
        cancel = rows.get(keys.cancel(workflow_id))
        request = None if cancel is None else decode.cancel_request(cancel)
    except (msgspec.MsgspecError, InvalidId) as error:
        raise CorruptRecord(workflow_id, "record or cancel request", str(error)) from error
    return Loaded(record, rows.get(lease.state_key), History.from_rows(events), request)


async def _read_all(tx: Transaction, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """All rows of a range, giving way to others after each page of it."""
    rows = page = await tx.get_range(begin, end, limit=_PAGE, snapshot=True)
    while len(page) == _PAGE:
        await asyncio.sleep(0)
        page = await tx.get_range(page[-1][0] + b"\x00", end, limit=_PAGE, snapshot=True)
        rows += page
    return rows


def _record(keys: Keys, lease: Lease, rows: dict[bytes, bytes]) -> WorkflowRecord:
    row = rows.get(keys.record(lease.workflow_id))
    if row is None:
        raise CorruptRecord(lease.workflow_id, "record", "it is missing")
    record = decode.record(row)
    if not record.input_apart:
        return record
    value = rows.get(keys.input(lease.workflow_id))
    if value is None:
        raise CorruptRecord(lease.workflow_id, "input", "it is missing")
    return msgspec.structs.replace(record, input=value)


@transactional
async def read_cancel(
    tx: Transaction, keys: Keys, lease: Lease
) -> tuple[bool, CancelRequest | None]:
    """Whether the lease still holds, and the request to cancel the workflow if there is one.

    Snapshot reads: this is a look, the fence of the next commit decides.
    """
    if await tx.get(lease.status_key, snapshot=True) != lease.token:
        return False, None
    row = await tx.get(keys.cancel(lease.workflow_id), snapshot=True)
    if row is None:
        return True, None
    try:
        return True, decode.cancel_request(row[1:])
    except msgspec.MsgspecError as error:
        raise CorruptRecord(lease.workflow_id, "cancel request", str(error)) from error
