"""Signals: durable, in commit order, received once. And messages, which are none of that."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.engine.lab import Lab

from perdure import (
    Handle,
    Id,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    WorkflowFinished,
    WorkflowNotFound,
    message,
    signal,
    workflow,
)
from perdure.engine.errors import InvalidDefinition, InvalidOption


@signal
@dataclass
class Order:
    number: int


@signal(name="note")
@dataclass
class Remark:
    text: str


tick = Signal("tick", int)
go = Signal("go", str)


@message
@dataclass
class News:
    text: str


@workflow
async def receiver(ctx: WorkflowContext) -> Order:
    return await ctx.listen(Order)


# -- listening


async def test_signals_wait_for_their_listener(lab: Lab) -> None:
    """They are queued whether or not anyone listens, and also before the first run."""
    engine = await lab.engine(worker=False)
    handle = await engine.dispatch(receiver)
    await handle.signal(Order(1))
    await lab.restart(receiver)
    assert await lab.again(handle).result() == Order(1)


async def test_each_signal_is_received_once_and_in_order(lab: Lab) -> None:
    @workflow
    async def three(ctx: WorkflowContext) -> list[int]:
        return [await ctx.listen(tick) for _ in range(3)]

    engine = await lab.engine(three)
    handle = await engine.dispatch(three)
    for value in (3, 1, 2):
        await handle.signal(tick(value))
    assert await handle.result() == [3, 1, 2]


async def test_one_listen_for_several_types_is_ordered_by_commit_across_them(lab: Lab) -> None:
    """Not by type, name or the publisher's clock."""

    @workflow
    async def mixed(ctx: WorkflowContext) -> list[str]:
        await ctx.listen(go)
        return [str(await ctx.listen(Order, Remark, tick)) for _ in range(5)]

    engine = await lab.engine(mixed)
    handle = await engine.dispatch(mixed)
    sent = [tick(1), Remark("a"), Order(2), Remark("b"), tick(3)]
    for body in sent:
        await handle.signal(body)
    await handle.signal(go(""))
    expected = [Remark("a"), Order(2), Remark("b")]
    assert await handle.result() == ["1", *map(str, expected), "3"]


async def test_order_of_commit_beats_a_clock_that_goes_back(lab: Lab) -> None:
    """Signals sent within one millisecond, or after the wall clock was set back."""

    @workflow
    async def three(ctx: WorkflowContext) -> list[int]:
        await ctx.listen(go)
        return await ctx.listen_many(tick, n=3)

    engine = await lab.engine(three)
    handle = await engine.dispatch(three)
    await handle.signal(tick(1))
    lab.clock.jump(-5000)  # type: ignore[attr-defined]
    await handle.signal(tick(2))
    await handle.signal(tick(3))
    await handle.signal(go(""))
    assert await handle.result() == [1, 2, 3]


async def test_listen_many_takes_what_is_there_up_to_its_limit(lab: Lab) -> None:
    @workflow
    async def batch(ctx: WorkflowContext) -> list[list[int]]:
        await ctx.listen(go)
        return [await ctx.listen_many(tick, n=3), await ctx.listen_many(tick, n=3)]

    engine = await lab.engine(batch)
    handle = await engine.dispatch(batch)
    for value in range(5):
        await handle.signal(tick(value))
    await handle.signal(go(""))
    assert await handle.result() == [[0, 1, 2], [3, 4]]


async def test_listen_many_is_never_empty_without_a_bound(lab: Lab) -> None:
    @workflow
    async def batch(ctx: WorkflowContext) -> list[int]:
        return await ctx.listen_many(tick, n=3)

    engine = await lab.engine(batch)
    handle = await engine.dispatch(batch)
    await lab.asleep(handle)
    await handle.signal(tick(1))
    assert await handle.result() == [1]


async def test_a_bounded_listen_ends_at_its_time(lab: Lab) -> None:
    @workflow
    async def bounded(ctx: WorkflowContext) -> tuple[Order | None, list[int], float]:
        before = ctx.now()
        one = await ctx.listen(Order, timeout=timedelta(seconds=30))
        many = await ctx.listen_many(tick, n=3, until=ctx.now() + timedelta(seconds=70))
        return one, many, (ctx.now() - before).total_seconds()

    engine = await lab.engine(bounded)
    handle = await engine.dispatch(bounded)
    assert await handle.result() == (None, [], 100)


