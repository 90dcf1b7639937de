"""Joins: steps and closures side by side; places first, then all run, then the outcome."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    ActivityFailed,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.engine.errors import ConcurrentStep

go = Signal("go", str)
more = Signal("more", str)
calls: list[str] = []


@activity(attempts=1)
async def note(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


@activity(attempts=1)
async def refuse(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    raise ValueError(what)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


async def test_results_come_in_the_order_of_the_members(lab: Lab) -> None:
    @activity
    async def slow(ctx: ActivityContext, seconds: float) -> float:
        await lab.clock.sleep(seconds)
        return seconds

    @workflow
    async def work(ctx: WorkflowContext) -> tuple[float, str, list[float]]:
        async def closure(ctx: WorkflowContext) -> str:
            return await ctx.activity(note, "first") + await ctx.activity(note, "second")

        a, b = await ctx.join(ctx.activity(slow, 5.0), closure)
        many = await ctx.join_all([ctx.activity(slow, 3.0 - n) for n in range(3)])
        return a, b, many

    engine = await lab.engine(work)
    before = lab.clock.monotonic()
    assert await (await engine.dispatch(work)).result() == (5.0, "firstsecond", [3.0, 2.0, 1.0])
    assert lab.clock.monotonic() - before < 8.5 + lab.options.poll_interval


async def test_an_empty_join(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> tuple[tuple[Any, ...], list[Any]]:
        return await ctx.join(), await ctx.join_all([])

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == ((), [])


async def test_a_join_sleeps_until_any_member_can_go_on(lab: Lab) -> None:
    """The union of all wakes, here two signals, a child and the earliest deadline."""

    @workflow
    async def child(ctx: WorkflowContext) -> str:
        return await ctx.listen(go)

    @workflow
    async def work(ctx: WorkflowContext) -> Any:
        return await ctx.join(
            ctx.listen(go), ctx.listen(more), ctx.call(child), ctx.sleep(300), ctx.sleep(100)
        )

    engine = await lab.engine(work, child)
    start = lab.clock.now()
    handle = await engine.dispatch(work)
    status = (await lab.asleep(handle)).status
    assert set(status.signals) == {"go", "more"}
    assert len(status.children) == 1
    assert status.deadline is not None
    assert abs(status.deadline - start - 100_000) < 5_000
    await lab.pause(120)
    status = (await lab.asleep(handle)).status
    assert status.deadline is not None
    assert abs(status.deadline - start - 300_000) < 5_000
    await handle.signal(more("m"))
    await engine.signal(status.children[0], go("child"))
    await handle.signal(go("g"))
    assert await handle.result() == ["g", "m", "child", None, None]


async def test_a_retry_in_a_join_does_not_hide_other_waits(lab: Lab) -> None:
    """A member that is to be retried later, next to a listen and a sleep."""

    @activity(attempts=2, initial=50, jitter=0)
    async def flaky(ctx: ActivityContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    @workflow
    async def work(ctx: WorkflowContext) -> tuple[int, str, None]:
        return await ctx.join(ctx.activity(flaky), ctx.listen(go), ctx.sleep(20))

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("now"))
    assert await handle.result() == (2, "now", None)


async def test_no_member_is_stopped_by_the_error_of_another(lab: Lab) -> None:
    @activity
    async def slow(ctx: ActivityContext) -> None:
        await lab.clock.sleep(10)
        calls.append("slow")

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.join(ctx.activity(refuse, "at once"), ctx.activity(slow))

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match="at once"):
        await (await engine.dispatch(work)).result()
    assert calls == ["at once", "slow"]


async def test_the_first_error_in_order_is_raised_not_the_first_in_time(lab: Lab) -> None:
    @activity(attempts=1)
    async def late(ctx: ActivityContext) -> None:
        await lab.clock.sleep(5)
        raise ValueError("late")

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.join(ctx.activity(late), ctx.activity(refuse, "early"))
        except ActivityFailed as error:
            return error.failure.message
        return ""

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "late"


async def test_an_error_beats_a_wait(lab: Lab) -> None:
    """A doomed workflow dies now, it is not kept waiting by a member that sleeps."""

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.join(ctx.sleep(10_000), ctx.activity(refuse, "fatal"), ctx.listen(go))

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match="fatal"):
        await (await engine.dispatch(work)).result(100)


async def test_after_a_caught_error_unfinished_members_are_left_behind(lab: Lab) -> None:
    """And the replay of such a join does not run them on, nor change what was raised."""
    seen: list[str] = []

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def waits(ctx: WorkflowContext) -> None:
            await ctx.activity(note, "before")
            await ctx.listen(go)
            await ctx.activity(note, "never")

        try:
            await ctx.join(waits, ctx.activity(refuse, "fatal"), ctx.sleep(30))
        except ActivityFailed as error:
            seen.append(error.failure.message)
        await ctx.activity(note, "compensated")
        return await ctx.listen(more)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("for the abandoned listen"))
    await lab.pause(100)
    await lab.restart(work)
    await lab.again(handle).signal(more("end"))
    assert await lab.again(handle).result() == "end"
    assert sorted(calls) == ["before", "compensated", "fatal"]
    assert set(seen) == {"fatal"}


async def test_members_finished_before_an_eviction_are_not_run_again(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> tuple[str, str, str]:
        return await ctx.join(ctx.activity(note, "a"), ctx.listen(go), ctx.activity(note, "b"))

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await lab.restart(work)
    await lab.again(handle).signal(go("g"))
    assert await lab.again(handle).result() == ("a", "g", "b")
    assert calls == ["a", "b"]


async def test_joins_nest(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> Any:
        async def inner(ctx: WorkflowContext) -> tuple[str, str]:
            return await ctx.join(ctx.activity(note, "x"), ctx.listen(go))

        async def chain(ctx: WorkflowContext) -> str:
            await ctx.sleep(40)
            return await ctx.activity(note, "y")

        return await ctx.join(inner, chain, ctx.activity(note, "z"))

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("g"))
    assert await handle.result() == [["x", "g"], "y", "z"]
    assert sorted(calls) == ["x", "y", "z"]


@pytest.mark.parametrize("closure", [False, True], ids=["step", "closure"])
async def test_activities_in_a_join_have_no_state(lab: Lab, closure: bool) -> None:
    @activity(attempts=1)
    async def stateful(ctx: ActivityContext) -> None:
        ctx.state(list)

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def inside(ctx: WorkflowContext) -> None:
            await ctx.activity(stateful)

        try:
            await ctx.join(inside if closure else ctx.activity(stateful), ctx.sleep(0))
        except ActivityFailed as error:
            await ctx.activity(stateful)
            return error.failure.code
        return ""

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "engine.state_in_join"


async def test_a_closure_outside_of_a_join_may_use_the_state(lab: Lab) -> None:
    @activity(attempts=1)
    async def stateful(ctx: ActivityContext) -> int:
        ctx.state(list).append(1)
        return len(ctx.state(list))

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        async def inside(ctx: WorkflowContext) -> int:
            return await ctx.activity(stateful)

        return await ctx.closure(inside)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == 1


# -- side by side without a join


async def test_gather_on_one_branch_is_refused(lab: Lab) -> None:
    """Its order would depend on timing, so a replay could not find its steps again."""

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.sleep(1), ctx.sleep(1))

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match=r"ctx\.join") as caught:
        await (await engine.dispatch(work)).result()
    assert caught.value.failure.code == "engine.concurrent_step"


async def test_a_closure_must_use_its_own_context(lab: Lab) -> None:
    @workflow
    async def work(outer: WorkflowContext) -> str:
        async def wrong(ctx: WorkflowContext) -> None:
            await outer.sleep(1)

        try:
            await outer.join(wrong, outer.sleep(1))
        except ConcurrentStep as error:
            return error.code
        return ""

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "engine.concurrent_step"


async def test_every_branch_of_a_join_keeps_its_own_time(lab: Lab) -> None:
    times: dict[str, list[datetime]] = {}

    def told(name: str, ctx: WorkflowContext) -> None:
        times.setdefault(name, []).append(ctx.now())

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        async def quick(ctx: WorkflowContext) -> None:
            told("quick begins", ctx)
            await ctx.sleep(60)
            told("quick goes on", ctx)
            await ctx.sleep(60)

        async def slow(ctx: WorkflowContext) -> None:
            told("slow begins", ctx)
            await ctx.sleep(240)
            told("slow ends", ctx)

        await ctx.join(quick, slow)
        told("joined", ctx)
        await ctx.sleep(60)

    engine = await lab.engine(work)
    await (await engine.dispatch(work)).result()

    assert all(len(set(each)) == 1 for each in times.values())
    assert len(times["slow begins"]) > 2, "it was replayed after the quick one had gone on"
    assert times["slow begins"][0] < times["quick goes on"][0] < times["joined"][0]
