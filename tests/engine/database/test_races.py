"""Every race between two operations, forced in both orders, on every driver."""

from __future__ import annotations

import pytest
from tests.engine.database.world import BRANCH, NAME, START, World, at, signals_event

from perdure.engine.database import (
    control,
    dispatch as dispatching,
    find as finding,
    finish,
    lease as leasing,
    signals,
    steps,
    tags,
)
from perdure.engine.database.dispatch import Dispatch, Dispatched
from perdure.engine.database.lease import Lease
from perdure.engine.database.rows import Phase, WakeConditions
from perdure.engine.errors import (
    LeaseLost,
    UniqueKeyTaken,
    WorkflowBusy,
    WorkflowFinished,
)
from perdure.engine.history.failure import Failure
from perdure.ids import Id
from perdure.kv import Database, Transaction


async def test_publish_before_suspend(world: World) -> None:
    lease = await world.run()
    woken_at_once = await world.overtaken(
        lambda tx: finish.suspend(
            tx, world.keys, lease, WakeConditions(signals=("paid",)), START + 50
        ),
        lambda _: world.publish(lease.workflow_id),
    )
    assert woken_at_once
    assert (await world.status(lease.workflow_id)).immediate_at == START + 50
    assert len(await world.take()) == 1


async def test_suspend_before_publish(world: World) -> None:
    lease = await world.run()
    signal = world.signal()
    published = await world.overtaken(
        lambda tx: signals.publish(tx, world.keys, lease.workflow_id, signal, START + 50),
        lambda _: world.sleep(lease, signals=("paid",)),
    )
    assert published.woken == NAME
    assert len(await world.take()) == 1


@pytest.mark.parametrize("dies", [False, True])
async def test_child_ends_before_suspend(world: World, dies: bool) -> None:
    """A death counts as an end."""
    parent, child = await world.run(name="parent"), await world.run()

    async def end(db: Database) -> None:
        if dies:
            failure = Failure("ValueError", "no")
            await finish.fail(db, world.keys, child, failure, world.now)
        else:
            await finish.complete(db, world.keys, child, b"out", world.now)

    conditions = WakeConditions(children=(child.workflow_id,))
    assert await world.overtaken(
        lambda tx: finish.suspend(tx, world.keys, parent, conditions, START + 50), end
    )
    assert len(await world.take("parent")) == 1


@pytest.mark.parametrize("dies", [False, True])
async def test_suspend_before_child_ends(world: World, dies: bool) -> None:
    """The waiter row is used up."""
    parent, child = await world.run(name="parent"), await world.run()

    async def end(tx: Transaction) -> finish.Closed:
        if dies:
            failure = Failure("ValueError", "no")
            return await finish.fail(tx, world.keys, child, failure, START + 60)
        return await finish.complete(tx, world.keys, child, b"out", START + 60)

    closed = await world.overtaken(
        end, lambda _: world.sleep(parent, children=(child.workflow_id,))
    )
    assert closed.woken == {"parent"}
    assert len(await world.take("parent")) == 1
    waiters = world.keys.waiters(child.workflow_id)
    assert await world.db.transaction().get_range(waiters, waiters + b"\xff") == []


@pytest.mark.parametrize("unique", [True, "key"])
async def test_two_unique_dispatches(world: World, unique: bool | str) -> None:
    requests = [
        Dispatch(Id.new(), NAME, b"", {"customer": 1, "item": 2}, Id.new(), unique=unique)
        for _ in range(2)
    ]
    dispatched = await world.overtaken(
        lambda tx: dispatching.dispatch(tx, world.keys, requests[0], START),
        lambda db: dispatching.dispatch(db, world.keys, requests[1], START),
    )
    assert dispatched == Dispatched(requests[1].id, created=False)
    assert await world.counts() == {"sleeping": 1}


async def test_two_workers_take_the_same_workflow(world: World) -> None:
    workflow_id = await world.dispatch()
    wakes = await leasing.due(world.db, world.keys, NAME, world.now + 1, 10)
    other = Id.new()
    leases = await world.overtaken(
        lambda tx: leasing.take(tx, world.keys, wakes, world.worker, START + 9),
        lambda db: leasing.take(db, world.keys, wakes, other, START + 9),
    )
    assert leases == []
    assert await leasing.held(world.db, world.keys, other) == [workflow_id]
    assert await leasing.held(world.db, world.keys, world.worker) == []
    assert await world.counts() == {"running": 1}


async def test_failover_before_complete_is_fenced(world: World) -> None:
    """The late run can no longer end the workflow."""
    lease = await world.run()
    with pytest.raises(LeaseLost):
        await world.overtaken(
            lambda tx: finish.complete(tx, world.keys, lease, b"late", START + 50),
            lambda db: leasing.release_lost(db, world.keys, world.worker, world.now, 10),
        )
    assert await world.phase(lease.workflow_id) is Phase.SLEEPING