@pytest.mark.parametrize("pause", [0.0, 0.5, 20.0])
async def test_a_bounded_listen_receives_what_comes_in_time(lab: Lab, pause: float) -> None:
    """Before the listen, while it waits in memory, and while it sleeps."""

    @workflow
    async def bounded(ctx: WorkflowContext) -> Order | None:
        return await ctx.listen(Order, timeout=30)

    engine = await lab.engine(bounded)
    handle = await engine.dispatch(bounded)
    if pause:
        await lab.pause(pause)
    await handle.signal(Order(1))
    assert await handle.result() == Order(1)


async def test_a_bound_in_the_past_takes_what_is_there_and_never_waits(lab: Lab) -> None:
    @workflow
    async def poll(ctx: WorkflowContext) -> list[Order | None]:
        await ctx.listen(go)
        return [await ctx.listen(Order, timeout=0), await ctx.listen(Order, until=1)]

    engine = await lab.engine(poll)
    handle = await engine.dispatch(poll)
    await handle.signal(Order(1))
    await handle.signal(go(""))
    assert await handle.result() == [Order(1), None]


async def test_the_deadline_of_a_listen_is_fixed_at_its_first_run(lab: Lab) -> None:
    @workflow
    async def bounded(ctx: WorkflowContext) -> Order | None:
        return await ctx.listen(Order, timeout=100)

    engine = await lab.engine(bounded)
    handle = await engine.dispatch(bounded)
    start = lab.clock.now()
    await lab.asleep(handle)
    await lab.pause(60)
    await lab.restart(bounded)
    assert await lab.again(handle).result() is None
    assert 100_000 <= lab.clock.now() - start < 100_000 + 1000 * (lab.options.poll_interval + 1)


async def test_a_signal_after_the_time_out_stays_for_the_next_listen(lab: Lab) -> None:
    """A wait that ran out never has a signal on the side; replay tells the same story."""
    seen: list[object] = []

    @workflow
    async def twice(ctx: WorkflowContext) -> Order:
        seen.append(await ctx.listen(Order, timeout=10))
        return await ctx.listen(Order)

    engine = await lab.engine(twice)
    handle = await engine.dispatch(twice)
    await lab.until(lambda: bool(seen))
    await lab.asleep(handle)
    await handle.signal(Order(2))
    assert await handle.result() == Order(2)
    assert set(map(str, seen)) == {"None"}


async def test_a_listen_that_makes_no_sense_is_refused(lab: Lab) -> None:
    refused: list[str] = []

    class Unmarked:
        pass

    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        for call in (
            ctx.listen,
            lambda: ctx.listen_many(tick, n=0),
            lambda: ctx.listen(tick, timeout=1, until=1),
            lambda: ctx.listen(tick, timeout=-1),
            lambda: ctx.listen(Unmarked),
        ):
            try:
                call()
            except (InvalidOption, InvalidDefinition) as error:
                refused.append(error.code)

    engine = await lab.engine(wrong)
    await (await engine.dispatch(wrong)).result()
    assert refused == ["engine.invalid_option"] * 4 + ["engine.invalid_definition"]


# -- sending


async def test_workflows_signal_each_other_by_id_and_by_tags(lab: Lab) -> None:
    @workflow
    async def sender(ctx: WorkflowContext, target: Id) -> tuple[bool, bool]:
        by_id = await ctx.signal(target, tick(1))
        by_tags = await ctx.signal_tagged("pair", {"color": "red"}, tick(2))
        return by_id, by_tags

    @workflow
    async def pair(ctx: WorkflowContext) -> list[int]:
        return [await ctx.listen(tick), await ctx.listen(tick)]

    engine = await lab.engine(sender, pair)
    target = await engine.dispatch(pair, tags={"color": "red", "size": 1})
    assert await (await engine.dispatch(sender, target.id)).result() == (True, True)
    assert await target.result() == [1, 2]


async def test_a_missing_target_may_be_allowed_and_is_remembered(lab: Lab) -> None:
    """What was missing stays missing on replay, although there is a target by then."""
    seen: list[bool] = []

    @workflow
    async def sender(ctx: WorkflowContext) -> bool:
        seen.append(await ctx.signal_tagged(receiver, {"k": 1}, Order(1), missing_ok=True))
        await ctx.listen(go)
        return seen[-1]

    engine = await lab.engine(sender, receiver)
    handle = await engine.dispatch(sender)
    await lab.asleep(handle)
    target = await engine.dispatch(receiver, tags={"k": 1})
    await handle.signal(go(""))
    assert await handle.result() is False
    assert set(seen) == {False}
    await lab.asleep(target)


