"""Taking workflows to run them, and giving them back.

**The fence.** A worker takes a workflow by writing its status row with a new epoch and its own id,
and keeps the exact bytes in the lease. Every later commit of that run reads the row serializably
and compares bytes. While a workflow runs nobody else writes that row unless it takes the workflow
away (failover, terminate), so equal bytes mean that the lease still holds, and the read makes
the commit conflict with whoever takes it away at the same moment. A worker that was asleep for an
hour can therefore not write a single row.

The wake index is read with snapshot reads: new wakes must not make a poll conflict. What decides is
the serializable read of each status in `take`. Two workers that take the same workflow conflict
there, and the second finds it running.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.engine.database import gauges
from perdure.engine.database.keys import Keys, WakeKind, packed_integer
from perdure.engine.database.record import read_record
from perdure.engine.database.rows import Phase, Status, encode
from perdure.engine.database.status import clear_wakes, read_status, sleep_and_wake
from perdure.engine.errors import CorruptRecord, LeaseLost
from perdure.ids import Id
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import clear_value, is_chunked
from perdure.kv.tuple import unpack

__all__ = [
    "Lease",
    "Wake",
    "due",
    "fence",
    "held",
    "holders",
    "release_held",
    "release_lost",
    "take",
    "take_new",
    "upcoming",
]


class Wake(msgspec.Struct, frozen=True, gc=False):
    """A row of the wake index. `ts` is in milliseconds, `kind` one of `WakeKind`."""

    name: str
    ts: int
    workflow_id: Id
    kind: int


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right of `worker` to run a workflow, until somebody takes it away.

    `token` is the exact status row; the three keys are prefixes or rows of that workflow that every
    commit of the run needs.
    """

    workflow_id: Id
    name: str
    worker: Id
    epoch: int
    status_key: bytes
    token: bytes
    history_key: bytes
    state_key: bytes


async def fence(tx: Transaction, lease: Lease) -> None:
    """Make this transaction fail with `LeaseLost` unless the lease holds when it commits."""
    if await tx.get(lease.status_key) != lease.token:
        raise LeaseLost(lease.workflow_id)


@transactional
async def due(tx: Transaction, keys: Keys, name: str, before: int, limit: int) -> list[Wake]:
    """The oldest wakes of workflows called `name` that are due: all immediate ones, whatever their
    time says, and the deadlines below `before` (ms, exclusive)."""
    wakes: list[Wake] = []
    for kind in (WakeKind.IMMEDIATE, WakeKind.DEADLINE):
        prefix = keys.wakes_of(name, kind)
        end = prefix + (b"\xff" if kind == WakeKind.IMMEDIATE else packed_integer(before))
        rows = await tx.get_range(prefix, end, limit=limit, snapshot=True)
        wakes += [_wake(name, kind, key, len(prefix)) for key, _ in rows]
    if len(wakes) > 1:
        wakes.sort(key=_due_at)
    return wakes[:limit]


def _due_at(wake: Wake) -> int:
    return wake.ts


def _wake(name: str, kind: int, key: bytes, start: int) -> Wake:
    if key[start] == 0x1A:  # an integer of six bytes, as all of today's timestamps are
        at = int.from_bytes(key[start + 1 : start + 7], "big")
        return Wake(name, at, Id(key[start + 8 : start + 27]), kind)
    instant, workflow_id = unpack(key, start)
    assert isinstance(instant, int)
    assert isinstance(workflow_id, Id)
    return Wake(name, instant, workflow_id, kind)


@transactional
async def upcoming(
    tx: Transaction, keys: Keys, name: str, after: int, until: int, limit: int
) -> list[int]:
    """The deadlines in [after, until) (ms, ascending) of workflows called `name`."""
    prefix = keys.wakes_of(name, WakeKind.DEADLINE)
    start = len(prefix)
    rows = await tx.get_range(
        prefix + packed_integer(after), prefix + packed_integer(until), limit=limit, snapshot=True
    )
    return [_wake(name, WakeKind.DEADLINE, key, start).ts for key, _ in rows]


@transactional
async def take(
    tx: Transaction, keys: Keys, wakes: Iterable[Wake], worker: Id, now: int
) -> list[Lease]:
    """Lease the workflows of these wakes to `worker`, all in one transaction.

    A wake that is out of date (the workflow runs, ended, is silenced, or has another wake now) is
    cleared and gives no lease. Raises `CorruptRecord` for a status that cannot be read; `set_aside`
    takes that workflow out of the way.
    """
    by_workflow: dict[Id, list[Wake]] = {}
    for wake in wakes:
        by_workflow.setdefault(wake.workflow_id, []).append(wake)
    leases: list[Lease] = []
    taken: dict[str, int] = {}
    for workflow_id, own_wakes in by_workflow.items():
        found = await read_status(tx, keys, workflow_id)
        current = False
        for wake in own_wakes:
            if found is not None and _current(wake, found[1]):
                current = True
            else:
                tx.clear(keys.wake(wake.name, wake.ts, workflow_id, wake.kind))
        if current and found is not None:
            row, status = found
            leases.append(_lease(tx, keys, workflow_id, status, row, worker, now))
            taken[status.name] = taken.get(status.name, 0) + 1
    for name, count in taken.items():
        gauges.move(tx, keys, name, Phase.SLEEPING, Phase.RUNNING, count)
    return leases