async def test_complete_before_failover(world: World) -> None:
    lease = await world.run()
    count, names = await world.overtaken(
        lambda tx: leasing.release_lost(tx, world.keys, world.worker, START + 50, 10),
        lambda db: finish.complete(db, world.keys, lease, b"out", world.now),
    )
    assert (count, names) == (0, set())
    assert await world.phase(lease.workflow_id) is Phase.COMPLETE


async def test_the_same_worker_again_is_fenced_too(world: World) -> None:
    """Not the worker's id decides, but the epoch."""
    old = await world.run()
    await leasing.release_lost(world.db, world.keys, world.worker, world.now, 10)
    [new] = await world.take()
    assert new.worker == old.worker
    with pytest.raises(LeaseLost):
        await steps.write_event(world.db, old, at(1), BRANCH)
    await steps.write_event(world.db, new, at(1), BRANCH)


async def test_two_failovers_of_one_worker(world: World) -> None:
    await world.run()
    count, _ = await world.overtaken(
        lambda tx: leasing.release_lost(tx, world.keys, world.worker, START + 50, 10),
        lambda db: leasing.release_lost(db, world.keys, world.worker, world.now, 10),
    )
    assert count == 0
    assert await world.counts() == {"sleeping": 1}


async def test_cancel_before_suspend(world: World) -> None:
    lease = await world.run()
    conditions = WakeConditions(deadline=START + 10_000)
    assert await world.overtaken(
        lambda tx: finish.suspend(tx, world.keys, lease, conditions, START + 50),
        lambda db: control.request_cancel(db, world.keys, lease.workflow_id, "", world.now),
    )


async def test_suspend_before_cancel(world: World) -> None:
    lease = await world.run()
    requested = await world.overtaken(
        lambda tx: control.request_cancel(tx, world.keys, lease.workflow_id, "", START + 50),
        lambda _: world.sleep(lease, deadline=START + 10_000),
    )
    assert requested == control.CancelRequested(first=True, worker=None, woken=NAME)
    assert len(await world.take()) == 1


async def test_terminate_before_a_commit_of_the_run(world: World) -> None:
    lease = await world.run()
    with pytest.raises(LeaseLost):
        await world.overtaken(
            lambda tx: steps.write_event(tx, lease, at(1), BRANCH),
            lambda db: control.terminate(db, world.keys, lease.workflow_id, "", world.now),
        )
    assert await world.phase(lease.workflow_id) is Phase.TERMINATED


async def test_complete_before_terminate(world: World) -> None:
    lease = await world.run()
    with pytest.raises(WorkflowFinished):
        await world.overtaken(
            lambda tx: control.terminate(tx, world.keys, lease.workflow_id, "", START + 50),
            lambda db: finish.complete(db, world.keys, lease, b"out", world.now),
        )
    assert await world.phase(lease.workflow_id) is Phase.COMPLETE


async def take_paid(tx: Transaction, world: World, lease: Lease, limit: int = 10) -> list[bytes]:
    taken = await signals.take_signals(tx, world.keys, lease, ["paid"], limit, at(1), signals_event)
    return [signal.body for signal in taken]


async def test_publish_while_signals_are_taken(world: World) -> None:
    """The later signal is not lost, and does not disturb the one who takes the earlier."""
    lease = await world.run()
    await world.publish(lease.workflow_id, body=b"first")
    transaction = world.db.transaction("take")
    assert await take_paid(transaction, world, lease) == [b"first"]
    await world.publish(lease.workflow_id, body=b"second")
    await transaction.commit()
    assert [s.body for s in await signals.pending(world.db, world.keys, lease.workflow_id, 9)] == [
        b"second"
    ]
    assert (await world.gauges()).signals == {"paid": 1}


async def test_two_members_of_a_join_take_signals(world: World) -> None:
    """Both look at the queue before one of them takes the first signal."""
    lease = await world.run()
    await world.publish(lease.workflow_id, body=b"first")
    await world.publish(lease.workflow_id, body=b"second")
    taken: list[bytes] = []

    async def other(db: Database) -> None:
        found = await signals.take_signals(db, world.keys, lease, ["paid"], 1, at(2), signals_event)
        taken.extend(signal.body for signal in found)

    slow = await world.overtaken(lambda tx: take_paid(tx, world, lease, 1), other)
    assert [*taken, *slow] == [b"first", b"second"]
    assert (await world.gauges()).signals == {}


async def test_nothing_taken_then_published_then_suspended(world: World) -> None:
    lease = await world.run()
    transaction = world.db.transaction("take")
    assert await take_paid(transaction, world, lease) == []
    await world.publish(lease.workflow_id)
    await transaction.commit()
    assert await world.sleep(lease, signals=("paid",))


async def test_failover_before_signals_are_taken(world: World) -> None:
    lease = await world.run()
    await world.publish(lease.workflow_id)
    with pytest.raises(LeaseLost):
        await world.overtaken(
            lambda tx: take_paid(tx, world, lease),
            lambda db: leasing.release_lost(db, world.keys, world.worker, world.now, 10),
        )
    assert (await world.gauges()).signals == {"paid": 1}


