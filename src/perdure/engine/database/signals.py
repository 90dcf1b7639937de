"""Sending signals to workflows, and receiving them in a run.

A publisher reads the target's status serializably. If the target sleeps and waits for this signal,
it gets an immediate wake in the same transaction; if it runs, the publisher leaves its status
alone, and the transaction that puts it to sleep finds the signal (see `finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from perdure.engine.database import queues
from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease, fence
from perdure.engine.database.rows import PendingSignal, Phase
from perdure.engine.database.status import existing_status, read_status, wake_now
from perdure.engine.database.steps import put_event, rewrite_event
from perdure.engine.errors import WorkflowFinished, WorkflowNotFound
from perdure.engine.history.events import SignalSendEvent, SignalsEvent, SleepEvent
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = [
    "TAKEN_AT_MOST",
    "TAKEN_BYTES",
    "Published",
    "pending",
    "publish",
    "publish_from",
    "take_signals",
]

TAKEN_AT_MOST: Final = 1_000
"""Most signals that one step receives, whatever it asks for."""

TAKEN_BYTES: Final = 4_000_000
"""One step stops receiving before the bodies exceed this, unless the first one does alone."""


class Published(msgspec.Struct, frozen=True, gc=False):
    """The signal is in the queue; `woken` is the name of the workflow to announce, if it woke."""

    woken: str | None


@transactional
async def publish(
    tx: Transaction, keys: Keys, target: Id, signal: PendingSignal, now: int, order: int = 0
) -> Published:
    """Put a signal into the queue of an open workflow.

    `order` is for several signals in one transaction: they are received in this order. Raises
    `WorkflowNotFound`, and `WorkflowFinished` for a closed workflow, a dead one included.
    """
    return await _publish(tx, keys, target, signal, now, order)


async def _publish(
    tx: Transaction, keys: Keys, target: Id, signal: PendingSignal, now: int, order: int
) -> Published:
    row, status = await existing_status(tx, keys, target)
    if status.phase.closed:
        raise WorkflowFinished(target, status.phase.name.lower())
    queues.enqueue(tx, keys, target, signal, order)
    waits = status.phase is Phase.SLEEPING and signal.name in status.signals
    if waits and wake_now(tx, keys, target, status, row, now):
        return Published(status.name)
    return Published(None)


@transactional
async def publish_from(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    key: bytes,
    event: SignalSendEvent,
    target: Id,
    signal: PendingSignal,
    now: int,
) -> Published:
    """Send a signal from within a workflow and record it at `key`, in one transaction.

    Raises `LeaseLost` and what `publish` raises; then nothing is recorded.
    """
    await fence(tx, lease)
    published = await _publish(tx, keys, target, signal, now, 0)
    put_event(tx, lease, key, event)
    return published


@transactional
async def take_signals(
    tx: Transaction,
    keys: Keys,
    lease: Lease,
    names: Sequence[str],
    limit: int,
    key: bytes,
    make_event: Callable[[list[PendingSignal]], SignalsEvent],
    sleep_key: bytes | None = None,
    sleep_event: SleepEvent | None = None,
    *,
    sleep_is_new: bool = False,
) -> list[PendingSignal]:
    """Receive up to `limit` signals of these names, in commit order across the names.

    The signals leave their queues, the event made of them is written at `key`, and the event of
    the bound of the wait at `sleep_key` becomes `sleep_event` (in the state INTERRUPTED), in one
    transaction. `sleep_is_new` says that the wait has no event yet: its signals were there before
    it. Nothing is written if nothing is there: the result is empty then.

    Raises `LeaseLost`, `EventMissing` if nothing is stored at `sleep_key`, `CorruptRecord`.
    """
    await fence(tx, lease)
    workflow_id = lease.workflow_id
    size = 0
    taken: list[PendingSignal] = []
    for queued in await queues.oldest(tx, keys, workflow_id, names, min(limit, TAKEN_AT_MOST)):
        size += queued.size
        if taken and size > TAKEN_BYTES:
            break
        taken.append(await queues.with_body(tx, keys, workflow_id, queued))
        queues.consume(tx, keys, workflow_id, queued)
    if taken:
        put_event(tx, lease, key, make_event(taken))
        if sleep_key is not None and sleep_event is not None:
            if sleep_is_new:
                put_event(tx, lease, sleep_key, sleep_event)
            else:
                await rewrite_event(tx, lease, sleep_key, sleep_event)
    return taken


@transactional
async def pending(tx: Transaction, keys: Keys, workflow_id: Id, limit: int) -> list[PendingSignal]:
    """The first `limit` pending signals of a workflow in commit order, for people to look at.

    Raises `WorkflowNotFound`.
    """
    if await read_status(tx, keys, workflow_id, snapshot=True) is None:
        raise WorkflowNotFound(workflow_id)
    found = await queues.all_oldest(tx, keys, workflow_id, limit)
    return [await queues.with_body(tx, keys, workflow_id, queued) for queued in found]
