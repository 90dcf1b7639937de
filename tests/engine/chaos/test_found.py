"""What the chaos has found, made small."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from perdure import (
    ActivityContext,
    ActivityFailed,
    Break,
    Cancelled,
    EngineOptions,
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.testing.simulation import Machine, Simulation, simulate

GO = Signal("go", int)


def on(machine: Machine, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    return machine.process.call(work)


@workflow
async def two_listeners(ctx: WorkflowContext) -> list[int]:
    await ctx.sleep(60)
    return sorted(await ctx.join(ctx.listen(GO), ctx.listen(GO)))


def test_two_members_of_a_join_never_receive_the_same_signal() -> None:
    """Both looked at the queue before one of them took the signal (seed 34)."""

    async def main(simulation: Simulation) -> list[int]:
        machine = simulation.machine("m", [two_listeners])
        await machine.start()
        handle = await on(machine, machine.engine.dispatch(two_listeners))
        for number in (1, 2):
            await on(machine, handle.signal(GO(number)))
        result: list[int] = await on(machine, handle.result())
        return result

    assert simulate(1, main) == [1, 2]


@activity(timeout=None)
async def beating(ctx: ActivityContext) -> None:
    for beat in range(10):
        ctx.heartbeat(beat)
        await asyncio.sleep(2)


@workflow
async def beats(ctx: WorkflowContext) -> None:
    await ctx.activity(beating)


def test_a_heartbeat_that_comes_too_late_makes_no_noise() -> None:
    """Its error was told to nobody (seed 3)."""

    async def main(simulation: Simulation) -> list[str]:
        options = EngineOptions(ping_interval=2, lost_after=6, shed_load=False)
        machines = [simulation.machine(f"m{n}", [beats], options=options) for n in range(2)]
        for machine in machines:
            await machine.start()
        handle = await on(machines[0], machines[0].engine.dispatch(beats))
        await simulation.sleep(3)
        for machine in machines:
            if machine.engine.worker is not None and machine.engine.worker.running:
                machine.process.pause()
                await simulation.sleep(10)
                machine.process.resume()
        other = machines[1].engine.handle(beats, handle.id)
        await on(machines[1], other.result())
        for machine in machines:
            await machine.shutdown()
        return simulation.wrong

    assert simulate(1, main) == []


@activity(attempts=1)
async def failing(ctx: ActivityContext) -> None:
    raise ValueError("no")


seen: list[datetime] = []


async def long_sleep(ctx: WorkflowContext) -> None:
    await ctx.sleep(3)
    await ctx.listen(GO)


async def only_sleep(ctx: WorkflowContext) -> None:
    await ctx.sleep(3)


@workflow
async def broken_join(ctx: WorkflowContext) -> None:
    with suppress(ActivityFailed):
        await ctx.join(ctx.activity(failing), ctx.sleep(3), long_sleep, only_sleep)
    seen.append(ctx.now())
    await ctx.sleep(60)


def test_a_sleep_that_a_join_left_behind_does_not_move_the_time() -> None:
    """A replay saw another `ctx.now()` once the sleep was over (seeds 544 and 1577)."""

    async def main(simulation: Simulation) -> None:
        machine = simulation.machine("m", [broken_join])
        await machine.start()
        handle = await on(machine, machine.engine.dispatch(broken_join))
        await on(machine, handle.result())

    seen.clear()
    simulate(1, main)
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def short_sleep(ctx: WorkflowContext) -> None:
    await ctx.sleep(3)


async def sleep_once(ctx: WorkflowContext, state: dict[str, int]) -> Break[None] | None:
    if state["turn"] == 2:
        await ctx.sleep(1000)
        return Break(None)
    if state["turn"] == 0:
        try:
            await ctx.sleep(3)
        except Cancelled:
            raise AssertionError("it was over") from None
    state["turn"] += 1
    return None


@activity
async def tidying(ctx: ActivityContext) -> None:
    return


@workflow
async def sleeps_in_joins(ctx: WorkflowContext) -> None:
    try:
        await ctx.join(short_sleep, ctx.sleep(3))
        await ctx.sleep(1000)
    except Cancelled:
        await ctx.activity(tidying)


@workflow
async def sleeps_in_closures(ctx: WorkflowContext) -> None:
    try:
        await ctx.closure(lambda outer: outer.closure(short_sleep))
        await ctx.sleep(1000)
    except Cancelled:
        await ctx.activity(tidying)


@workflow
async def sleeps_in_loops(ctx: WorkflowContext) -> None:
    await ctx.loop(sleep_once, {"turn": 0})


@pytest.mark.parametrize("sleeper", [sleeps_in_joins, sleeps_in_closures, sleeps_in_loops])
def test_a_sleep_that_is_over_stays_over_when_a_clock_is_behind(
    sleeper: Workflow[None, None],
) -> None:
    """A cancel was recorded inside a sleep of long ago, and nobody could replay that (seed 794)."""

    async def main(simulation: Simulation) -> None:
        first, second = (simulation.machine(f"m{n}", [sleeper]) for n in range(2))
        await first.start()
        handle = await on(first, first.engine.dispatch(sleeper))
        await simulation.sleep(100)
        first.process.kill()
        second.clock.jump(-1000_000)
        await second.start()
        again = second.engine.handle(sleeper, handle.id)
        await on(second, again.cancel("enough"))
        with pytest.raises(WorkflowCancelled):
            await on(second, again.result())

    simulate(1, main)


async def broken_at_its_end(ctx: WorkflowContext) -> None:
    with suppress(ActivityFailed):
        await ctx.join(ctx.activity(failing), ctx.listen(GO, timeout=3600))


@workflow
async def listens_after(ctx: WorkflowContext) -> int:
    await ctx.closure(broken_at_its_end)
    await ctx.sleep(60)
    return await ctx.listen(GO)


def test_a_listener_left_behind_at_the_end_of_a_closure_takes_no_signal() -> None:
    """A replay let it run on, and it took what was meant for later code (seed 17)."""

    async def main(simulation: Simulation) -> int:
        machine = simulation.machine("m", [listens_after])
        await machine.start()
        handle = await on(machine, machine.engine.dispatch(listens_after))
        await simulation.sleep(30)
        await on(machine, handle.signal(GO(1)))
        result: int = await on(machine, handle.result(timeout=1000))
        return result

    assert simulate(1, main) == 1


@workflow
async def listens_at_once(ctx: WorkflowContext) -> int:
    with suppress(ActivityFailed):
        await ctx.join(ctx.activity(failing), ctx.listen(GO))
    return await ctx.listen(GO)


def test_a_listener_left_behind_takes_no_signal_from_the_next_one() -> None:
    async def main(simulation: Simulation) -> int:
        machine = simulation.machine("m", [listens_at_once])
        await machine.start()
        handle = await on(machine, machine.engine.dispatch(listens_at_once))
        await simulation.sleep(30)
        await on(machine, handle.signal(GO(1)))
        result: int = await on(machine, handle.result(timeout=1000))
        return result

    assert simulate(1, main) == 1


mended: list[bool] = []


@activity(attempts=1)
async def mendable(ctx: ActivityContext) -> str:
    if not mended:
        raise ValueError("not yet")
    return "done"


@workflow
async def dies_of_a_join(ctx: WorkflowContext) -> tuple[str, int]:
    return await ctx.join(ctx.activity(mendable), ctx.listen(GO))


def test_a_workflow_that_died_of_a_join_can_be_revived() -> None:
    """The mark of the end of the join goes when the failure is undone."""

    async def main(simulation: Simulation) -> tuple[str, int]:
        machine = simulation.machine("m", [dies_of_a_join])
        await machine.start()
        engine = machine.engine
        handle = await on(machine, engine.dispatch(dies_of_a_join))
        with pytest.raises(WorkflowFailed):
            await on(machine, handle.result())
        mended.append(True)
        await on(machine, engine.admin.revive(ids=[str(handle.id)]))
        await on(machine, handle.signal(GO(1)))
        result: tuple[str, int] = await on(machine, handle.result(timeout=1000))
        return result

    mended.clear()
    assert simulate(1, main) == ("done", 1)


@workflow(name="grows")
async def before_it_grew(ctx: WorkflowContext) -> None:
    try:
        await ctx.activity(tidying)
        await ctx.sleep(1000)
    except Cancelled:
        await ctx.sleep(1)


async def two_steps(ctx: WorkflowContext) -> None:
    await ctx.activity(tidying)
    await ctx.sleep(5)


@workflow(name="grows")
async def after_it_grew(ctx: WorkflowContext) -> None:
    try:
        await ctx.v(2).activity(tidying)
        await ctx.v(2).sleep(5)
        await ctx.v(2).closure(two_steps)
        await ctx.activity(tidying)
        await ctx.sleep(1000)
    except Cancelled:
        await ctx.sleep(1)


def test_a_cancel_does_not_reach_a_step_that_was_inserted_into_the_past() -> None:
    """It was recorded there, and the steps behind it could not be replayed (seed 1768)."""

    async def main(simulation: Simulation) -> None:
        first = simulation.machine("m0", [before_it_grew])
        second = simulation.machine("m1", [after_it_grew])
        await first.start()
        handle = await on(first, first.engine.dispatch(before_it_grew))
        await simulation.sleep(100)
        first.process.kill()
        await second.start()
        again = second.engine.handle(after_it_grew, handle.id)
        await on(second, again.cancel("enough"))
        with pytest.raises(WorkflowCancelled):
            await on(second, again.result())

    simulate(1, main)
