"""The operations one by one."""

from __future__ import annotations

import msgspec
import pytest
from tests.engine.database.world import BRANCH, NAME, START, World, at, signals_event

from perdure.engine.database import (
    control,
    dispatch as dispatching,
    find as finding,
    finish,
    inspect,
    lease as leasing,
    load as loading,
    prune as pruning,
    signals,
    steps,
    tags as tagging,
)
from perdure.engine.database.dispatch import Dispatch
from perdure.engine.database.keys import SILENCED_INDEX, WakeKind
from perdure.engine.database.lease import Lease
from perdure.engine.database.results import Outcome, outcome
from perdure.engine.database.rows import PendingSignal, Phase, Prune, WakeConditions
from perdure.engine.errors import (
    CorruptRecord,
    EventMissing,
    WorkflowBusy,
    WorkflowExists,
    WorkflowFinished,
    WorkflowNotFound,
)
from perdure.engine.history.events import (
    ActivityEvent,
    ChildResultEvent,
    Event,
    LoopEvent,
    SignalSendEvent,
    SleepEvent,
    SleepState,
    SubWorkflowEvent,
    TagsEvent,
    decode_event,
)
from perdure.engine.history.failure import Failure
from perdure.engine.history.location import pack_location
from perdure.engine.tags import Tags
from perdure.errors import LimitExceeded, PayloadError
from perdure.ids import Id
from perdure.kv.tuple import unpack

LARGE = bytes(range(256)) * 1_000
FAILURE = Failure("ValueError", "the card was refused")


def sleep_event(state: SleepState = SleepState.NORMAL) -> SleepEvent:
    return SleepEvent(1, START, START, START + 5_000, state)


async def events(world: World, workflow_id: Id, *, forgotten: bool = False) -> dict[bytes, Event]:
    rows = await inspect.history_rows(world.db, world.keys, workflow_id, forgotten=forgotten)
    return {key: decode_event(value) for key, value in rows}


# Keys.


async def test_every_key_is_a_packed_tuple(world: World) -> None:
    lease = await world.run(unique="k\0é")
    await tagging.set_tags(
        world.db, world.keys, lease.workflow_id, {"a\0b": "ü\0", "n": 1, "t": True}
    )
    await world.publish(lease.workflow_id, body=LARGE)
    await steps.write_event(world.db, lease, at(3, 1), BRANCH)
    rows = await world.rows()
    chunked = {key for key, value in rows if value[:1] == b"\x01"}
    whole = [key for key, _ in rows if key[:-5] not in chunked]
    regions = {unpack(key, len(world.keys.prefix))[0] for key in whole}
    assert len(regions) == 7
    assert len(whole) < len(rows)


# Dispatch and load.


async def test_dispatch_and_load_give_back_everything(world: World) -> None:
    ray, parent = Id.new(), Id.new()
    request = Dispatch(
        Id.new(), NAME, LARGE, {"b": True, "a": 1, "c": "1"}, ray, parent, "k", Prune.HISTORY
    )
    await dispatching.dispatch(world.db, world.keys, request, START)
    [lease] = await world.take()
    loaded = await loading.load(world.db, world.keys, lease)
    record = loaded.record
    assert (record.name, record.created_at, record.input) == (NAME, START, LARGE)
    assert (record.ray_id, record.parent, record.unique) == (ray, parent, "k")
    assert list(record.tags.items()) == [("a", 1), ("b", True), ("c", "1")]
    assert type(record.tags["b"]) is bool
    assert record.prune is Prune.HISTORY
    assert (loaded.state, loaded.cancel) == (None, None)


async def test_a_dispatch_is_idempotent_in_its_id(world: World) -> None:
    request = Dispatch(Id.new(), NAME, b"", {}, Id.new())
    first = await dispatching.dispatch(world.db, world.keys, request, START)
    second = await dispatching.dispatch(world.db, world.keys, request, START)
    assert (first.created, second.created, second.id) == (True, False, request.id)
    assert await world.counts() == {"sleeping": 1}
    other = msgspec.structs.replace(request, name="other")
    with pytest.raises(WorkflowExists):
        await dispatching.dispatch(world.db, world.keys, other, START)


