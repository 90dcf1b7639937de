"""The end of a run: the workflow goes to sleep, or it is closed.

**No lost wake-up.** The transaction that puts a run to sleep reads, serializably, the queues of the
signals and the children it will wait for, and the cancel row. If something is there already it
stores an immediate wake instead. Publishers and closing children read the status serializably.
So one of the two sees the other, in either order.

**One way to close.** However a workflow ends, `close` does it: status, result, indexes, unique key,
pending signals, waiting parents, prune index and counters change in one transaction. A dead
workflow keeps its pending signals and is never pruned by age, because it can be revived.
"""

from __future__ import annotations

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.keys import SILENCED_INDEX, Keys, WakeKind
from perdure.engine.database.lease import Lease, Wake, fence
from perdure.engine.database.queues import drop_pending
from perdure.engine.database.record import read_record
from perdure.engine.database.results import write_failure
from perdure.engine.database.rows import Phase, Prune, Status, WakeConditions
from perdure.engine.database.status import (
    clear_wakes,
    read_status,
    sleep_and_wake,
    wake_now,
    write_status,
)
from perdure.engine.database.tags import index_tags
from perdure.engine.errors import CorruptRecord
from perdure.engine.history.failure import Failure
from perdure.ids import Id
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import write_value

__all__ = [
    "INDEXED_PHASES",
    "Closed",
    "cancelled",
    "close",
    "complete",
    "fail",
    "quarantine",
    "set_aside",
    "suspend",
]

INDEXED_PHASES = frozenset({Phase.DEAD, Phase.CANCELLED, Phase.TERMINATED})
"""The closed phases that have an index of their own."""


class Closed(msgspec.Struct, frozen=True):
    """What closing a workflow set in motion: `woken` holds the names of parents to announce."""

    woken: set[str]


@transactional
async def suspend(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    wake: WakeConditions,
    now: int,
    cancel_delivered: bool = False,
) -> bool:
    """Put the workflow to sleep until one of the conditions of `wake` comes true.

    `cancel_delivered` says that the run knows of the cancel request; otherwise one that is stored
    wakes the workflow at once. Returns whether the workflow is due again already, so that
    somebody has to be told. Raises `LeaseLost`, and `ValueError` if nothing could ever wake it.
    """
    if wake.empty:
        raise ValueError(f"workflow {lease.workflow_id} would sleep for ever: nothing wakes it")
    await fence(tx, lease)
    workflow_id = lease.workflow_id
    status = Status(Phase.RUNNING, lease.epoch, now, lease.name, lease.worker)
    gauges.move(tx, keys, lease.name, Phase.RUNNING, Phase.SLEEPING)
    if await _due_at_once(tx, keys, workflow_id, wake, cancel_delivered=cancel_delivered):
        sleep_and_wake(tx, keys, workflow_id, status, lease.token, now)
        return True
    tx.clear(keys.lease(lease.worker, workflow_id))
    for child in wake.children:
        tx.set(keys.waiter(child, workflow_id), b"")
    if wake.deadline is not None:
        tx.set(keys.wake(lease.name, wake.deadline, workflow_id, WakeKind.DEADLINE), b"")
    asleep = Status(
        Phase.SLEEPING,
        lease.epoch,
        now,
        lease.name,
        deadline=wake.deadline,
        signals=wake.signals,
        children=wake.children,
    )
    write_status(tx, keys, workflow_id, asleep, lease.token)
    return wake.deadline is not None and wake.deadline <= now


async def _due_at_once(
    tx: Transaction, keys: Keys, workflow_id: Id, wake: WakeConditions, *, cancel_delivered: bool
) -> bool:
    if wake.immediate:
        return True
    if not cancel_delivered and await tx.get(keys.cancel(workflow_id)) is not None:
        return True
    for name in wake.signals:
        queue = keys.signal_queue(workflow_id, name)
        if await tx.get_range(queue, queue + b"\xff", limit=1):
            return True
    for child in wake.children:
        found = await read_status(tx, keys, child)
        if found is None or found[1].phase.closed:
            return True
    return False


@transactional
async def complete(tx: Transaction, keys: Keys, lease: Lease, output: bytes, now: int) -> Closed:
    """The workflow returned `output`. Raises `LeaseLost`."""
    return await _close_run(tx, keys, lease, Phase.COMPLETE, now, output, None)


@transactional
async def fail(tx: Transaction, keys: Keys, lease: Lease, failure: Failure, now: int) -> Closed:
    """The workflow died of `failure`; it can be revived. Raises `LeaseLost`."""
    return await _close_run(tx, keys, lease, Phase.DEAD, now, None, failure)


