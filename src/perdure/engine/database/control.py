"""What people and other programs do to a workflow from outside.

Nothing here waits for a run. A request to cancel is a row that the run finds; terminating and
silencing change the status itself. A run whose status was changed loses its fence: it can write
nothing more, and stops at its next step.
"""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.finish import close
from perdure.engine.database.keys import SILENCED_INDEX, Keys, WakeKind
from perdure.engine.database.prune import remove
from perdure.engine.database.record import read_record
from perdure.engine.database.results import read_failure
from perdure.engine.database.rows import CancelRequest, Phase, Status, encode
from perdure.engine.database.status import clear_wake_rows, existing_status, wake_now, write_status
from perdure.engine.database.tags import index_tags
from perdure.engine.errors import UniqueKeyTaken, WorkflowBusy, WorkflowFinished, WorkflowNotFound
from perdure.engine.history.failure import Failure
from perdure.ids import Id
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import clear_value

__all__ = [
    "CancelRequested",
    "Revived",
    "Terminated",
    "delete",
    "request_cancel",
    "revive",
    "revive_matching",
    "silence",
    "terminate",
    "unsilence",
    "wake",
]

_REASON_KEPT: Final = 2_048
"""Characters kept of a reason."""


class CancelRequested(msgspec.Struct, frozen=True):
    """The request is stored. `first` is False if there was one already, which then stays.

    `woken` is the name of the workflow to announce, if it slept; `worker` runs it now and may want
    to hear of it.
    """

    first: bool
    worker: Id | None
    woken: str | None


class Terminated(msgspec.Struct, frozen=True):
    """The workflow is closed. `worker` ran it and may want to know; `woken` as in `Closed`."""

    worker: Id | None
    woken: set[str]


class Revived(msgspec.Struct, frozen=True):
    """`ids` were revived (or would be); `cursor` continues the search, None at its end."""

    ids: list[Id]
    cursor: bytes | None


@transactional
async def request_cancel(
    tx: Transaction, keys: Keys, workflow_id: Id, reason: str, now: int
) -> CancelRequested:
    """Ask the workflow to end. Raises `WorkflowNotFound`, `WorkflowFinished`."""
    row, status = await _open_status(tx, keys, workflow_id)
    key = keys.cancel(workflow_id)
    running = status.phase is Phase.RUNNING
    if await tx.get(key) is not None:
        return CancelRequested(first=False, worker=status.worker, woken=None)
    tx.set(key, b"\x00" + encode(CancelRequest(now, reason[:_REASON_KEPT])))
    woken = not running and wake_now(tx, keys, workflow_id, status, row, now)
    return CancelRequested(first=True, worker=status.worker, woken=status.name if woken else None)


@transactional
async def terminate(
    tx: Transaction, keys: Keys, workflow_id: Id, reason: str, now: int
) -> Terminated:
    """Close an open workflow at once, whatever it is doing; its code is not asked.

    Raises `WorkflowNotFound`, `WorkflowFinished`, `CorruptRecord`.
    """
    row, status = await _open_status(tx, keys, workflow_id)
    failure = Failure("Terminated", reason[:_REASON_KEPT], code="engine.workflow_terminated")
    closed = await close(tx, keys, workflow_id, row, status, Phase.TERMINATED, now, None, failure)
    return Terminated(status.worker, closed.woken)