async def test_a_worker_may_take_what_it_dispatches_at_once(world: World) -> None:
    request = Dispatch(Id.new(), NAME, b"input", {}, Id.new(), worker=world.worker)
    dispatched = await dispatching.dispatch(world.db, world.keys, request, START)
    assert dispatched.taken is not None
    lease, record = dispatched.taken
    assert (await loading.load(world.db, world.keys, lease)).record == record
    assert await world.take() == []
    assert await leasing.held(world.db, world.keys, world.worker) == [request.id]
    assert await world.counts() == {"running": 1}
    await finish.complete(world.db, world.keys, lease, b"", world.now)


async def test_unique_holds_while_the_workflow_is_open(world: World) -> None:
    lease = await world.run(unique="key")
    assert await world.dispatch(unique="key") == lease.workflow_id
    assert await world.dispatch(unique="other") != lease.workflow_id
    await finish.complete(world.db, world.keys, lease, b"", world.now)
    assert await world.dispatch(unique="key") != lease.workflow_id


async def test_a_dead_workflow_does_not_satisfy_unique(world: World) -> None:
    lease = await world.run()
    await tagging.set_tags(world.db, world.keys, lease.workflow_id, {"customer": 1})
    assert await world.dispatch(tags={"customer": 1}, unique=True) == lease.workflow_id
    await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
    assert await world.dispatch(tags={"customer": 1}, unique=True) != lease.workflow_id


async def test_unique_distinguishes_tag_types(world: World) -> None:
    values: list[str | int | bool] = [1, "1", True]
    ids = [await world.dispatch(tags={"v": value}, unique=True) for value in values]
    assert len(set(ids)) == 3
    for value, workflow_id in zip(values, ids, strict=True):
        assert await finding.find(world.db, world.keys, NAME, {"v": value}) == workflow_id


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ({str(n): 1 for n in range(33)}, LimitExceeded),
        ({"k" * 129: 1}, LimitExceeded),
        ({"k": "é" * 513}, LimitExceeded),
        ({"k": 1.5}, PayloadError),
        ({"k": 1 << 63}, PayloadError),
        ({"k": "\ud800"}, PayloadError),
    ],
)
async def test_tags_have_limits(world: World, tags: Tags, error: type[Exception]) -> None:
    with pytest.raises(error):
        await world.dispatch(tags=tags)
    assert await world.rows() == []


async def test_find_walks_all_tag_lists(world: World) -> None:
    ids = [await world.dispatch(tags={"even": n % 2 == 0, "third": n % 3 == 0}) for n in range(30)]
    both = sorted(ids[0::6])
    wanted: Tags = {"even": True, "third": True}
    assert await finding.find(world.db, world.keys, NAME, wanted) == both[0]
    assert await finding.find(world.db, world.keys, NAME, {}) == ids[0]
    assert await finding.find(world.db, world.keys, "nobody", {}) is None
    assert await finding.find(world.db, world.keys, NAME, {"even": 1}) is None


async def test_dispatch_child_records_the_workflow_that_was_found(world: World) -> None:
    parent = await world.run(name="parent")
    existing = await world.dispatch(unique="key")
    request = Dispatch(Id.new(), NAME, b"", {}, Id.new(), parent.workflow_id, "key")
    event = SubWorkflowEvent(1, START, START, NAME, bytes(request.id))
    result = await dispatching.dispatch_child(
        world.db, world.keys, parent, at(1), event, request, world.now
    )
    assert (result.id, result.created) == (existing, False)
    stored = (await events(world, parent.workflow_id))[at(1)]
    assert isinstance(stored, SubWorkflowEvent)
    assert stored.id == existing


# Waking.


async def test_a_stale_wake_is_cleared_and_gives_no_lease(world: World) -> None:
    """Skipped wakes move no counter."""
    lease = await world.run()
    stale = [leasing.Wake(NAME, START, lease.workflow_id, kind) for kind in (0, 1)]
    stale.append(leasing.Wake(NAME, START, Id.new(), 0))
    for wake in stale:
        transaction = world.db.transaction()
        transaction.set(world.keys.wake(NAME, wake.ts, wake.workflow_id, wake.kind), b"")
        await transaction.commit()
    assert len(await leasing.due(world.db, world.keys, NAME, START + 1, 10)) == 3
    assert await leasing.take(world.db, world.keys, stale, world.worker, START + 1) == []
    assert await leasing.due(world.db, world.keys, NAME, START + 1, 10) == []
    assert await world.counts() == {"running": 1}


