"""Loops: state that is kept, commits, compaction, nesting, and replay from the last commit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Break,
    Continue,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.engine.errors import InvalidOption

go = Signal("go", str)
add = Signal("add", int)
calls: list[int] = []


@activity
async def note(ctx: ActivityContext, n: int) -> int:
    calls.append(n)
    return n


@dataclass
class Sums:
    total: int = 0
    seen: list[int] = field(default_factory=list)


async def test_state_changed_in_place_is_kept_and_typed(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> Sums:
        async def body(ctx: WorkflowContext, sums: Sums) -> Break[Sums] | None:
            assert isinstance(sums, Sums)
            value = await ctx.listen(add)
            sums.total += value
            sums.seen.append(value)
            return Break(sums) if value == 0 else None

        return await ctx.loop(body, Sums(), commit_every=2)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    for value in (5, 6, 7):
        await handle.signal(add(value))
    await lab.asleep(handle)
    await lab.restart(work)
    await lab.again(handle).signal(add(0))
    result = await lab.again(handle).result()
    assert result == Sums(18, [5, 6, 7, 0])


async def test_continue_replaces_the_state(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> int:
        async def body(ctx: WorkflowContext, n: int) -> Break[int] | Continue[int]:
            return Break(n) if n > 100 else Continue(n * 2)

        return await ctx.loop(body, 1)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == 128


async def test_a_loop_without_state(lab: Lab) -> None:
    calls.clear()

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def body(ctx: WorkflowContext, nothing: None) -> Break[str] | None:
            await ctx.activity(note, 1)
            return Break("enough") if ctx.random().random() < 0.3 else None

        return await ctx.loop(body)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "enough"
    assert calls


async def test_randomness_differs_between_iterations(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> list[float]:
        async def body(ctx: WorkflowContext, seen: list[float]) -> Break[list[float]] | None:
            seen.append(ctx.random().random())
            return Break(seen) if len(seen) == 5 else None

        return await ctx.loop(body, list[float]())

    engine = await lab.engine(work)
    assert len(set(await (await engine.dispatch(work)).result())) == 5


@pytest.mark.parametrize("commit_every", [1, 3, 20])
async def test_finished_iterations_are_not_run_again(lab: Lab, commit_every: int) -> None:
    """Replay begins at the last commit and replays the iterations behind it from history."""
    calls.clear()
    entered: list[int] = []

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        async def body(ctx: WorkflowContext, at: list[int]) -> Break[int] | None:
            entered.append(at[0])
            await ctx.activity(note, at[0])
            at[0] += 1
            if at[0] == 8:
                return Break(await ctx.listen(add))
            return None

        return await ctx.loop(body, [0], commit_every=commit_every)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    entered.clear()
    await lab.restart(work)
    await lab.again(handle).signal(add(9))
    assert await lab.again(handle).result() == 9
    assert calls == list(range(8))
    assert min(entered) == 7 // commit_every * commit_every


async def test_history_stays_small_however_long_a_loop_runs(lab: Lab) -> None:
    """Finished iterations are forgotten by replay, and the newest stay readable for people."""
    calls.clear()

    @workflow(keep_iterations=10)
    async def work(ctx: WorkflowContext) -> str:
        async def body(ctx: WorkflowContext, at: list[int]) -> Break[None] | None:
            await ctx.activity(note, at[0])
            at[0] += 1
            return Break(None) if at[0] == 100 else None

        await ctx.loop(body, [0], commit_every=5)
        return await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    assert await lab.outline(handle) == ["{1} loop"]
    forgotten = await lab.outline(handle, forgotten=True)
    assert len([line for line in forgotten if "forgotten" in line]) == 10
    assert forgotten[-1].startswith("{1, 100, 1} activity note")
    await lab.restart(work)
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result() == "on"
    assert calls == list(range(100))


async def test_nested_loops(lab: Lab) -> None:
    calls.clear()

    @workflow
    async def work(ctx: WorkflowContext) -> list[int]:
        async def outer(ctx: WorkflowContext, rows: list[int]) -> Break[list[int]] | None:
            async def inner(ctx: WorkflowContext, cells: list[int]) -> Break[int] | None:
                cells.append(await ctx.activity(note, 10 * len(rows) + len(cells)))
                if len(cells) == 3:
                    await ctx.sleep(50)
                    return Break(sum(cells))
                return None

            rows.append(await ctx.loop(inner, list[int](), commit_every=2))
            return Break(rows) if len(rows) == 3 else None

        return await ctx.loop(outer, list[int](), commit_every=2)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == [3, 33, 63]
    assert calls == [0, 1, 2, 10, 11, 12, 20, 21, 22]


async def test_loops_side_by_side(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> tuple[int, int]:
        def counting(limit: int) -> Callable[..., Awaitable[Break[int] | None]]:
            async def body(ctx: WorkflowContext, at: list[int]) -> Break[int] | None:
                await ctx.sleep(30)
                at[0] += 1
                return Break(at[0]) if at[0] == limit else None

            return body

        return await ctx.join(
            ctx.loop(counting(3), [0], commit_every=1), ctx.loop(counting(5), [0])
        )

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == (3, 5)


async def test_an_error_in_an_iteration_is_the_error_of_the_loop(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def body(ctx: WorkflowContext, at: list[int]) -> None:
            at[0] += 1
            await ctx.sleep(50)
            if at[0] == 3:
                raise ValueError(f"iteration {at[0]}")

        try:
            await ctx.loop(body, [0])
        except ValueError as error:
            await ctx.sleep(50)
            return str(error)
        return ""

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "iteration 3"


async def test_a_state_that_cannot_be_stored_is_a_clear_death(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        async def body(ctx: WorkflowContext, state: Any) -> None:
            return None

        await ctx.loop(body, lambda: None)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match="PayloadError"):
        await (await engine.dispatch(work)).result()


async def test_commit_every_must_be_positive(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def body(ctx: WorkflowContext, state: None) -> None:
            return None

        try:
            await ctx.loop(body, commit_every=0)
        except InvalidOption as error:
            return error.option
        return ""

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "commit_every"


@pytest.mark.parametrize("commit_every", [1, 3])
async def test_an_iteration_begins_at_the_same_time_on_replay(lab: Lab, commit_every: int) -> None:
    begun: dict[int, list[datetime]] = {}

    @workflow
    async def nightly(ctx: WorkflowContext, nights: int) -> int:
        async def night(ctx: WorkflowContext, n: int) -> Break[int] | Continue[int]:
            begun.setdefault(n, []).append(ctx.now())
            await ctx.sleep(600)
            return Continue(n + 1) if n + 1 < nights else Break(n + 1)

        last = await ctx.loop(night, 0, commit_every=commit_every)
        begun.setdefault(last, []).append(ctx.now())
        await ctx.sleep(600)
        return last

    engine = await lab.engine(nightly)
    assert await (await engine.dispatch(nightly, 8)).result() == 8

    for times in begun.values():
        assert len(times) > 1, "every night it is brought back and begins its iteration again"
        assert len(set(times)) == 1
    nights = [times[0] for _, times in sorted(begun.items())]
    assert nights == sorted(set(nights)), "and every night is later than the one before"
