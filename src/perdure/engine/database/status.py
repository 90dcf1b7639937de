"""Reading and writing the status row, and the wake rows that mirror it.

Invariants:

* A workflow has at most one immediate wake and one deadline in the wake index, and exactly those
  that its status names: whoever writes or clears one changes the other in the same transaction.
* A parent has waiter rows only under children in its status; a child that closes clears its rows.
* A running or closed workflow has neither. A silenced one has no wake rows, but keeps its
  conditions and waiter rows, so that it can be woken when the silence ends.
"""

from __future__ import annotations

import msgspec

from perdure.engine.database.keys import Keys, WakeKind
from perdure.engine.database.rows import Phase, Status, decode, encode
from perdure.engine.errors import CorruptRecord, WorkflowNotFound
from perdure.ids import Id, InvalidId
from perdure.kv import Transaction
from perdure.kv.chunks import CHUNK, clear_value, is_chunked, read_value, write_value
from perdure.kv.errors import CorruptValue

__all__ = [
    "clear_wake_rows",
    "clear_wakes",
    "existing_status",
    "read_status",
    "sleep_and_wake",
    "wake_now",
    "write_status",
]


async def read_status(
    tx: Transaction, keys: Keys, workflow_id: bytes, *, snapshot: bool = False
) -> tuple[bytes, Status] | None:
    """The raw status row and what it says; None if there is no such workflow.

    Serializable unless `snapshot`: whoever decides something by the status must notice a change.
    """
    key = keys.status(workflow_id)
    row = await tx.get(key, snapshot=snapshot)
    if row is None:
        return None
    try:
        if is_chunked(row):
            value = await read_value(tx, key, snapshot=snapshot)
            return row, decode.status(value or b"")
        return row, decode.status(row[1:])
    except (msgspec.MsgspecError, InvalidId, CorruptValue) as error:
        raise CorruptRecord(Id(workflow_id), "status", str(error)) from error


async def existing_status(tx: Transaction, keys: Keys, workflow_id: bytes) -> tuple[bytes, Status]:
    """As `read_status`; raises `WorkflowNotFound`."""
    found = await read_status(tx, keys, workflow_id)
    if found is None:
        raise WorkflowNotFound(Id(workflow_id))
    return found


def write_status(
    tx: Transaction, keys: Keys, workflow_id: bytes, status: Status, old_row: bytes | None
) -> bytes:
    """Replace the status row `old_row` (None: there was none) and return the new row.

    Only waiting for thousands of signals or children makes a status that is chunked.
    """
    key = keys.status(workflow_id)
    if is_chunked(old_row):
        clear_value(tx, key)
    encoded = encode(status)
    if len(encoded) > CHUNK:
        write_value(tx, key, encoded, fresh=True)
        return b"\x01"
    row = b"\x00" + encoded
    tx.set(key, row)
    return row


def wake_now(
    tx: Transaction, keys: Keys, workflow_id: bytes, status: Status, old_row: bytes, now: int
) -> bool:
    """Give a sleeping workflow an immediate wake. False if it has one or is silenced."""
    if status.immediate_at is not None or status.silenced_at is not None:
        return False
    woken = msgspec.structs.replace(status, immediate_at=now)
    write_status(tx, keys, workflow_id, woken, old_row)
    tx.set(keys.wake(status.name, now, workflow_id, WakeKind.IMMEDIATE), b"")
    return True


def sleep_and_wake(
    tx: Transaction, keys: Keys, workflow_id: bytes, status: Status, old_row: bytes, now: int
) -> None:
    """Put a running workflow to sleep with an immediate wake and free its lease.

    One that was silenced gets the condition but no row in the index.
    """
    if status.worker is not None:
        tx.clear(keys.lease(status.worker, workflow_id))
    asleep = Status(
        Phase.SLEEPING,
        status.epoch,
        now,
        status.name,
        immediate_at=now,
        silenced_at=status.silenced_at,
    )
    write_status(tx, keys, workflow_id, asleep, old_row)
    if status.silenced_at is None:
        tx.set(keys.wake(status.name, now, workflow_id, WakeKind.IMMEDIATE), b"")


def clear_wakes(tx: Transaction, keys: Keys, workflow_id: bytes, status: Status) -> None:
    """Clear the wake rows and waiter rows that `status` stands for."""
    clear_wake_rows(tx, keys, workflow_id, status)
    for child in status.children:
        tx.clear(keys.waiter(child, workflow_id))


def clear_wake_rows(tx: Transaction, keys: Keys, workflow_id: bytes, status: Status) -> None:
    """Clear the wake rows that `status` stands for: the waiter rows stay."""
    if status.silenced_at is None:
        if status.immediate_at is not None:
            tx.clear(keys.wake(status.name, status.immediate_at, workflow_id, WakeKind.IMMEDIATE))
        if status.deadline is not None:
            tx.clear(keys.wake(status.name, status.deadline, workflow_id, WakeKind.DEADLINE))