async def test_all_wakes_of_a_join_are_committed(world: World) -> None:
    """A deadline, two signals and a child together."""
    parts = [
        WakeConditions(signals=("paid",), deadline=START + 900),
        WakeConditions(signals=("shipped", "paid"), deadline=START + 500),
        WakeConditions(children=(await world.dispatch(name="child"),)),
    ]
    for wake_by in ("paid", "shipped", "deadline", "child"):
        lease = await world.run()
        await finish.suspend(world.db, world.keys, lease, WakeConditions.union(parts), world.now)
        status = await world.status(lease.workflow_id)
        assert (status.deadline, status.signals) == (START + 500, ("paid", "shipped"))
        if wake_by == "deadline":
            assert await leasing.due(world.db, world.keys, NAME, START + 500, 10) == []
            assert await leasing.upcoming(
                world.db, world.keys, NAME, START + 400, START + 600, 10
            ) == [START + 500]
        elif wake_by == "child":
            [child] = await world.take("child")
            closed = await finish.complete(world.db, world.keys, child, b"", world.now)
            assert closed.woken == {NAME}
        else:
            assert await world.publish(lease.workflow_id, wake_by) == NAME
        [again] = await world.take()
        assert again.workflow_id == lease.workflow_id
        await finish.complete(world.db, world.keys, again, b"", world.now)
        for region in (world.keys.wakes(NAME), world.keys.waiters(lease.workflow_id)):
            assert await world.db.transaction().get_range(region, region + b"\xff") == []


def test_a_member_without_deadline_does_not_erase_one() -> None:
    """The earliest deadline of those that have one."""
    none, late, early = (WakeConditions(deadline=d) for d in (None, 9, 5))
    for parts in ([none, late, early], [early, late, none], [late, none, early]):
        assert WakeConditions.union(parts).deadline == 5
    assert WakeConditions.union([none]).empty


async def test_a_new_sleep_clears_the_old_deadline(world: World) -> None:
    lease = await world.run()
    await world.sleep(lease, deadline=START + 200, signals=("paid",))
    await world.publish(lease.workflow_id)
    [lease] = await world.take()
    assert await leasing.upcoming(world.db, world.keys, NAME, START, START + 999, 10) == []
    await world.sleep(lease, signals=("never",))
    assert (await world.status(lease.workflow_id)).deadline is None


async def test_waiter_rows_do_not_pile_up(world: World) -> None:
    """One row per parent and child, whatever the number of waits."""
    parent, child = await world.run(name="parent"), await world.dispatch()
    waiters = world.keys.waiters(child)
    for _ in range(3):
        await world.sleep(parent, children=(child,), signals=("paid",))
        assert len(await world.db.transaction().get_range(waiters, waiters + b"\xff")) == 1
        await control.wake(world.db, world.keys, parent.workflow_id, world.now)
        [parent] = await world.take("parent")
        assert await world.db.transaction().get_range(waiters, waiters + b"\xff") == []
    await world.sleep(parent, children=(child,))
    await control.terminate(world.db, world.keys, parent.workflow_id, "", world.now)
    assert await world.db.transaction().get_range(waiters, waiters + b"\xff") == []


async def test_sleeping_for_ever_is_refused(world: World) -> None:
    lease = await world.run()
    with pytest.raises(ValueError, match="nothing wakes it"):
        await world.sleep(lease)


async def test_thousands_of_children_fit_in_a_status(world: World) -> None:
    children = tuple([await world.dispatch(name="child") for _ in range(3)])
    many = children + tuple(Id.new() for _ in range(0))
    lease = await world.run()
    names = tuple(f"signal_{n:06}" for n in range(5_000))
    conditions = WakeConditions(children=many, signals=names)
    await finish.suspend(world.db, world.keys, lease, conditions, world.now)
    assert (await world.status(lease.workflow_id)).signals == names
    assert await world.publish(lease.workflow_id, "signal_004999") == NAME
    [lease] = await world.take()
    await steps.write_event(world.db, lease, at(1), BRANCH)
    rows = [key for key, _ in await world.rows() if key.startswith(lease.status_key)]
    assert rows == [lease.status_key]


# Leases that nobody runs.


async def test_a_held_workflow_can_be_given_back_without_its_lease(world: World) -> None:
    """A worker finds what it holds and does not run."""
    lease = await world.run()
    assert await leasing.held(world.db, world.keys, world.worker) == [lease.workflow_id]
    for worker, name in ((Id.new(), None), (world.worker, NAME), (world.worker, None)):
        released = await leasing.release_held(
            world.db, world.keys, worker, lease.workflow_id, world.now
        )
        assert released == name
    assert await leasing.held(world.db, world.keys, world.worker) == []
    assert len(await world.take()) == 1


