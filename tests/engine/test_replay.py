"""Every kind of step gives the same on replay, and does its work only once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Break,
    Signal,
    WorkflowContext,
    activity,
    message,
    workflow,
)

go = Signal("go", str)
number = Signal("number", int)
calls: Counter[str] = Counter()


@message
@dataclass
class Told:
    what: str


@activity
async def count(ctx: ActivityContext, what: str) -> int:
    calls[what] += 1
    return calls[what]


@workflow
async def helper(ctx: WorkflowContext, value: int) -> int:
    return value + await ctx.activity(count, "helper")


@workflow
async def receiver(ctx: WorkflowContext) -> list[int]:
    return [await ctx.listen(number), await ctx.listen(number)]


async def step_activity(ctx: WorkflowContext) -> Any:
    return await ctx.activity(count, "plain")


async def step_closure(ctx: WorkflowContext) -> Any:
    return await ctx.closure(step_activity)


async def step_join(ctx: WorkflowContext) -> Any:
    return await ctx.join(ctx.activity(count, "a"), step_activity, ctx.activity(count, "b"))


async def step_loop(ctx: WorkflowContext) -> Any:
    async def body(ctx: WorkflowContext, seen: list[int]) -> Break[list[int]] | None:
        seen.append(await ctx.activity(count, "loop"))
        return Break(seen) if len(seen) == 5 else None

    return await ctx.loop(body, list[int](), commit_every=2)


async def step_listen(ctx: WorkflowContext) -> Any:
    await ctx.signal(ctx.workflow_id, number(1))
    return await ctx.listen(number)


async def step_listen_many(ctx: WorkflowContext) -> Any:
    for value in range(3):
        await ctx.signal(ctx.workflow_id, number(value))
    return await ctx.listen_many(number, n=2), await ctx.listen_many(number, n=2)


async def step_bounded_listen(ctx: WorkflowContext) -> Any:
    nothing = await ctx.listen(number, timeout=10)
    await ctx.signal(ctx.workflow_id, number(7))
    return (
        nothing,
        await ctx.listen(number, timeout=10),
        await ctx.listen_many(number, n=5, timeout=10),
    )


async def step_dispatch(ctx: WorkflowContext) -> Any:
    child = await ctx.dispatch(helper, 1)
    return str(child.id), await child.result()


async def step_call(ctx: WorkflowContext) -> Any:
    return await ctx.call(helper, 2)


async def step_inline(ctx: WorkflowContext) -> Any:
    return await ctx.inline(helper, 3)


async def step_signal_send(ctx: WorkflowContext) -> Any:
    child = await ctx.dispatch(receiver, tags={"of": str(ctx.workflow_id)})
    sent = await child.signal(number(5))
    tagged = await ctx.signal_tagged(receiver, {"of": str(ctx.workflow_id)}, number(6))
    missing = await ctx.signal_tagged(receiver, {"of": "nobody"}, number(6), missing_ok=True)
    return sent, tagged, missing, await child.result()


async def step_message(ctx: WorkflowContext) -> Any:
    return await ctx.message(Told("once"), "topic")


async def step_sleep(ctx: WorkflowContext) -> Any:
    await ctx.sleep(0.5)
    await ctx.sleep(50)
    await ctx.sleep_until(5)
    return ctx.now()


async def step_facts(ctx: WorkflowContext) -> Any:
    await ctx.activity(count, "facts")
    return ctx.now(), ctx.random().random(), ctx.uuid(), ctx.created_at, ctx.ray_id, ctx.name


async def step_tags(ctx: WorkflowContext) -> Any:
    return await ctx.set_tags({"a": 1})


async def step_version_check(ctx: WorkflowContext) -> Any:
    return await ctx.check_version(3)


async def step_removed(ctx: WorkflowContext) -> Any:
    return await ctx.removed("activity", "gone")


STEPS: list[Callable[[WorkflowContext], Awaitable[Any]]] = [
    step_activity,
    step_closure,
    step_join,
    step_loop,
    step_listen,
    step_listen_many,
    step_bounded_listen,
    step_dispatch,
    step_call,
    step_inline,
    step_signal_send,
    step_message,
    step_sleep,
    step_facts,
    step_tags,
    step_version_check,
    step_removed,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_after_an_eviction_each_step_gives_the_same(
    lab: Lab, step: Callable[[WorkflowContext], Awaitable[Any]]
) -> None:
    calls.clear()
    seen: list[Any] = []

    @workflow
    async def story(ctx: WorkflowContext) -> str:
        seen.append(await step(ctx))
        return await ctx.listen(go)

    definitions = (story, helper, receiver)
    engine = await lab.engine(*definitions)
    handle = await engine.dispatch(story)
    await lab.until(lambda: bool(seen))
    await lab.asleep(handle)
    runs_before, calls_before = len(seen), calls.copy()
    story_before = await lab.outline(handle)

    engine = await lab.restart(*definitions)
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result(60) == "on"

    assert len(seen) > runs_before
    assert all(value == seen[0] for value in seen), seen
    assert calls == calls_before
    assert (await lab.outline(handle))[:-1] == story_before


async def test_all_steps_in_one_workflow_survive_an_eviction(lab: Lab) -> None:
    calls.clear()
    seen: list[Any] = []

    @workflow
    async def everything(ctx: WorkflowContext) -> str:
        seen.append([await step(ctx) for step in STEPS])
        return await ctx.listen(go)

    definitions = (everything, helper, receiver)
    engine = await lab.engine(*definitions)
    handle = await engine.dispatch(everything)
    await lab.until(lambda: bool(seen))
    await lab.asleep(handle)
    calls_before = calls.copy()
    await lab.restart(*definitions)
    await lab.again(handle).signal(go("on"))
    await lab.again(handle).result(60)
    assert all(value == seen[0] for value in seen)
    assert calls == calls_before


async def test_a_shutdown_in_the_middle_of_a_wait_loses_nothing(lab: Lab) -> None:
    """Eviction: shutdown ends in-memory waits at once, and the next engine goes on from there."""
    calls.clear()

    @workflow
    async def patient(ctx: WorkflowContext) -> tuple[int, str]:
        first = await ctx.activity(count, "patient")
        await ctx.sleep(0.9)
        return first, await ctx.listen(go)

    engine = await lab.engine(patient)
    handle = await engine.dispatch(patient)
    await lab.until(lambda: calls["patient"] == 1)
    before = lab.clock.now()
    await lab.restart(patient)
    assert lab.clock.now() - before < 500
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result(60) == (1, "on")
    assert calls["patient"] == 1
