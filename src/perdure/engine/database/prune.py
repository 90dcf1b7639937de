"""Removing what is left of workflows that closed long ago.

Everything needed to find the rows of a workflow is read before the first of them is cleared.
`Prune.ALL` leaves nothing behind; `Prune.HISTORY` keeps input, state, output and failure, and
marks the workflow as pruned. Dead workflows are not in the prune index: they wait for somebody to
revive or delete them.
"""

from __future__ import annotations

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.finish import INDEXED_PHASES
from perdure.engine.database.keys import Keys, packed_integer
from perdure.engine.database.queues import drop_pending
from perdure.engine.database.record import read_record
from perdure.engine.database.rows import Prune, Status
from perdure.engine.database.status import read_status
from perdure.engine.database.tags import index_tags
from perdure.engine.errors import CorruptRecord
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = ["Pruned", "prune", "remove"]


class Pruned(msgspec.Struct, frozen=True):
    """`count` workflows were pruned. `cursor` continues where this stopped; None at the end."""

    count: int
    cursor: bytes | None


@transactional(idempotent=True)
async def prune(
    tx: Transaction,
    keys: Keys,
    closed_before: int,
    limit: int,
    now: int,
    cursor: bytes | None = None,
) -> Pruned:
    """Prune at most `limit` workflows that closed before `closed_before` (ms), oldest first.

    Each as its record says. One whose record cannot be read stays, for somebody to look at; the
    cursor passes over it.
    """
    prefix = keys.prunable()
    begin = prefix if cursor is None else prefix + cursor
    rows = await tx.get_range(begin, prefix + packed_integer(closed_before), limit=limit)
    count = 0
    for key, _ in rows:
        workflow_id = Id(key[-Id.SIZE :])
        try:
            count += await _prune(tx, keys, workflow_id, now)
        except CorruptRecord:
            continue
        tx.clear(key)
    more = len(rows) == limit
    return Pruned(count, rows[-1][0][len(prefix) :] + b"\x00" if more else None)


async def _prune(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> bool:
    found = await read_status(tx, keys, workflow_id)
    if found is None or not found[1].phase.closed:
        return False
    record = await read_record(tx, keys, workflow_id)
    if record.prune is Prune.ALL:
        await remove(tx, keys, workflow_id, found[1])
    else:
        for history in (keys.history(workflow_id), keys.forgotten(workflow_id)):
            tx.clear_range(history, history + b"\xff")
        tx.set(keys.pruned(workflow_id), now.to_bytes(8, "big"))
    return True


async def remove(tx: Transaction, keys: Keys, workflow_id: Id, status: Status) -> None:
    """Remove a closed workflow: all its rows, its places in the indexes, its counts."""
    record = await read_record(tx, keys, workflow_id)
    name = record.name
    await drop_pending(tx, keys, workflow_id)
    tx.clear(keys.listed(name, record.created_at, workflow_id, open=False))
    index_tags(tx, keys, workflow_id, name, record.tags, old_open=False, new_open=None)
    if status.phase in INDEXED_PHASES:
        tx.clear(keys.index(status.phase, name, status.changed_at, workflow_id))
    tx.clear(keys.prune(status.changed_at, workflow_id))
    prefix = keys.workflow(workflow_id)
    tx.clear_range(prefix, prefix + b"\xff")
    gauges.move(tx, keys, name, status.phase, None)