async def test_release_and_failover_in_portions(world: World) -> None:
    for _ in range(5):
        await world.dispatch()
    leases = await world.take()
    await leasing.release_held(world.db, world.keys, world.worker, leases[0].workflow_id, world.now)
    released = [
        await leasing.release_lost(world.db, world.keys, world.worker, world.now, 3)
        for _ in range(2)
    ]
    assert released == [(3, {NAME}), (1, {NAME})]
    assert await world.counts() == {"sleeping": 5}
    assert len(await world.take()) == 5


async def test_an_unreadable_workflow_is_quarantined_alone(world: World) -> None:
    bad, good = await world.run(), await world.run()
    transaction = world.db.transaction()
    transaction.set(world.keys.cancel(bad.workflow_id), b"\x00\xc1")
    await transaction.commit()
    with pytest.raises(CorruptRecord) as caught:
        await loading.load(world.db, world.keys, bad)
    await finish.quarantine(world.db, world.keys, bad, str(caught.value), world.now)
    end = await outcome(world.db, world.keys, bad.workflow_id)
    assert end is not None
    assert end.failure is not None
    assert (end.phase, end.failure.type) == (Phase.DEAD, "Quarantined")
    assert (await loading.load(world.db, world.keys, good)).record.name == NAME


# History.


def activity(output: bytes | None, attempts: int = 1) -> ActivityEvent:
    return ActivityEvent(1, START, START, "charge", output=output, attempts=attempts)


async def test_activity_result_and_state_are_one_commit(world: World) -> None:
    lease = await world.run()
    transaction = world.db.transaction()
    await steps.write_event(transaction, lease, at(1), activity(b"done"), state=b"state")
    await transaction.commit()
    loaded = await loading.load(world.db, world.keys, lease)
    assert (loaded.state, len(loaded.history.events())) == (b"state", 1)
    assert await world.db.transaction().get(lease.state_key) == b"\x00state"


@pytest.mark.parametrize(
    ("before", "after"), [(LARGE, b"small"), (b"small", LARGE), (LARGE, LARGE)]
)
async def test_a_rewritten_event_leaves_no_old_chunks(
    world: World, before: bytes, after: bytes
) -> None:
    lease = await world.run()
    await steps.write_event(world.db, lease, at(1), activity(before), state=before)
    await steps.write_event(world.db, lease, at(1), activity(after), state=after, fresh=False)
    await steps.write_event(world.db, lease, at(1), activity(after, attempts=2), fresh=False)
    loaded = await loading.load(world.db, world.keys, lease)
    [(_, event)] = loaded.history.events()
    assert event == activity(after, attempts=2)
    assert loaded.state == after


async def test_an_update_never_creates_an_event(world: World) -> None:
    lease = await world.run()
    loop = LoopEvent(1, START, START, 1, b"state")
    with pytest.raises(EventMissing):
        await steps.commit_loop(world.db, world.keys, lease, at(1), loop, 1, 9)
    await world.publish(lease.workflow_id)
    with pytest.raises(EventMissing):
        await take(world, lease, 1, sleep_key=at(7))
    assert await events(world, lease.workflow_id) == {}
    assert (await world.gauges()).signals == {"paid": 1}


async def commit_iteration(
    world: World, lease: Lease, iteration: int, *, payload: bytes = b"", retention: int = 2
) -> None:
    """Run one iteration of the loop at {1}: two events in its branch, then the commit."""
    for step in (1, 2):
        await steps.write_event(world.db, lease, at(1, iteration + 1, step), activity(payload))
    await steps.commit_loop(
        world.db,
        world.keys,
        lease,
        at(1),
        LoopEvent(1, START, START, iteration + 1, b"state"),
        iteration + 1,
        retention,
    )


async def test_a_loop_commit_forgets_finished_iterations(world: World) -> None:
    lease = await world.run()
    loop = LoopEvent(1, START, START, 0, b"state")
    await steps.write_event(world.db, lease, at(1), loop)
    await steps.write_event(world.db, lease, at(2), BRANCH)
    for iteration in range(4):
        await commit_iteration(world, lease, iteration)
    active = await events(world, lease.workflow_id)
    assert sorted(active) == [at(1), at(2)]
    stored = active[at(1)]
    assert isinstance(stored, LoopEvent)
    assert stored.iteration == 4
    kept = await events(world, lease.workflow_id, forgotten=True)
    assert sorted(kept) == [at(1, n, step) for n in (3, 4) for step in (1, 2)]


