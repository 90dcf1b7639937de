"""Writing history: each step of a run is one fenced transaction.

`key` is always the packed location of the event, relative to the workflow's history.

Invariants:

* A run that lost its lease writes nothing.
* The state of a workflow changes together with the activity event that changed it.
* An event is updated only if it is there: an update can never create half an event.
* The commit of a loop and the compaction of finished iterations are one transaction, so the event
  of a loop is never behind what is left of its iterations.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.engine.database.compaction import compact
from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease, fence
from perdure.engine.database.results import Outcome, read_outcome
from perdure.engine.database.status import existing_status
from perdure.engine.errors import EventMissing
from perdure.engine.history.events import (
    ChildResultEvent,
    Event,
    LoopEvent,
    encode_event,
)
from perdure.engine.history.location import unpack_location
from perdure.ids import Id
from perdure.kv import Database, Transaction, transactional
from perdure.kv.chunks import clear_value, is_chunked, replace_value, write_value

__all__ = [
    "child_result",
    "commit_loop",
    "compact_loop",
    "put_event",
    "rewrite_event",
    "write_event",
]


@transactional(idempotent=True)
async def write_event(
    tx: Transaction,
    lease: Lease,
    key: bytes,
    event: Event,
    *,
    state: bytes | None = None,
    fresh: bool = True,
) -> None:
    """Write an event and, of an activity that changed it, the workflow's state.

    `fresh` promises that nothing lies at `key`; pass False to replace what may be there. Raises
    `LeaseLost`.
    """
    await fence(tx, lease)
    if fresh:
        write_value(tx, lease.history_key + key, encode_event(event), fresh=True)
    else:
        await replace_value(tx, lease.history_key + key, encode_event(event))
    if state is not None:
        await replace_value(tx, lease.state_key, state)


def put_event(tx: Transaction, lease: Lease, key: bytes, event: Event) -> None:
    """Add an event, in a transaction that is fenced already and knows that nothing lies there."""
    write_value(tx, lease.history_key + key, encode_event(event), fresh=True)


async def rewrite_event(tx: Transaction, lease: Lease, key: bytes, event: Event) -> None:
    """Replace the event at `key`, in a transaction that is fenced already.

    Raises `EventMissing` if there is none.
    """
    full_key = lease.history_key + key
    row = await tx.get(full_key)
    if row is None:
        raise EventMissing(lease.workflow_id, unpack_location(key))
    if is_chunked(row):
        clear_value(tx, full_key)
    write_value(tx, full_key, encode_event(event), fresh=True)


async def commit_loop(
    source: Database | Transaction,
    keys: Keys,
    lease: Lease,
    loop_key: bytes,
    loop_event: LoopEvent,
    finished_before: int,
    retention: int,
) -> None:
    """Replace a loop's event, and forget finished iterations.

    Iterations with a number below `finished_before` are moved out of the active history; the last
    `retention` of them are kept for people to read.

    The transaction moves a bounded amount, oldest first. Given a database, the rest follows in
    transactions of its own; given a transaction, with the next commit. What is left meanwhile is
    not looked at by replay, which begins with the stored iteration. Raises `LeaseLost`, and
    `EventMissing` if the loop's event is not there.
    """
    more = await _commit_loop(source, keys, lease, loop_key, loop_event, finished_before, retention)
    while more and isinstance(source, Database):
        more = await compact_loop(source, keys, lease, loop_key, finished_before, retention)


@transactional(idempotent=True)
async def _commit_loop(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    loop_key: bytes,
    loop_event: LoopEvent,
    finished_before: int,
    retention: int,
) -> bool:
    await fence(tx, lease)
    await rewrite_event(tx, lease, loop_key, loop_event)
    spent = len(loop_event.state) + len(loop_event.output or b"")
    return await compact(tx, keys, lease, loop_key, finished_before, retention, spent)


@transactional(idempotent=True)
async def compact_loop(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    loop_key: bytes,
    finished_before: int,
    retention: int,
) -> bool:
    """Forget more finished iterations of a loop. Returns whether some are left.

    Raises `LeaseLost`.
    """
    await fence(tx, lease)
    return await compact(tx, keys, lease, loop_key, finished_before, retention, 0)


@transactional(idempotent=True)
async def child_result(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    key: bytes,
    child: Id,
    make_event: Callable[[Outcome], ChildResultEvent],
) -> Outcome | None:
    """Record how a child ended, its death included. None, and nothing written, while it is open.

    Raises `LeaseLost`, `WorkflowNotFound` if the child is unknown or pruned, `CorruptRecord`.
    """
    await fence(tx, lease)
    _, status = await existing_status(tx, keys, child)
    outcome = await read_outcome(tx, keys, child, status.phase)
    if outcome is not None:
        put_event(tx, lease, key, make_event(outcome))
    return outcome