async def test_a_missing_target_is_a_typed_error_for_the_code(lab: Lab) -> None:
    @workflow
    async def sender(ctx: WorkflowContext) -> list[str]:
        errors = []
        for step in (
            ctx.signal_tagged(receiver, {"k": 1}, Order(1)),
            ctx.signal(Id.new(), Order(1)),
        ):
            try:
                await step
            except WorkflowNotFound as error:
                errors.append(error.code)
        return errors

    engine = await lab.engine(sender)
    assert await (await engine.dispatch(sender)).result() == ["engine.workflow_not_found"] * 2


async def test_a_caught_refusal_is_the_same_on_replay(lab: Lab) -> None:
    """The target of a refused signal may exist on the next run: the code must not see that."""
    seen: list[list[str]] = []

    @workflow
    async def sender(ctx: WorkflowContext) -> str:
        run: list[str] = []
        seen.append(run)
        try:
            await ctx.signal_tagged(receiver, {"k": 1}, Order(1))
            run.append("sent")
        except WorkflowNotFound:
            run.append("missing")
        return await ctx.listen(go)

    engine = await lab.engine(sender, receiver)
    handle = await engine.dispatch(sender)
    await lab.asleep(handle)
    await engine.dispatch(receiver, tags={"k": 1})
    await handle.signal(go("on"))
    assert await handle.result() == "on"
    assert {tuple(run) for run in seen} == {("missing",)}


async def test_a_finished_workflow_refuses_signals(lab: Lab) -> None:
    """No signal disappears silently."""

    @workflow
    async def quick(ctx: WorkflowContext) -> None: ...

    @workflow
    async def dies(ctx: WorkflowContext) -> None:
        raise ValueError

    @workflow
    async def sender(ctx: WorkflowContext, target: Id) -> str:
        try:
            await ctx.signal(target, Order(1))
        except WorkflowFinished as error:
            return error.phase
        return "sent"

    engine = await lab.engine(quick, dies, sender)
    done: Handle[None] = await engine.dispatch(quick)
    await done.result()
    dead = await engine.dispatch(dies)
    with pytest.raises(WorkflowFailed):
        await dead.result()
    for handle, phase in ((done, "complete"), (dead, "dead")):
        with pytest.raises(WorkflowFinished, match=phase):
            await handle.signal(Order(1))
        assert await (await engine.dispatch(sender, handle.id)).result() == phase
    with pytest.raises(WorkflowNotFound):
        await engine.signal(Id.new(), Order(1))


async def test_signals_a_finished_workflow_did_not_read_are_dropped(lab: Lab) -> None:
    """They and their count are gone when it ends."""
    engine = await lab.engine(receiver)
    handle = await engine.dispatch(receiver)
    await lab.asleep(handle)
    for number in range(3):
        await handle.signal(Remark(str(number)))
    assert len(await engine.admin.signals(str(handle.id))) == 3
    await handle.signal(Order(1))
    await handle.result()
    assert await engine.admin.signals(str(handle.id)) == []
    assert not (await engine.admin.stats()).signals.get("note")


async def test_a_signal_that_nobody_waits_for_does_not_wake(lab: Lab) -> None:
    engine = await lab.engine(receiver)
    handle = await engine.dispatch(receiver)
    before = await lab.asleep(handle)
    await handle.signal(Remark("not you"))
    await lab.pause(20)
    after = await lab.asleep(handle)
    assert after.status.epoch == before.status.epoch


# -- messages


@pytest.mark.parametrize("lab", [False], ids=["bus"], indirect=True)
async def test_messages_reach_those_who_listen_to_their_topic_now(lab: Lab) -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await ctx.message(News("all"))
        await ctx.message(News("sport"), topic="sport")
        await ctx.message(News("sport again"), topic="sport")

    engine = await lab.engine(speaker)
    with engine.subscribe(News) as plain, engine.subscribe(News, "sport") as sport:
        await (await engine.dispatch(speaker)).result()
        assert await anext(plain) == News("all")
        assert [await anext(sport), await anext(sport)] == [News("sport"), News("sport again")]
    engine.message(News("from outside"))
    sent = {
        sender: engine.metrics.registry.get_sample_value(
            "perdure_message_published_total", {"workflow_name": sender, "message_name": "news"}
        )
        for sender in ("speaker", "")
    }
    assert sent == {"speaker": 3, "": 1}


@pytest.mark.parametrize("lab", [False], ids=["bus"], indirect=True)
async def test_a_message_is_not_sent_again_on_replay(lab: Lab) -> None:
    @workflow
    async def speaker(ctx: WorkflowContext) -> None:
        await ctx.message(News("once"))
        await ctx.sleep(100)
        await ctx.message(News("then"))

    engine = await lab.engine(speaker)
    with engine.subscribe(News) as heard:
        await (await engine.dispatch(speaker)).result()
        assert [await anext(heard), await anext(heard)] == [News("once"), News("then")]