async def test_compaction_is_bounded_and_keeps_events_whole(world: World) -> None:
    """Iterations that do not fit in one transaction are moved in several."""
    lease = await world.run()
    loop = LoopEvent(1, START, START, 0, b"state")
    await steps.write_event(world.db, lease, at(1), loop)
    payload = LARGE * 24
    for iteration in (1, 2):
        await steps.write_event(world.db, lease, at(1, iteration), activity(payload))
    transaction = world.db.transaction()
    done = LoopEvent(1, START, START, 2, b"state")
    await steps.commit_loop(transaction, world.keys, lease, at(1), done, 2, 9)
    await transaction.commit()
    assert sorted(await events(world, lease.workflow_id)) == [at(1), at(1, 2)]
    await steps.commit_loop(world.db, world.keys, lease, at(1), done, 2, 9)
    assert sorted(await events(world, lease.workflow_id)) == [at(1)]
    kept = await events(world, lease.workflow_id, forgotten=True)
    assert list(kept.values()) == [activity(payload)] * 2


def child_event(end: Outcome) -> ChildResultEvent:
    return ChildResultEvent(1, START, START, b"", end.phase, end.output, end.failure)


async def test_the_end_of_a_child_is_recorded(world: World) -> None:
    """Death and cancellation are results too."""
    parent = await world.run(name="parent")
    ended: list[Id] = []
    for how in ("complete", "fail", "cancelled", "open"):
        lease = await world.run()
        ended.append(lease.workflow_id)
        if how == "complete":
            await finish.complete(world.db, world.keys, lease, LARGE, world.now)
        elif how == "fail":
            await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
        elif how == "cancelled":
            await finish.cancelled(world.db, world.keys, lease, b"part", None, world.now)
    outcomes = [
        await steps.child_result(world.db, world.keys, parent, at(n + 1), child, child_event)
        for n, child in enumerate(ended)
    ]
    assert outcomes == [
        Outcome(Phase.COMPLETE, LARGE, None),
        Outcome(Phase.DEAD, None, FAILURE),
        Outcome(Phase.CANCELLED, b"part", None),
        None,
    ]
    assert len(await events(world, parent.workflow_id)) == 3
    with pytest.raises(WorkflowNotFound):
        await steps.child_result(world.db, world.keys, parent, at(9), Id.new(), child_event)


# Signals.


async def take(
    world: World, lease: Lease, limit: int, *names: str, sleep_key: bytes | None = None
) -> list[PendingSignal]:
    interrupted = sleep_event(SleepState.INTERRUPTED) if sleep_key else None
    return await signals.take_signals(
        world.db,
        world.keys,
        lease,
        names or ("paid",),
        limit,
        at(2),
        signals_event,
        sleep_key,
        interrupted,
    )


async def test_signals_come_in_commit_order(world: World) -> None:
    """Neither the sender's clock nor the name decides."""
    lease = await world.run()
    sent = []
    for number in range(12):
        signal = PendingSignal(
            Id.new(), ("b", "a")[number % 2], b"%d" % number, Id.new(), START - number
        )
        await signals.publish(world.db, world.keys, lease.workflow_id, signal, START)
        sent.append(signal.body)
    assert [s.body for s in await take(world, lease, 5, "a", "b")] == sent[:5]
    assert [s.body for s in await take(world, lease, 9, "b")] == sent[6::2]
    assert (await world.gauges()).signals == {"a": 4}


async def test_signals_of_one_transaction_keep_their_order(world: World) -> None:
    lease = await world.run()
    transaction = world.db.transaction()
    for number in range(20):
        await signals.publish(
            transaction,
            world.keys,
            lease.workflow_id,
            world.signal(body=b"%d" % number),
            START,
            number,
        )
    await transaction.commit()
    assert [s.body for s in await take(world, lease, 99)] == [b"%d" % n for n in range(20)]


