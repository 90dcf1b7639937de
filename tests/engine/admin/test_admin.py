"""The admin interface on an open store: answers, refusals, and who is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from perdure import Engine, Signal, WorkflowContext, signal, workflow
from perdure.codec import encode
from perdure.engine import subjects
from perdure.engine.admin.requests import AnyRequest, GetWorkflow, ListWorkflows
from perdure.engine.database.rows import Prune, WakeConditions
from perdure.engine.errors import (
    UniqueKeyTaken,
    UnknownWorkflow,
    WorkflowBusy,
    WorkflowFinished,
    WorkflowNotFound,
)
from perdure.engine.history.events import ActivityEvent, LoopEvent
from perdure.errors import InvalidName, LimitExceeded, PayloadError
from perdure.ids import Id, InvalidId

if TYPE_CHECKING:
    from tests.engine.admin.world import World

PAID = WakeConditions(signals=("paid",))
WORK = f"{subjects.work()}.fulfil"


def test_every_request_names_a_method_that_takes_its_fields(world: World) -> None:
    for request in AnyRequest.__args__:
        method = getattr(world.admin, request.__struct_config__.tag)
        accepted = method.__func__.__code__.co_varnames
        assert set(request.__struct_fields__) <= set(accepted), request


async def test_requests_are_answered_by_their_methods(world: World) -> None:
    workflow_id = await world.dispatch(tags={"a": 1})

    page = await world.admin.ask(ListWorkflows(tags={"a": 1}))
    detail = await world.admin.ask(GetWorkflow(id=str(workflow_id)))

    assert [each.id for each in page.workflows] == [str(workflow_id)]
    assert detail == await world.admin.get(str(workflow_id))


async def test_a_detail_has_all_there_is(world: World) -> None:
    parent = await world.dispatch("order")
    child = await world.dispatch("order", parent=parent)
    workflow_id = await world.dispatch(
        value={"bytes": b"\x01", "nan": float("nan")},
        tags={"b": True, "a": "1"},
        unique="key",
        parent=parent,
    )
    lease = await world.lease(workflow_id)
    deadline = world.clock.now() + 60_000
    await world.suspend(
        lease, WakeConditions(deadline=deadline, signals=("paid", "stop"), children=(child,))
    )
    await world.admin.signal(str(workflow_id), "note", [1])
    await world.admin.signal(str(workflow_id), "note", [2])

    detail = await world.admin.get(str(workflow_id))

    assert detail.state == "sleeping"
    assert detail.input == {"bytes": "AQ==", "nan": "NaN"}
    assert detail.tags == {"a": "1", "b": True}
    assert detail.unique == "key"
    assert detail.parent == str(parent)
    assert detail.epoch == 1
    assert detail.wake_at == deadline
    assert detail.waiting_for == ["signal paid", "signal stop", f"workflow {child}"]
    assert detail.pending_signals == {"note": 2}
    assert detail.worker is None


async def test_the_end_of_a_workflow_is_in_its_detail(world: World) -> None:
    done = await world.admin.get(str(await world.complete({"sum": 3})))
    dead = await world.admin.get(str(await world.dead("first line\nsecond line")))

    assert (done.state, done.output, done.failure) == ("complete", {"sum": 3}, None)
    assert dead.state == "dead"
    assert dead.error == "ValueError: first line"
    assert dead.failure is not None
    assert dead.failure.message == "first line\nsecond line"
    assert dead.failure.code is None


async def test_progress_of_long_work_is_in_lists_and_details(world: World) -> None:
    workflow_id = await world.dispatch()
    lease = await world.lease(workflow_id)
    now = world.clock.now()
    copy = ActivityEvent(1, now, now, name="copy", retry_at=now, progress=encode(0.4), attempts=1)
    await world.record(
        lease,
        [
            ("{1}", LoopEvent(1, now, now, iteration=3, state=encode(None), output=encode(None))),
            ("{2}", LoopEvent(1, now, now, iteration=7, state=encode(None))),
            ("{2, 8, 1}", ActivityEvent(1, now, now, name="done", output=encode(1), attempts=1)),
            ("{2, 8, 2}", copy),
        ],
    )

    [listed] = (await world.admin.list()).workflows
    detail = await world.admin.get(str(workflow_id))

    assert listed.progress == detail.progress
    loop, activity = detail.progress
    assert (loop.what, loop.location, loop.iteration) == ("loop", "{2}", 7)
    assert (activity.what, activity.name, activity.attempt) == ("activity", "copy", 2)
    assert activity.details == 0.4


async def test_lists_filter_and_page(world: World) -> None:
    first = await world.sleeping(PAID, tags={"n": 1})
    second = await world.sleeping(PAID, "order")
    middle = world.clock.now()
    third = await world.dispatch()
    dead = await world.dead("boom")

    async def found(**wanted: Any) -> list[str]:
        ids: list[str] = []
        page = None
        while True:
            answer = await world.admin.list(limit=1, page=page, **wanted)
            ids += [each.id for each in answer.workflows]
            page = answer.next_page
            if page is None:
                return ids

    assert await found() == [str(each) for each in (dead, third, second, first)]
    assert await found(name="order") == [str(second)]
    assert await found(state="dead") == [str(dead)]
    assert await found(tags={"n": 1}) == [str(first)]
    assert await found(tags={"n": "1"}) == []
    assert await found(since=middle + 1) == [str(dead), str(third)]
    assert await found(before=middle) == [str(first)]


async def test_a_dispatch_is_stored_and_announced(world: World) -> None:
    world.listen(WORK)

    started = await world.admin.dispatch("fulfil", {"order": 7}, tags={"n": 1}, unique="order 7")
    await world.heard()
    again = await world.admin.dispatch("fulfil", {"order": 7}, unique="order 7")
    by_tags = await world.admin.dispatch("fulfil", tags={"n": 1}, unique=True)
    await world.heard()

    assert world.rung == [WORK], "who finds nothing new to do is not rung for"
    assert (started.created, started.name) == (True, "fulfil")
    for found in (again, by_tags):
        assert (found.created, found.workflow_id) == (False, started.workflow_id)
    detail = await world.admin.get(started.workflow_id)
    assert (detail.state, detail.input, detail.unique) == ("sleeping", {"order": 7}, "order 7")
    assert detail.tags == {"n": 1}
    assert (await world.lease(Id.parse(started.workflow_id))).epoch == 1


async def test_a_dispatch_needs_a_proper_name_and_tags(world: World) -> None:
    with pytest.raises(InvalidName):
        await world.admin.dispatch("Not A Name")
    with pytest.raises(LimitExceeded):
        await world.admin.dispatch("fulfil", tags={str(number): 1 for number in range(33)})
    assert (await world.admin.list()).workflows == []


async def test_beside_an_engine_a_dispatch_is_checked_and_runs() -> None:
    @workflow(prune="none")
    async def total(_ctx: WorkflowContext, numbers: list[int]) -> int:
        return sum(numbers)

    async with Engine("memory:", workflows=[total]) as engine:
        with pytest.raises(UnknownWorkflow, match="totel"):
            await engine.admin.dispatch("totel", [1])
        with pytest.raises(PayloadError, match="int"):
            await engine.admin.dispatch("total", ["one"])
        assert (await engine.admin.list()).workflows == []

        started = await engine.admin.dispatch("total", [1, 2])
        handle = engine.handle(total, started.workflow_id)
        assert await handle.result(timeout=60) == 3
        assert (await handle.describe()).record.prune is Prune.NONE


async def test_a_signal_wakes_and_is_announced(world: World) -> None:
    workflow_id = await world.sleeping(PAID)
    world.listen(WORK, subjects.signalled(workflow_id))

    other = await world.admin.signal(str(workflow_id), "note")
    await world.heard()
    assert not other.woken
    assert world.rung == [subjects.signalled(workflow_id)]

    sent = await world.admin.signal(str(workflow_id), "paid", {"by": "me"})
    await world.heard()
    assert sent.woken
    assert WORK in world.rung
    pending = await world.admin.signals(str(workflow_id))
    assert [(each.name, each.body) for each in pending] == [("note", None), ("paid", {"by": "me"})]
    assert pending[1].id == sent.signal_id
    assert len(await world.admin.signals(str(workflow_id), limit=1)) == 1


parcel = Signal("parcel", int)


@signal(name="decision")
@dataclass
class Decision:
    approved: bool


@workflow
async def decided(ctx: WorkflowContext) -> bool:
    await ctx.listen(parcel)
    return (await ctx.listen(Decision)).approved


async def test_beside_an_engine_a_signal_must_fit_what_its_workflows_listen_to() -> None:
    async with Engine("memory:", workflows=[decided]) as engine:
        handle = await engine.dispatch(decided)
        refused: list[tuple[str, Any]] = [("decision", {"aproved": True}), ("parcel", "one")]
        for name, body in refused:
            with pytest.raises(PayloadError, match=f'of signal "{name}"'):
                await engine.admin.signal(str(handle.id), name, body)
        await engine.admin.signal(str(handle.id), "parcel", 1)
        await engine.admin.signal(str(handle.id), "unheard_of", [1])
        await engine.admin.signal(str(handle.id), "decision", {"approved": True})
        assert await handle.result(timeout=60) is True


async def test_a_signal_needs_a_proper_name(world: World) -> None:
    workflow_id = await world.dispatch()
    with pytest.raises(InvalidName):
        await world.admin.signal(str(workflow_id), "Not A Name")


async def test_cancel_tells_the_sleeping_and_the_running(world: World) -> None:
    sleeping = await world.sleeping(PAID)
    running = await world.dispatch()
    lease = await world.lease(running)
    world.listen(WORK, subjects.worker(lease.worker))

    assert (await world.admin.cancel(str(sleeping), reason="enough")).changed
    await world.heard()
    assert world.rung == [WORK]
    assert (await world.admin.cancel(str(running))).changed
    await world.heard()
    assert world.rung == [WORK, subjects.worker(lease.worker)]
    assert not (await world.admin.cancel(str(running))).changed
    assert (await world.admin.get(str(sleeping))).cancel_reason == "enough"


async def test_terminate_tells_the_worker_the_waiting_and_the_parents(world: World) -> None:
    child = await world.dispatch("order")
    await world.sleeping(WakeConditions(children=(child,)))
    lease = await world.lease(child, "order")
    world.listen(WORK, subjects.worker(lease.worker), subjects.closed(child))

    await world.admin.terminate(str(child), reason="stuck")
    await world.heard()

    assert sorted(world.rung) == sorted(
        [WORK, subjects.worker(lease.worker), subjects.closed(child)]
    )
    detail = await world.admin.get(str(child))
    assert detail.state == "terminated"
    assert detail.error is not None
    assert "stuck" in detail.error
    with pytest.raises(WorkflowFinished):
        await world.admin.terminate(str(child))


async def test_wake_and_silence(world: World) -> None:
    workflow_id = await world.sleeping(PAID)
    text = str(workflow_id)
    world.listen(WORK)

    assert (await world.admin.silence(text)).changed
    assert not (await world.admin.silence(text)).changed
    assert (await world.admin.get(text)).state == "silenced"
    with pytest.raises(WorkflowBusy):
        await world.admin.wake(text)
    assert world.rung == []
    assert (await world.admin.unsilence(text)).changed
    await world.heard()
    assert world.rung == [WORK]
    assert not (await world.admin.unsilence(text)).changed
    assert not (await world.admin.wake(text)).changed, "it is due since the silence ended"


async def test_wake_runs_a_sleeper(world: World) -> None:
    workflow_id = await world.sleeping(PAID)
    world.listen(WORK)
    assert (await world.admin.wake(str(workflow_id))).changed
    await world.heard()
    assert world.rung == [WORK]
    assert (await world.lease(workflow_id)).epoch == 2


async def test_revive_by_id(world: World) -> None:
    workflow_id = await world.dead("boom")
    world.listen(WORK)

    tried = await world.admin.revive(ids=[str(workflow_id)], dry_run=True)
    await world.heard()
    assert [each.id for each in tried.workflows] == [str(workflow_id)]
    assert world.rung == []
    await world.admin.revive(ids=[str(workflow_id)])
    await world.heard()
    assert world.rung == [WORK]
    for dry_run in (True, False):
        with pytest.raises(WorkflowBusy):
            await world.admin.revive(ids=[str(workflow_id)], dry_run=dry_run)


async def test_a_revived_workflow_is_shown_as_it_is_now(world: World) -> None:
    workflow_id = await world.dead("boom")
    [by_id] = (await world.admin.revive(ids=[str(workflow_id)])).workflows
    assert (by_id.state, by_id.error) == ("sleeping", None)


async def test_revive_by_name_and_error_in_batches(world: World) -> None:
    slow = [await world.dead(f"too slow {number}") for number in range(120)]
    await world.dead("another thing")
    await world.dead("too slow", "order")

    tried = await world.admin.revive(name="fulfil", error="too slow", dry_run=True)
    assert {each.id for each in tried.workflows} == {str(each) for each in slow}
    assert tried.workflows[0].state == "dead"
    some = await world.admin.revive(name="fulfil", error="too slow", limit=110)
    assert (len(some.workflows), some.more) == (110, True)
    rest = await world.admin.revive(name="fulfil", error="too slow")
    assert (len(rest.workflows), rest.more) == (10, False)
    counts = (await world.admin.stats()).workflows
    assert counts["fulfil"]["dead"] == 1
    assert counts["order"]["dead"] == 1


async def test_a_business_key_that_is_taken_stops_a_revival(world: World) -> None:
    workflow_id = await world.dead("boom", unique="key")
    await world.dispatch(unique="key")
    with pytest.raises(UniqueKeyTaken):
        await world.admin.revive(ids=[str(workflow_id)])
    assert (await world.admin.revive(name="fulfil")).workflows == []


async def test_prune_in_batches_and_by_age(world: World) -> None:
    for _ in range(150):
        await world.complete()
    kept = await world.complete(prune=Prune.NONE)
    world.clock.advance(1)
    limit = world.clock.now()
    young = await world.complete()

    assert (await world.admin.prune(closed_before=limit, limit=120)).pruned == 120
    assert (await world.admin.prune(closed_before=limit)).pruned == 30
    assert (await world.admin.prune(closed_before=limit)).pruned == 0
    left = {each.id for each in (await world.admin.list()).workflows}
    assert left == {str(kept), str(young)}


async def test_stats_count_everything(world: World) -> None:
    await world.sleeping(PAID)
    await world.lease(await world.dispatch())
    await world.complete(name="order")
    workflow_id = await world.dispatch("order")
    await world.admin.signal(str(workflow_id), "note")

    stats = await world.admin.stats()

    assert stats.at == world.clock.now()
    assert stats.workflows["fulfil"] == {"sleeping": 1, "running": 1}
    assert stats.workflows["order"]["complete"] == 1
    assert stats.signals == {"note": 1}


@pytest.mark.parametrize(
    "method", ["get", "history", "signals", "cancel", "terminate", "wake", "silence", "unsilence"]
)
async def test_ids_must_be_ids_of_workflows(world: World, method: str) -> None:
    with pytest.raises(InvalidId):
        await getattr(world.admin, method)("nonsense")
    with pytest.raises(WorkflowNotFound):
        await getattr(world.admin, method)(str(Id.new()))