def _current(wake: Wake, status: Status) -> bool:
    if status.phase is not Phase.SLEEPING or status.silenced_at is not None:
        return False
    mirrored = status.deadline if wake.kind else status.immediate_at
    return mirrored == wake.ts and wake.name == status.name


def _lease(
    tx: Transaction,
    keys: Keys,
    workflow_id: Id,
    status: Status,
    row: bytes,
    worker: Id,
    now: int,
) -> Lease:
    clear_wakes(tx, keys, workflow_id, status)
    if is_chunked(row):
        clear_value(tx, keys.status(workflow_id))
    running = Status(Phase.RUNNING, status.epoch + 1, now, status.name, worker)
    return _write_lease(tx, keys, workflow_id, running, worker)


def take_new(
    tx: Transaction, keys: Keys, workflow_id: Id, name: str, worker: Id, now: int
) -> Lease:
    """Lease a workflow in the transaction that creates it."""
    running = Status(Phase.RUNNING, 1, now, name, worker)
    return _write_lease(tx, keys, workflow_id, running, worker)


def _write_lease(
    tx: Transaction, keys: Keys, workflow_id: Id, running: Status, worker: Id
) -> Lease:
    status_key = keys.status(workflow_id)
    token = b"\x00" + encode(running)
    tx.set(status_key, token)
    tx.set(keys.lease(worker, workflow_id), b"")
    return Lease(
        workflow_id,
        running.name,
        worker,
        running.epoch,
        status_key,
        token,
        keys.history(workflow_id),
        keys.state(workflow_id),
    )


@transactional
async def release_held(
    tx: Transaction, keys: Keys, worker: Id, workflow_id: Id, now: int
) -> str | None:
    """Give back a workflow that `worker` holds without having its lease in hand.

    For leases that a worker took without hearing of it. Returns the workflow's name, or None if
    `worker` does not hold it.
    """
    try:
        found = await read_status(tx, keys, workflow_id)
    except CorruptRecord:
        tx.clear(keys.lease(worker, workflow_id))
        return await _wake_unreadable(tx, keys, workflow_id, now)
    if found is None or found[1].phase is not Phase.RUNNING or found[1].worker != worker:
        tx.clear(keys.lease(worker, workflow_id))
        return None
    _give_back(tx, keys, workflow_id, found, now)
    return found[1].name


@transactional(idempotent=True)
async def release_lost(
    tx: Transaction, keys: Keys, worker: Id, now: int, limit: int
) -> tuple[int, set[str]]:
    """Give back what a lost worker held, at most `limit` workflows.

    Returns how many lease rows were worked off and the names of the workflows to announce; fewer
    than `limit` means that nothing is left. A silenced workflow is not woken.
    """
    prefix = keys.leases(worker)
    rows = await tx.get_range(prefix, prefix + b"\xff", limit=limit)
    names: set[str] = set()
    for key, _ in rows:
        workflow_id = Id(key[len(prefix) :])
        tx.clear(key)
        try:
            found = await read_status(tx, keys, workflow_id)
        except CorruptRecord:
            names.update(filter(None, [await _wake_unreadable(tx, keys, workflow_id, now)]))
            continue
        if found is None or found[1].phase is not Phase.RUNNING or found[1].worker != worker:
            continue
        _give_back(tx, keys, workflow_id, found, now)
        if found[1].silenced_at is None:
            names.add(found[1].name)
    return len(rows), names


async def _wake_unreadable(tx: Transaction, keys: Keys, workflow_id: Id, now: int) -> str | None:
    """Let a worker come across a workflow whose status cannot be read, to set it aside.

    Returns its name, or None if the record does not tell it either.
    """
    try:
        name = (await read_record(tx, keys, workflow_id)).name
    except CorruptRecord:
        return None
    tx.set(keys.wake(name, now, workflow_id, WakeKind.IMMEDIATE), b"")
    gauges.move(tx, keys, name, Phase.RUNNING, Phase.SLEEPING)
    return name


def _give_back(
    tx: Transaction, keys: Keys, workflow_id: Id, found: tuple[bytes, Status], now: int
) -> None:
    row, status = found
    sleep_and_wake(tx, keys, workflow_id, status, row, now)
    gauges.move(tx, keys, status.name, Phase.RUNNING, Phase.SLEEPING)


@transactional
async def held(tx: Transaction, keys: Keys, worker: Id) -> list[Id]:
    """The workflows that the store believes `worker` runs."""
    prefix = keys.leases(worker)
    rows = await tx.get_range(prefix, prefix + b"\xff", snapshot=True)
    return [Id(key[len(prefix) :]) for key, _ in rows]


@transactional
async def holders(tx: Transaction, keys: Keys) -> list[Id]:
    """The workers that hold leases, whether anybody has heard of them or not."""
    prefix = keys.all_leases()
    found: list[Id] = []
    begin = prefix
    while rows := await tx.get_range(begin, prefix + b"\xff", limit=1, snapshot=True):
        worker = Id(rows[0][0][len(prefix) : len(prefix) + Id.SIZE])
        found.append(worker)
        begin = keys.leases(worker) + b"\xff"
    return found