async def test_taking_records_signals_and_interrupts_the_sleep_at_once(world: World) -> None:
    """One commit for both events and the queue."""
    lease = await world.run()
    await steps.write_event(world.db, lease, at(1), sleep_event())
    assert await take(world, lease, 9, sleep_key=at(1)) == []
    assert await events(world, lease.workflow_id) == {at(1): sleep_event()}
    await world.publish(lease.workflow_id, body=LARGE)
    taken = await take(world, lease, 9, sleep_key=at(1))
    assert [signal.body for signal in taken] == [LARGE]
    assert await events(world, lease.workflow_id) == {
        at(1): sleep_event(SleepState.INTERRUPTED),
        at(2): signals_event(taken),
    }
    body = world.keys.signal_body(lease.workflow_id, taken[0].id)
    assert await world.db.transaction().get_range(body, body + b"\xff") == []


async def test_a_step_receives_a_bounded_size_but_never_nothing(world: World) -> None:
    lease = await world.run()
    for size in (5_000_000, 2_500_000, 2_500_000):
        await world.publish(lease.workflow_id, body=bytes(size))
    assert [len(s.body) for s in await take(world, lease, 9)] == [5_000_000]
    await steps.write_event(world.db, lease, at(2), BRANCH, fresh=False)
    assert [len(s.body) for s in await take(world, lease, 9)] == [2_500_000]


async def test_publish_refuses_who_cannot_receive(world: World) -> None:
    """Dead ones too."""
    with pytest.raises(WorkflowNotFound):
        await world.publish(Id.new())
    lease = await world.run()
    await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
    with pytest.raises(WorkflowFinished):
        await world.publish(lease.workflow_id)


async def test_a_signal_from_a_workflow_is_recorded_with_it(world: World) -> None:
    sender, target = await world.run(name="sender"), await world.dispatch()
    event = SignalSendEvent(1, START, START, "paid", bytes(target), b"id")
    await signals.publish_from(
        world.db, world.keys, sender, at(1), event, target, world.signal(), world.now
    )
    with pytest.raises(WorkflowNotFound):
        await signals.publish_from(
            world.db, world.keys, sender, at(9), event, Id.new(), world.signal(), world.now
        )
    stored = await events(world, sender.workflow_id)
    assert stored == {at(1): event}
    assert (await world.gauges()).signals == {"paid": 1}


async def test_a_wait_whose_signals_were_there_before_writes_both_events(world: World) -> None:
    lease = await world.run()
    await world.publish(lease.workflow_id)
    interrupted = sleep_event(SleepState.INTERRUPTED)
    taken = await signals.take_signals(
        world.db,
        world.keys,
        lease,
        ["paid"],
        1,
        at(2),
        signals_event,
        at(1),
        interrupted,
        sleep_is_new=True,
    )
    assert await events(world, lease.workflow_id) == {
        at(1): interrupted,
        at(2): signals_event(taken),
    }


# Control.


async def test_cancel_is_delivered_once(world: World) -> None:
    lease = await world.run()
    first = await control.request_cancel(
        world.db, world.keys, lease.workflow_id, "too late", world.now
    )
    again = await control.request_cancel(world.db, world.keys, lease.workflow_id, "x", world.now)
    assert (first.first, first.worker, again.first) == (True, world.worker, False)
    assert await world.sleep(lease, deadline=START + 10_000)
    [lease] = await world.take()
    loaded = await loading.load(world.db, world.keys, lease)
    assert loaded.cancel is not None
    assert loaded.cancel.reason == "too late"
    conditions = WakeConditions(deadline=START + 10_000)
    assert not await finish.suspend(
        world.db, world.keys, lease, conditions, world.now, cancel_delivered=True
    )
    assert await world.take() == []


async def test_terminate_wakes_parents_and_clears_wakes(world: World) -> None:
    parent, child = await world.run(name="parent"), await world.run()
    await world.sleep(parent, children=(child.workflow_id,))
    await world.sleep(child, deadline=START + 10_000)
    done = await control.terminate(world.db, world.keys, child.workflow_id, "stop", world.now)
    assert done.woken == {"parent"}
    end = await outcome(world.db, world.keys, child.workflow_id)
    assert end is not None
    assert end.failure is not None
    assert (end.phase, end.failure.message) == (Phase.TERMINATED, "stop")
    prefix = world.keys.wakes(NAME)
    assert await world.db.transaction().get_range(prefix, prefix + b"\xff") == []


