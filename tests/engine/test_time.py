"""Time, randomness and ids inside workflows: real at the first run, the same ever after."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import ActivityContext, Signal, WorkflowContext, activity, workflow
from perdure.engine.errors import InvalidOption

go = Signal("go", str)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0, 10.0, 3600.0, 10_000_000.0])
async def test_a_sleep_takes_its_time(lab: Lab, seconds: float) -> None:
    """Short ones wait in memory, long ones leave it; nobody wakes early."""

    @workflow
    async def nap(ctx: WorkflowContext) -> None:
        await ctx.sleep(seconds)

    engine = await lab.engine(nap)
    before = lab.clock.now()
    handle = await engine.dispatch(nap)
    if seconds > 1000:
        # The clock stops at every poll on the way, so the long nap is taken in one jump.
        await lab.asleep(handle)
        lab.clock.jump(round(seconds * 1000))  # type: ignore[attr-defined]
    await handle.result()
    assert seconds * 1000 <= lab.clock.now() - before <= seconds * 1000 + 6000


async def test_sleep_until_an_instant_that_has_passed_is_no_wait(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> None:
        await ctx.sleep_until(datetime(2001, 1, 1, tzinfo=UTC))
        await ctx.sleep_until(ctx.now() - timedelta(days=1))
        await ctx.sleep_until(0)

    engine = await lab.engine(nap)
    before = lab.clock.monotonic()
    await (await engine.dispatch(nap)).result()
    assert lab.clock.monotonic() - before <= lab.options.poll_interval


async def test_sleep_until_an_instant(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext, until: datetime) -> datetime:
        await ctx.sleep_until(until)
        return ctx.now()

    engine = await lab.engine(nap)
    until = datetime.fromtimestamp(lab.clock.now() / 1000 + 500, UTC)
    assert await (await engine.dispatch(nap, until)).result() == until
    assert lab.clock.now() >= until.timestamp() * 1000


async def test_senseless_times_are_refused(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> int:
        refused = 0
        calls: list[Callable[[], object]] = [
            lambda: ctx.sleep(-1),
            lambda: ctx.sleep(float("nan")),
            lambda: ctx.sleep(float("inf")),
            lambda: ctx.sleep_until(datetime(2030, 1, 1)),  # noqa: DTZ001
            lambda: ctx.sleep_until(-5),
        ]
        for call in calls:
            try:
                call()
            except InvalidOption:
                refused += 1
        return refused

    engine = await lab.engine(nap)
    assert await (await engine.dispatch(nap)).result() == 5


async def test_the_deadline_of_a_sleep_survives_restarts(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> None:
        await ctx.sleep(100)

    engine = await lab.engine(nap)
    before = lab.clock.monotonic()
    handle = await engine.dispatch(nap)
    for _ in range(3):
        await lab.pause(25)
        await lab.restart(nap)
    await lab.again(handle).result()
    assert 100 <= lab.clock.monotonic() - before <= 100 + 2 * lab.options.poll_interval


async def test_a_sleeping_workflow_uses_no_memory(lab: Lab) -> None:
    """How long it stays has nothing to do with the poll interval."""

    @workflow
    async def nap(ctx: WorkflowContext) -> None:
        await ctx.sleep(lab.options.poll_interval - 1)

    engine = await lab.engine(nap)
    handles = [await engine.dispatch(nap) for _ in range(20)]
    await lab.asleep(handles[-1])
    assert engine.worker is not None
    assert engine.worker.running == 0
    for handle in handles:
        await handle.result()


async def test_now_random_and_uuid_are_the_same_in_every_run(lab: Lab) -> None:
    runs: list[list[Any]] = []

    @activity
    async def slow(ctx: ActivityContext) -> None:
        await lab.clock.sleep(2)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        seen: list[Any] = []
        runs.append(seen)

        async def closure(ctx: WorkflowContext) -> None:
            seen.append((ctx.random().random(), ctx.uuid()))
            await ctx.sleep(7)
            seen.append((ctx.random().random(), ctx.now()))

        seen.append((ctx.now(), ctx.uuid(), ctx.random().random()))
        await ctx.activity(slow)
        seen.append((ctx.now(), ctx.random().randint(0, 10**9)))
        await ctx.sleep(30)
        seen.append(ctx.now())
        await ctx.listen(go, timeout=40)
        seen.append(ctx.now())
        await ctx.closure(closure)
        seen.append((ctx.now(), ctx.uuid()))
        await ctx.listen(go)
        seen.append(ctx.now())
        await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.pause(100)
    await handle.signal(go("1"))
    await lab.pause(10)
    await lab.restart(work)
    await lab.again(handle).signal(go("2"))
    await lab.again(handle).result()
    longest = max(runs, key=len)
    assert len(longest) == 8
    assert len(runs) >= 4
    for run in runs:
        assert run == longest[: len(run)]
    times = [longest[0][0], longest[1][0], longest[2], longest[3], longest[6][0], longest[7]]
    assert times == sorted(times)


async def test_now_moves_with_the_steps(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> list[float]:
        start = ctx.now()
        times = []
        for seconds in (10, 20):
            await ctx.sleep(seconds)
            times.append((ctx.now() - start).total_seconds())
        return times

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == [10, 30]


async def test_two_workflows_have_different_luck(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> tuple[float, str]:
        return ctx.random().random(), str(ctx.uuid())

    engine = await lab.engine(work)
    results = [await (await engine.dispatch(work)).result() for _ in range(5)]
    assert len({random for random, _ in results}) == len({uuid for _, uuid in results}) == 5
