"""Starting workflows.

A dispatch is idempotent in its id: one whose id exists already changes nothing and says so. Ids are
made outside of the transaction, hence a retried dispatch can never start a workflow twice.

Uniqueness holds between concurrent dispatches, because each reads serializably what the other one
writes: the row of the business key, or the tag lists that a search walks (see `find`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.find import find
from perdure.engine.database.keys import Keys, WakeKind
from perdure.engine.database.lease import Lease, fence, take_new
from perdure.engine.database.record import add_record
from perdure.engine.database.rows import Phase, Prune, Status, WorkflowRecord, encode
from perdure.engine.database.status import read_status
from perdure.engine.database.steps import put_event
from perdure.engine.database.tags import index_tags
from perdure.engine.errors import WorkflowExists
from perdure.engine.history.events import SubWorkflowEvent
from perdure.engine.tags import Tags, canonical_tags
from perdure.errors import LimitExceeded, PayloadError
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = ["UNIQUE_KEY_BYTES", "Dispatch", "Dispatched", "dispatch", "dispatch_child"]

UNIQUE_KEY_BYTES: Final = 1_024


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """What is to be started.

    `unique=True`: not if an open workflow of this name has at least these tags. `unique="text"`:
    not if an open workflow of this name holds this business key (at most 1,024 bytes).
    """

    id: Id
    name: str
    input: bytes
    tags: Tags
    ray_id: Id
    parent: Id | None = None
    unique: bool | str = False
    prune: Prune = Prune.ALL
    worker: Id | None = None
    """Who takes the workflow at once, so that it need not be found through the wake index."""


class Dispatched(msgspec.Struct, frozen=True, gc=False):
    """The workflow that was started (`created`), or that was there already.

    `taken` is its lease and record if it was created for a worker that takes it at once.
    """

    id: Id
    created: bool
    taken: tuple[Lease, WorkflowRecord] | None = None


@transactional(idempotent=True)
async def dispatch(tx: Transaction, keys: Keys, request: Dispatch, now: int) -> Dispatched:
    """Start a workflow, or find the one that `unique` or the id stands for.

    Raises `WorkflowExists` if the id belongs to a workflow of another name, `LimitExceeded` and
    `PayloadError` for tags or a business key that cannot be stored.
    """
    return await _dispatch(tx, keys, request, now)


@transactional(idempotent=True)
async def dispatch_child(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    key: bytes,
    event: SubWorkflowEvent,
    request: Dispatch,
    now: int,
) -> Dispatched:
    """Start a workflow from within another one, and record it there, in one transaction.

    `key` is the packed location of the step. The stored event carries the id of the workflow that
    was found or started, whatever `event.id` says. Raises `LeaseLost` and what `dispatch` raises.
    """
    await fence(tx, lease)
    dispatched = await _dispatch(tx, keys, request, now)
    if event.id != dispatched.id:
        event = msgspec.structs.replace(event, id=bytes(dispatched.id))
    put_event(tx, lease, key, event)
    return dispatched


async def _dispatch(tx: Transaction, keys: Keys, request: Dispatch, now: int) -> Dispatched:
    workflow_id, name = request.id, request.name
    tags = canonical_tags(request.tags)
    existing = await read_status(tx, keys, workflow_id)
    if existing is not None:
        if existing[1].name != name:
            raise WorkflowExists(workflow_id, existing[1].name)
        return Dispatched(workflow_id, created=False)
    unique = request.unique
    if unique is not False:
        holder = await _holder(tx, keys, name, tags, unique)
        if holder is not None:
            return Dispatched(holder, created=False)
    business_key = unique if isinstance(unique, str) else None
    if business_key is not None:
        tx.set(keys.unique(name, business_key), bytes(workflow_id))
    record = WorkflowRecord(
        name,
        now,
        request.ray_id,
        tags,
        request.parent,
        business_key,
        request.prune,
        False,
        request.input,
    )
    add_record(tx, keys, workflow_id, record)
    tx.set(keys.listed(name, now, workflow_id, open=True), b"")
    index_tags(tx, keys, workflow_id, name, tags, old_open=None, new_open=True)
    if request.worker is not None:
        lease = take_new(tx, keys, workflow_id, name, request.worker, now)
        gauges.move(tx, keys, name, None, Phase.RUNNING)
        return Dispatched(workflow_id, created=True, taken=(lease, record))
    status = Status(Phase.SLEEPING, 0, now, name, immediate_at=now)
    tx.set(keys.status(workflow_id), b"\x00" + encode(status))
    tx.set(keys.wake(name, now, workflow_id, WakeKind.IMMEDIATE), b"")
    gauges.move(tx, keys, name, None, Phase.SLEEPING)
    return Dispatched(workflow_id, created=True)


async def _holder(
    tx: Transaction, keys: Keys, name: str, tags: Tags, unique: str | bool
) -> Id | None:
    """The open workflow that a unique dispatch finds instead of starting one."""
    if not isinstance(unique, str):
        return await find(tx, keys, name, tags)
    try:
        size = len(unique.encode())
    except UnicodeEncodeError as error:
        raise PayloadError("$", f"the unique key is not valid Unicode: {error.reason}") from error
    if size > UNIQUE_KEY_BYTES:
        raise LimitExceeded("the unique key in bytes", size, UNIQUE_KEY_BYTES, "use a hash of it")
    row = await tx.get(keys.unique(name, unique))
    return None if row is None else Id(row)
