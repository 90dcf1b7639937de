"""The queues of pending signals: rows, bodies and their counter.

A queue is ordered by commit: its keys carry version stamps, so no clock of a publisher decides
what comes first. A stamp is given at commit, hence a signal that commits later is always behind
those that a reader has seen.

Small bodies lie in the queue; larger ones in a row of their own, so that reading the first n rows
of a queue is bounded and gives exactly n signals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import PendingSignal, decode, encode
from perdure.engine.errors import CorruptRecord
from perdure.ids import Id, InvalidId
from perdure.kv import Transaction
from perdure.kv.chunks import clear_value, read_value, write_value
from perdure.kv.errors import CorruptValue

__all__ = [
    "BODY_INLINE",
    "QueuedSignal",
    "all_oldest",
    "consume",
    "drop_pending",
    "enqueue",
    "oldest",
    "with_body",
]

BODY_INLINE: Final = 4_096
"""Bodies up to this many bytes are in the queue itself."""


class QueuedSignal(msgspec.Struct, frozen=True, gc=False):
    """A row of a queue: `stamp` orders it among all signals of the workflow."""

    stamp: bytes
    key: bytes
    signal: PendingSignal

    @property
    def size(self) -> int:
        """Bytes of the body, wherever it is."""
        return self.signal.apart or len(self.signal.body)


def enqueue(
    tx: Transaction, keys: Keys, workflow_id: bytes, signal: PendingSignal, order: int
) -> None:
    """Add a signal to its queue. `order` (0 to 65535) orders signals of one transaction."""
    if len(signal.body) > BODY_INLINE:
        write_value(tx, keys.signal_body(workflow_id, signal.id), signal.body, fresh=True)
        signal = msgspec.structs.replace(signal, body=b"", apart=len(signal.body))
    suffix = order.to_bytes(2, "big") + b"\x40" + signal.id
    tx.set_versionstamped(
        keys.signal_queue(workflow_id, signal.name), suffix, b"\x00" + encode(signal)
    )
    gauges.pending_signals(tx, keys, signal.name, 1)


async def oldest(
    tx: Transaction, keys: Keys, workflow_id: Id, names: Iterable[str], limit: int
) -> list[QueuedSignal]:
    """The first `limit` signals of these queues in commit order, large bodies not read.

    A snapshot read: what is published later sorts behind, and must not make a taker run again.
    """
    found: list[QueuedSignal] = []
    for name in names:
        queue = keys.signal_queue(workflow_id, name)
        for key, row in await tx.get_range(queue, queue + b"\xff", limit=limit, snapshot=True):
            found.append(_queued(workflow_id, key[len(queue) :], key, row))
    found.sort(key=_stamp)
    return found[:limit]


async def all_oldest(
    tx: Transaction, keys: Keys, workflow_id: Id, limit: int
) -> list[QueuedSignal]:
    """The first `limit` signals of all queues of a workflow in commit order; a snapshot read."""
    prefix = keys.signals(workflow_id)
    rows = await tx.get_range(prefix, prefix + b"\xff", snapshot=True)
    tail = 12 + 1 + Id.SIZE  # the stamp with its order, then the id of the signal
    found = [_queued(workflow_id, key[-tail:], key, row) for key, row in rows]
    found.sort(key=_stamp)
    return found[:limit]


def _stamp(queued: QueuedSignal) -> bytes:
    return queued.stamp


def _queued(workflow_id: Id, stamp: bytes, key: bytes, row: bytes) -> QueuedSignal:
    try:
        return QueuedSignal(stamp, key, decode.pending_signal(row[1:]))
    except (msgspec.MsgspecError, InvalidId) as error:
        raise CorruptRecord(workflow_id, "queue of signals", str(error)) from error


async def with_body(
    tx: Transaction, keys: Keys, workflow_id: Id, queued: QueuedSignal
) -> PendingSignal:
    """The signal together with its body."""
    signal = queued.signal
    if not signal.apart:
        return signal
    try:
        body = await read_value(tx, keys.signal_body(workflow_id, signal.id), snapshot=True)
    except CorruptValue as error:
        raise CorruptRecord(workflow_id, "body of a signal", str(error)) from error
    if body is None:
        raise CorruptRecord(workflow_id, "body of a signal", "it is missing")
    return msgspec.structs.replace(signal, body=body, apart=0)


def consume(tx: Transaction, keys: Keys, workflow_id: bytes, queued: QueuedSignal) -> None:
    """Take a signal out of its queue; only one of several members of a join can."""
    tx.add_read_conflict(queued.key)
    tx.clear(queued.key)
    if queued.signal.apart:
        clear_value(tx, keys.signal_body(workflow_id, queued.signal.id))
    gauges.pending_signals(tx, keys, queued.signal.name, -1)


async def drop_pending(tx: Transaction, keys: Keys, workflow_id: Id) -> None:
    """Drop all pending signals of a workflow that closes or is deleted.

    Serializable: a signal published at the same time makes one of the two transactions run again.
    """
    prefix = keys.signals(workflow_id)
    rows = await tx.get_range(prefix, prefix + b"\xff")
    if not rows:
        return
    counts: dict[str, int] = {}
    for key, row in rows:
        queued = _queued(workflow_id, b"", key, row)
        counts[queued.signal.name] = counts.get(queued.signal.name, 0) + 1
        if queued.signal.apart:
            clear_value(tx, keys.signal_body(workflow_id, queued.signal.id))
    tx.clear_range(prefix, prefix + b"\xff")
    for name, count in counts.items():
        gauges.pending_signals(tx, keys, name, -count)