async def test_silence_and_its_end(world: World) -> None:
    """The phase does not change, so no counter does."""
    lease = await world.run()
    with pytest.raises(WorkflowBusy):
        await control.silence(world.db, world.keys, lease.workflow_id, world.now)
    await world.sleep(lease, deadline=START + 10_000, signals=("paid",))
    assert await control.silence(world.db, world.keys, lease.workflow_id, world.now)
    assert not await control.silence(world.db, world.keys, lease.workflow_id, world.now)
    await world.publish(lease.workflow_id)
    assert await leasing.due(world.db, world.keys, NAME, START + 20_000, 10) == []
    with pytest.raises(WorkflowBusy):
        await control.wake(world.db, world.keys, lease.workflow_id, world.now)
    assert await world.counts() == {"sleeping": 1}
    assert await control.unsilence(world.db, world.keys, lease.workflow_id, world.now) == NAME
    [wake, deadline] = await leasing.due(world.db, world.keys, NAME, START + 20_000, 10)
    assert (wake.kind, deadline.kind) == (WakeKind.IMMEDIATE, WakeKind.DEADLINE)
    prefix = world.keys.indexed(SILENCED_INDEX, NAME)
    assert await world.db.transaction().get_range(prefix, prefix + b"\xff") == []


async def test_revive_goes_on_where_the_workflow_died(world: World) -> None:
    """Its signals are still there, its old failure is not."""
    lease = await world.run(unique="key")
    await steps.write_event(world.db, lease, at(1), BRANCH, state=b"state")
    await world.publish(lease.workflow_id)
    await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
    assert await finding.find(world.db, world.keys, NAME, {}) is None
    assert (await world.gauges()).signals == {"paid": 1}
    none = await control.revive_matching(world.db, world.keys, NAME, "timeout", world.now, 10)
    assert none.ids == []
    for dry_run in (True, False):
        revived = await control.revive_matching(
            world.db, world.keys, NAME, "card was", world.now, 10, dry_run=dry_run
        )
        assert revived.ids == [lease.workflow_id]
        assert await world.counts() == ({"dead": 1} if dry_run else {"sleeping": 1})
    [again] = await world.take()
    assert again.epoch == lease.epoch + 1
    assert (await loading.load(world.db, world.keys, again)).state == b"state"
    assert [s.body for s in await take(world, again, 9)] == [b"1"]
    await finish.complete(world.db, world.keys, again, b"out", world.now)
    assert await outcome(world.db, world.keys, lease.workflow_id) == Outcome(
        Phase.COMPLETE, b"out", None
    )
    with pytest.raises(WorkflowBusy):
        await control.revive(world.db, world.keys, lease.workflow_id, world.now)


@pytest.mark.parametrize("variant", list(Prune))
async def test_prune_leaves_nothing_or_what_it_should(world: World, variant: Prune) -> None:
    """Everything is read before it is cleared, and nothing stays behind."""
    workflow_id = await world.dispatch(
        tags={"a": 1, "b": "x"}, unique="k", prune=variant, payload=LARGE
    )
    [lease] = await world.take()
    await steps.write_event(world.db, lease, at(1), activity(LARGE), state=LARGE)
    await world.publish(workflow_id, body=LARGE)
    closed_at = world.now
    await control.request_cancel(world.db, world.keys, workflow_id, "", closed_at)
    await finish.cancelled(world.db, world.keys, lease, LARGE, FAILURE, closed_at)
    early = await pruning.prune(world.db, world.keys, closed_at, 10, world.now)
    assert early == pruning.Pruned(0, None)
    pruned = await pruning.prune(world.db, world.keys, closed_at + 1, 10, world.now)
    assert pruned == pruning.Pruned(variant is not Prune.NONE, None)
    if variant is Prune.ALL:
        gauge_rows = world.keys.gauges()
        assert all(key.startswith(gauge_rows) for key, _ in await world.rows())
        assert {value for _, value in await world.rows()} == {bytes(8)}
        return
    [found] = await inspect.describe(world.db, world.keys, [workflow_id])
    assert found is not None
    assert (found.pruned_at is not None) is (variant is Prune.HISTORY)
    assert (await inspect.values(world.db, world.keys, workflow_id)).output == LARGE
    assert len(await events(world, workflow_id)) == (variant is Prune.NONE)


async def test_prune_in_portions_and_delete(world: World) -> None:
    for _ in range(5):
        await world.dispatch()
    leases = await world.take()
    for lease in leases[:4]:
        await finish.complete(world.db, world.keys, lease, b"", world.now)
    with pytest.raises(WorkflowBusy):
        await control.delete(world.db, world.keys, leases[4].workflow_id)
    await control.delete(world.db, world.keys, leases[0].workflow_id)
    portions = [
        await pruning.prune(world.db, world.keys, START * 2, 2, world.now) for _ in range(2)
    ]
    assert [portion.count for portion in portions] == [2, 1]
    assert portions[1].cursor is None
    assert await world.counts() == {"running": 1}