@transactional
async def cancelled(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    output: bytes | None,
    failure: Failure | None,
    now: int,
) -> Closed:
    """The workflow ended because it was cancelled, with an output or not. Raises `LeaseLost`."""
    return await _close_run(tx, keys, lease, Phase.CANCELLED, now, output, failure)


@transactional
async def quarantine(tx: Transaction, keys: Keys, lease: Lease, reason: str, now: int) -> Closed:
    """Set a workflow aside that cannot be read: it is dead for this reason. Raises `LeaseLost`."""
    failure = Failure(type="Quarantined", message=reason, code="engine.quarantined")
    return await _close_run(tx, keys, lease, Phase.DEAD, now, None, failure)


@transactional
async def set_aside(tx: Transaction, keys: Keys, wake: Wake, now: int) -> Closed | None:
    """Set the workflow of a wake aside whose status cannot be read, so that nobody can take it.

    It is dead then, as after `quarantine`. Returns None, and changes nothing, if the status can be
    read after all.
    """
    workflow_id = wake.workflow_id
    try:
        await read_status(tx, keys, workflow_id)
    except CorruptRecord as error:
        failure = Failure(type="Quarantined", message=error.message, code="engine.quarantined")
    else:
        return None
    row = await tx.get(keys.status(workflow_id))
    tx.clear(keys.wake(wake.name, wake.ts, workflow_id, wake.kind))
    # A run that still believes to hold it had a lower epoch than a time in milliseconds.
    status = Status(Phase.SLEEPING, now, now, wake.name)
    return await close(tx, keys, workflow_id, row or b"", status, Phase.DEAD, now, None, failure)


async def _close_run(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    phase: Phase,
    now: int,
    output: bytes | None,
    failure: Failure | None,
) -> Closed:
    await fence(tx, lease)
    status = Status(Phase.RUNNING, lease.epoch, now, lease.name, lease.worker)
    return await close(
        tx, keys, lease.workflow_id, lease.token, status, phase, now, output, failure
    )


async def close(
    tx: Transaction,
    keys: Keys,
    workflow_id: Id,
    row: bytes,
    status: Status,
    phase: Phase,
    now: int,
    output: bytes | None,
    failure: Failure | None,
) -> Closed:
    """Close an open workflow, whose status was read serializably from `row`.

    Raises `CorruptRecord`, but not for a dying workflow: that is how an unreadable one ends.
    """
    name = status.name
    try:
        record = await read_record(tx, keys, workflow_id)
    except CorruptRecord:
        if phase is not Phase.DEAD:
            raise
        # Nobody can tell where its list, tag and unique rows are; they stay until it is mended.
        record = None
    if status.worker is not None:
        tx.clear(keys.lease(status.worker, workflow_id))
    clear_wakes(tx, keys, workflow_id, status)
    if status.silenced_at is not None:
        tx.clear(keys.index(SILENCED_INDEX, name, status.silenced_at, workflow_id))
    write_status(tx, keys, workflow_id, Status(phase, status.epoch, now, name), row)
    if output is not None:
        write_value(tx, keys.output(workflow_id), output, fresh=True)
    if failure is not None:
        write_failure(tx, keys, workflow_id, failure)
    if record is not None:
        tx.clear(keys.listed(name, record.created_at, workflow_id, open=True))
        tx.set(keys.listed(name, record.created_at, workflow_id, open=False), b"")
        index_tags(tx, keys, workflow_id, name, record.tags, old_open=True, new_open=False)
        if record.unique is not None:
            tx.clear(keys.unique(name, record.unique))
    if phase in INDEXED_PHASES:
        tx.set(keys.index(phase, name, now, workflow_id), b"")
    if phase is not Phase.DEAD:
        await drop_pending(tx, keys, workflow_id)
        if record is not None and record.prune is not Prune.NONE:
            tx.set(keys.prune(now, workflow_id), b"")
    gauges.move(tx, keys, name, status.phase, phase)
    return Closed(await _wake_parents(tx, keys, workflow_id, now))


async def _wake_parents(tx: Transaction, keys: Keys, child: Id, now: int) -> set[str]:
    prefix = keys.waiters(child)
    woken: set[str] = set()
    for key, _ in await tx.get_range(prefix, prefix + b"\xff"):
        tx.clear(key)
        parent = Id(key[len(prefix) :])
        try:
            found = await read_status(tx, keys, parent)
        except CorruptRecord:
            # An unreadable parent must not keep its child from ending.
            continue
        if found is None:
            continue
        row, status = found
        waits = status.phase is Phase.SLEEPING and child in status.children
        if waits and wake_now(tx, keys, parent, status, row, now):
            woken.add(status.name)
    return woken
