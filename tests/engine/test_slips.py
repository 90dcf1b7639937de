"""Slips that everybody makes once: a forgotten await, a function that is not marked, a typo."""

from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    CallerError,
    Engine,
    Id,
    Message,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.engine.errors import InvalidDefinition


@activity
async def greet(ctx: ActivityContext, name: str) -> str:
    return f"hello {name}"


@workflow
async def waiting(ctx: WorkflowContext, number: int) -> int:
    return number


news = Message("news", int)
told = Signal("told", int)


async def unmarked(ctx: Any, name: str) -> str:
    return name


async def test_a_forgotten_await_is_warned_of(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        with pytest.warns(RuntimeWarning, match="step activity greet was never awaited") as heard:
            ctx.activity(greet, "Ada")
        return heard[0].filename

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == __file__


async def test_a_step_whose_turn_never_came_is_not_warned_of(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        later = ctx.activity(greet, "Ada")
        await ctx.sleep(60)
        return await later

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "hello Ada"


@pytest.mark.parametrize(
    "step",
    [
        lambda ctx: ctx.dispatch(waiting, 1 << 64),
        lambda ctx: ctx.loop(unmarked, object()),
        lambda ctx: ctx.message(news(1 << 64)),
        lambda ctx: ctx.signal(Id.new(), told(1 << 64)),
    ],
)
async def test_a_step_that_could_not_be_made_is_not_missed(lab: Lab, step: Any) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        with pytest.raises(CallerError):
            await step(ctx)
        return "done"

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "done"


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (lambda ctx: ctx.activity(unmarked, "Ada"), "mark the function with @activity"),
        (lambda ctx: ctx.call(unmarked, "Ada"), "mark the function with @workflow"),
        (lambda ctx: ctx.dispatch(unmarked, "Ada"), "mark the function with @workflow"),
        (lambda ctx: ctx.inline(unmarked, "Ada"), "mark the function with @workflow"),
        (lambda ctx: ctx.call(greet, "Ada"), "it is the activity of that name"),
        (
            lambda ctx: ctx.activity(greet, "Ada", retries=3),
            "retries=3 is not possible: use one of attempts",
        ),
    ],
)
async def test_a_wrong_step_says_what_is_right(lab: Lab, step: Any, problem: str) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await step(ctx)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match=problem):
        await (await engine.dispatch(work)).result()


async def test_a_wrong_workflow_says_what_is_right(lab: Lab) -> None:
    anything: Any = unmarked
    with pytest.raises(InvalidDefinition, match='"unmarked" is not well defined: mark the'):
        Engine("memory:", workflows=[anything])
    engine = await lab.engine()
    with pytest.raises(InvalidDefinition, match="mark the function with @workflow"):
        await engine.dispatch(anything, "Ada")
    anything = greet
    with pytest.raises(InvalidDefinition, match="it is the activity of that name"):
        await engine.dispatch(anything, "Ada")