async def test_set_tags_rewrites_record_and_index(world: World) -> None:
    lease = await world.run()
    await tagging.set_tags(world.db, world.keys, lease.workflow_id, {"a": 1, "b": 1})
    event = TagsEvent(1, START, START, {"a": True, "c": "ü"})
    await tagging.set_tags(world.db, world.keys, lease.workflow_id, event.tags, lease, at(1), event)
    searches: list[Tags] = [{"a": 1}, {"b": 1}, {"a": True}, {"c": "ü"}, {"a": True, "c": "ü"}]
    found = [await finding.find(world.db, world.keys, NAME, wanted) for wanted in searches]
    assert found == [None, None] + [lease.workflow_id] * 3
    assert await events(world, lease.workflow_id) == {at(1): event}


# Looking.


async def test_lists_by_state_name_tags_and_time(world: World) -> None:
    made: dict[str, Id] = {}
    for number, state in enumerate(("complete", "dead", "cancelled", "running", "silenced")):
        lease = await world.run(name=f"name{number % 2}")
        made[state] = lease.workflow_id
        await tagging.set_tags(world.db, world.keys, lease.workflow_id, {"n": number % 2})
        if state == "complete":
            await finish.complete(world.db, world.keys, lease, b"", world.now)
        elif state == "dead":
            await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
        elif state == "cancelled":
            await finish.cancelled(world.db, world.keys, lease, None, None, world.now)
        elif state == "silenced":
            await world.sleep(lease, signals=("paid",))
            await control.silence(world.db, world.keys, lease.workflow_id, world.now)
    made["sleeping"] = await world.dispatch(name="name1", tags={"n": 1})

    async def listed(wanted: inspect.ListFilter, limit: int = 100) -> list[Id]:
        ids: list[Id] = []
        page: str | None = None
        while True:
            found = await inspect.list_workflows(world.db, world.keys, wanted, limit, page)
            ids += [each.id for each in found.workflows]
            page = found.next_page
            if page is None:
                return ids

    everything = list(reversed(made.values()))
    for limit in (1, 2, 100):
        assert await listed(inspect.ListFilter(), limit) == everything
        for state, workflow_id in made.items():
            assert await listed(inspect.ListFilter(state=state), limit) == [workflow_id]
        opened = [made[state] for state in ("sleeping", "silenced", "running")]
        assert await listed(inspect.ListFilter(state="open"), limit) == opened
        assert len(await listed(inspect.ListFilter(state="closed"), limit)) == 3
        odd = {made[state] for state in ("dead", "running", "sleeping")}
        assert set(await listed(inspect.ListFilter(name="name1"), limit)) == odd
        assert set(await listed(inspect.ListFilter(tags={"n": 1}), limit)) == odd
        assert await listed(inspect.ListFilter(tags={"n": 1}, state="dead"), limit) == [
            made["dead"]
        ]
    [first] = await inspect.describe(world.db, world.keys, [made["running"]])
    assert first is not None
    created = first.record.created_at
    assert await listed(inspect.ListFilter(created_before=created)) == everything[3:]
    assert await listed(inspect.ListFilter(created_after=created)) == everything[:3]
    assert await inspect.names(world.db, world.keys) == ["name0", "name1"]
    for wanted, page, error in (
        (inspect.ListFilter(state="odd"), None, inspect.InvalidState),
        (inspect.ListFilter(), "%", inspect.InvalidPage),
    ):
        with pytest.raises(error):
            await inspect.list_workflows(world.db, world.keys, wanted, 10, page)


async def test_descriptions_and_values(world: World) -> None:
    lease = await world.run()
    await steps.write_event(world.db, lease, pack_location(((1,),)), BRANCH, state=b"state")
    await world.publish(lease.workflow_id)
    counts = await inspect.pending_counts(world.db, world.keys, lease.workflow_id)
    assert counts == {"paid": 1}
    await finish.fail(world.db, world.keys, lease, FAILURE, world.now)
    found, nothing = await inspect.describe(world.db, world.keys, [lease.workflow_id, Id.new()])
    assert nothing is None
    assert found is not None
    assert (found.state, found.failure) == ("dead", FAILURE)
    values = await inspect.values(world.db, world.keys, lease.workflow_id)
    assert values == inspect.Values(b"input", b"state", None)
