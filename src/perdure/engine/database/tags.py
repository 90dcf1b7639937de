"""Changing tags.

Tags are stored in two places, the record and one index row per tag, and change in both in one
transaction: at any moment a search by tags agrees with what the workflow says of itself.
"""

from __future__ import annotations

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease, fence
from perdure.engine.database.record import read_record, write_record
from perdure.engine.database.status import existing_status
from perdure.engine.database.steps import put_event
from perdure.engine.history.events import TagsEvent
from perdure.engine.tags import TagMapping, Tags, canonical_tags, same_tag
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = ["index_tags", "set_tags"]


def index_tags(
    tx: Transaction,
    keys: Keys,
    workflow_id: bytes,
    name: str,
    tags: Tags,
    *,
    old_open: bool | None,
    new_open: bool | None,
) -> None:
    """Move the index rows of all tags between the open and the closed list; None is nowhere."""
    for key, value in tags.items():
        if old_open is not None:
            tx.clear(keys.tagged(name, key, value, open=old_open) + workflow_id)
        if new_open is not None:
            tx.set(keys.tagged(name, key, value, open=new_open) + workflow_id, b"")


@transactional(idempotent=True)
async def set_tags(
    tx: Transaction,
    keys: Keys,
    workflow_id: Id,
    tags: TagMapping,
    lease: Lease | None = None,
    key: bytes | None = None,
    event: TagsEvent | None = None,
) -> None:
    """Replace all tags of a workflow, open or closed.

    A run passes its `lease` and, to record the step, the event and its `key` (packed location).
    Raises `WorkflowNotFound`, `LeaseLost`, and what `canonical_tags` raises.
    """
    canonical = canonical_tags(tags)
    if lease is not None:
        await fence(tx, lease)
    _, status = await existing_status(tx, keys, workflow_id)
    record = await read_record(tx, keys, workflow_id)
    is_open = not status.phase.closed
    old = {
        name: value for name, value in record.tags.items() if not same_tag(canonical, name, value)
    }
    new = {
        name: value for name, value in canonical.items() if not same_tag(record.tags, name, value)
    }
    index_tags(tx, keys, workflow_id, record.name, old, old_open=is_open, new_open=None)
    index_tags(tx, keys, workflow_id, record.name, new, old_open=None, new_open=is_open)
    await write_record(tx, keys, workflow_id, msgspec.structs.replace(record, tags=canonical))
    if lease is not None and key is not None and event is not None:
        put_event(tx, lease, key, event)