@transactional
async def silence(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> bool:
    """Keep a sleeping workflow asleep, whatever happens, until `unsilence`.

    Signals sent to it are kept. False if it is silenced already. Raises `WorkflowNotFound`,
    `WorkflowFinished`, and `WorkflowBusy` while it runs.
    """
    row, status = await _open_status(tx, keys, workflow_id)
    if status.phase is Phase.RUNNING:
        raise WorkflowBusy(workflow_id, "running", "silence", "wait until it sleeps and try again")
    if status.silenced_at is not None:
        return False
    clear_wake_rows(tx, keys, workflow_id, status)
    silenced = msgspec.structs.replace(status, silenced_at=now)
    write_status(tx, keys, workflow_id, silenced, row)
    tx.set(keys.index(SILENCED_INDEX, status.name, now, workflow_id), b"")
    return True


@transactional
async def unsilence(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> str | None:
    """End the silence: the workflow wakes at once and looks for itself what happened meanwhile.

    Returns the name of the workflow to announce, None if it was not silenced. Raises
    `WorkflowNotFound`, `WorkflowFinished`.
    """
    row, status = await _open_status(tx, keys, workflow_id)
    if status.silenced_at is None:
        return None
    tx.clear(keys.index(SILENCED_INDEX, status.name, status.silenced_at, workflow_id))
    if status.deadline is not None:
        tx.set(keys.wake(status.name, status.deadline, workflow_id, WakeKind.DEADLINE), b"")
    heard = msgspec.structs.replace(status, silenced_at=None, immediate_at=None)
    wake_now(tx, keys, workflow_id, heard, row, now)
    return status.name


@transactional
async def wake(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> str | None:
    """Wake a sleeping workflow. Harmless: it replays and goes back to sleep if it has to.

    Returns the name to announce, None if it was about to wake. Raises `WorkflowNotFound`,
    `WorkflowFinished` (a dead one is woken with `revive`), `WorkflowBusy` if it runs or is
    silenced.
    """
    row, status = await _open_status(tx, keys, workflow_id)
    if status.phase is Phase.RUNNING:
        raise WorkflowBusy(workflow_id, "running", "wake", "it is awake")
    if status.silenced_at is not None:
        raise WorkflowBusy(workflow_id, "silenced", "wake", "unsilence it")
    return status.name if wake_now(tx, keys, workflow_id, status, row, now) else None


@transactional
async def revive(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> str:
    """Let a dead workflow go on from its last step, at once. Returns the name to announce.

    A failed step that it died of is taken anew: activities get all their attempts again.

    Raises `WorkflowNotFound`, `WorkflowBusy` if it is not dead, `UniqueKeyTaken` if another
    workflow holds its business key meanwhile, `CorruptRecord`.
    """
    row, status = await existing_status(tx, keys, workflow_id)
    if status.phase is not Phase.DEAD:
        raise WorkflowBusy(workflow_id, _phase_word(status), "revive", "only a dead one can be")
    record = await read_record(tx, keys, workflow_id)
    name = record.name
    if record.unique is not None:
        unique_key = keys.unique(name, record.unique)
        holder = await tx.get(unique_key)
        if holder is not None:
            raise UniqueKeyTaken(workflow_id, record.unique, Id(holder))
        tx.set(unique_key, bytes(workflow_id))
    await _undo_failures(tx, keys, workflow_id)
    clear_value(tx, keys.failure(workflow_id))
    tx.clear(keys.index(Phase.DEAD, name, status.changed_at, workflow_id))
    tx.clear(keys.listed(name, record.created_at, workflow_id, open=False))
    tx.set(keys.listed(name, record.created_at, workflow_id, open=True), b"")
    index_tags(tx, keys, workflow_id, name, record.tags, old_open=False, new_open=True)
    asleep = Status(Phase.SLEEPING, status.epoch, now, name)
    wake_now(tx, keys, workflow_id, asleep, row, now)
    gauges.move(tx, keys, name, Phase.DEAD, Phase.SLEEPING)
    return name


async def _undo_failures(tx: Transaction, keys: Keys, workflow_id: Id) -> None:
    """Remove the recorded failures that the workflow died of: their steps are taken anew."""
    failure = await read_failure(tx, keys, workflow_id)
    for location in () if failure is None else failure.undo:
        clear_value(tx, keys.history(workflow_id) + location)


@transactional
async def revive_matching(
    tx: Transaction,
    keys: Keys,
    name: str,
    error: str,
    now: int,
    limit: int,
    cursor: bytes | None = None,
    *,
    dry_run: bool = False,
) -> Revived:
    """Revive dead workflows called `name` whose failure contains the text `error`.

    Looks at no more than `limit` dead workflows, in order of their death; call it again with the
    returned cursor. The text is looked for in `type: message` of the failure; "" matches all.
    Workflows that cannot be revived (see `revive`) stay dead.
    """
    prefix = keys.indexed(Phase.DEAD, name)
    begin = prefix if cursor is None else prefix + cursor
    rows = await tx.get_range(begin, prefix + b"\xff", limit=limit, snapshot=True)
    ids: list[Id] = []
    for key, _ in rows:
        workflow_id = Id(key[-Id.SIZE :])
        failure = await read_failure(tx, keys, workflow_id, snapshot=True)
        if error and (failure is None or error not in failure.summary):
            continue
        if not dry_run:
            try:
                await revive(tx, keys, workflow_id, now)
            except (UniqueKeyTaken, WorkflowBusy, WorkflowNotFound):
                continue
        ids.append(workflow_id)
    more = len(rows) == limit
    return Revived(ids, rows[-1][0][len(prefix) :] + b"\x00" if more else None)


@transactional
async def delete(tx: Transaction, keys: Keys, workflow_id: Id) -> None:
    """Remove a closed workflow and everything stored about it.

    Raises `WorkflowNotFound`, `WorkflowBusy` while it is open, `CorruptRecord`.
    """
    _, status = await existing_status(tx, keys, workflow_id)
    if not status.phase.closed:
        raise WorkflowBusy(workflow_id, _phase_word(status), "delete", "terminate it first")
    await remove(tx, keys, workflow_id, status)


async def _open_status(tx: Transaction, keys: Keys, workflow_id: Id) -> tuple[bytes, Status]:
    row, status = await existing_status(tx, keys, workflow_id)
    if status.phase.closed:
        raise WorkflowFinished(workflow_id, _phase_word(status))
    return row, status


def _phase_word(status: Status) -> str:
    return status.phase.name.lower()