async def test_publish_before_complete(world: World) -> None:
    """The signal goes with the workflow, and its count too."""
    lease = await world.run()
    await world.overtaken(
        lambda tx: finish.complete(tx, world.keys, lease, b"out", START + 50),
        lambda _: world.publish(lease.workflow_id),
    )
    assert (await world.gauges()).signals == {}
    prefix = world.keys.signals(lease.workflow_id)
    assert await world.db.transaction().get_range(prefix, prefix + b"\xff") == []


async def test_complete_before_publish(world: World) -> None:
    """The publisher hears that nobody will ever receive it."""
    lease = await world.run()
    signal = world.signal()
    with pytest.raises(WorkflowFinished):
        await world.overtaken(
            lambda tx: signals.publish(tx, world.keys, lease.workflow_id, signal, START),
            lambda db: finish.complete(db, world.keys, lease, b"out", world.now),
        )
    assert (await world.gauges()).signals == {}


async def test_set_tags_before_a_unique_dispatch(world: World) -> None:
    """What is found by tags is what the workflows say."""
    workflow_id = await world.dispatch(tags={"customer": 1})
    request = Dispatch(Id.new(), NAME, b"", {"customer": 2}, Id.new(), unique=True)
    dispatched = await world.overtaken(
        lambda tx: dispatching.dispatch(tx, world.keys, request, START),
        lambda db: tags.set_tags(db, world.keys, workflow_id, {"customer": 2}),
    )
    assert dispatched == Dispatched(workflow_id, created=False)


async def test_find_never_sees_half_of_set_tags(world: World) -> None:
    workflow_id = await world.dispatch(tags={"a": 1, "b": 1})
    reader = world.db.transaction("reader")
    assert await finding.find(reader, world.keys, NAME, {"a": 1}) == workflow_id
    await tags.set_tags(world.db, world.keys, workflow_id, {"a": 2, "b": 2})
    assert await finding.find(reader, world.keys, NAME, {"b": 1}) == workflow_id
    assert await finding.find(reader, world.keys, NAME, {"b": 2}) is None
    assert await finding.find(world.db, world.keys, NAME, {"a": 2, "b": 2}) == workflow_id


async def test_set_tags_before_complete(world: World) -> None:
    """No open index row stays behind."""
    lease = await world.run()
    await world.overtaken(
        lambda tx: finish.complete(tx, world.keys, lease, b"", START + 50),
        lambda db: tags.set_tags(db, world.keys, lease.workflow_id, {"late": "yes"}),
    )
    assert await finding.find(world.db, world.keys, NAME, {"late": "yes"}) is None
    await control.delete(world.db, world.keys, lease.workflow_id)
    assert {value for _, value in await world.rows()} == {bytes(8)}


async def test_silence_before_publish(world: World) -> None:
    lease = await world.run()
    await world.sleep(lease, signals=("paid",))
    signal = world.signal()
    published = await world.overtaken(
        lambda tx: signals.publish(tx, world.keys, lease.workflow_id, signal, START + 50),
        lambda db: control.silence(db, world.keys, lease.workflow_id, world.now),
    )
    assert published.woken is None
    assert await world.take() == []
    assert await control.unsilence(world.db, world.keys, lease.workflow_id, world.now) == NAME
    assert len(await world.take()) == 1


async def test_publish_before_silence(world: World) -> None:
    lease = await world.run()
    await world.sleep(lease, signals=("paid",))
    assert await world.overtaken(
        lambda tx: control.silence(tx, world.keys, lease.workflow_id, START + 50),
        lambda _: world.publish(lease.workflow_id),
    )
    assert await world.take() == []
    prefix = world.keys.wakes(NAME)
    assert await world.db.transaction().get_range(prefix, prefix + b"\xff") == []


async def test_take_before_silence(world: World) -> None:
    workflow_id = await world.dispatch()
    with pytest.raises(WorkflowBusy):
        await world.overtaken(
            lambda tx: control.silence(tx, world.keys, workflow_id, START + 50),
            lambda _: world.take(),
        )


async def test_silence_before_take(world: World) -> None:
    workflow_id = await world.dispatch()
    wakes = await leasing.due(world.db, world.keys, NAME, world.now + 1, 10)
    assert not await world.overtaken(
        lambda tx: leasing.take(tx, world.keys, wakes, world.worker, START + 50),
        lambda db: control.silence(db, world.keys, workflow_id, world.now),
    )
    assert await world.counts() == {"sleeping": 1}


async def test_revive_after_somebody_else_took_the_unique_key(world: World) -> None:
    lease = await world.run(unique="key")
    await finish.fail(world.db, world.keys, lease, Failure("ValueError", "no"), world.now)
    with pytest.raises(UniqueKeyTaken):
        await world.overtaken(
            lambda tx: control.revive(tx, world.keys, lease.workflow_id, START + 50),
            lambda _: world.dispatch(unique="key"),
        )
    assert await world.counts() == {"sleeping": 1, "dead": 1}
