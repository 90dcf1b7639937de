"""The acceptance cases of the model: one short workflow for each thing it promises."""

from dataclasses import dataclass, field

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Break,
    Id,
    Signal,
    WorkflowContext,
    activity,
    message,
    signal,
    workflow,
)


@signal
@dataclass
class Approved:
    by: str


@message
@dataclass
class Seen:
    what: str


@activity
async def process(ctx: ActivityContext, text: str) -> str:
    return f"Processed: {text}"


async def test_basic(lab: Lab) -> None:
    @workflow
    async def echo(ctx: WorkflowContext, value: str) -> str:
        return value

    engine = await lab.engine(echo)
    handle = await engine.dispatch(echo, "hello")
    assert await handle.result(timeout=5) == "hello"


async def test_activity(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext, text: str) -> str:
        return await ctx.activity(process, text)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work, "hello")).result(5) == "Processed: hello"


async def test_sub_workflow_inline(lab: Lab) -> None:
    @workflow
    async def sub(ctx: WorkflowContext, text: str) -> str:
        return f"{text}_sub"

    @workflow
    async def parent(ctx: WorkflowContext, text: str) -> str:
        return await ctx.inline(sub, text)

    engine = await lab.engine(parent)
    assert await (await engine.dispatch(parent, "parent")).result(5) == "parent_sub"


async def test_sleep(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> None:
        await ctx.sleep(0.1)

    engine = await lab.engine(nap)
    before = lab.clock.now()
    await (await engine.dispatch(nap)).result(5)
    assert lab.clock.now() - before >= 100


async def test_signal(lab: Lab) -> None:
    @workflow
    async def wait(ctx: WorkflowContext) -> str:
        return (await ctx.listen(Approved)).by

    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait)
    await lab.pause(0.1)
    await handle.signal(Approved("Ada"))
    assert await handle.result(60) == "Ada"


async def test_loop_with_state(lab: Lab) -> None:
    @workflow
    async def count(ctx: WorkflowContext) -> int:
        async def body(ctx: WorkflowContext, seen: list[int]) -> Break[int] | None:
            seen.append(len(seen))
            return Break(len(seen)) if len(seen) == 3 else None

        return await ctx.loop(body, list[int]())

    engine = await lab.engine(count)
    assert await (await engine.dispatch(count)).result(5) == 3


async def test_listen_with_timeout(lab: Lab) -> None:
    @workflow
    async def wait(ctx: WorkflowContext) -> bool:
        return await ctx.listen(Approved, timeout=0.1) is None

    engine = await lab.engine(wait)
    assert await (await engine.dispatch(wait)).result(60)


@pytest.mark.parametrize("lab", [False], ids=["bus"], indirect=True)
async def test_eviction(lab: Lab) -> None:
    """The second message needs a bus that delivers: messages are the one thing without a store."""

    @workflow
    async def report(ctx: WorkflowContext) -> None:
        await ctx.message(Seen("started"))
        answer = await ctx.listen(Approved)
        await ctx.message(Seen(answer.by))

    engine = await lab.engine(report)
    with engine.subscribe(Seen) as seen:
        handle = await engine.dispatch(report)
        assert await anext(seen) == Seen("started")
    engine = await lab.restart(report)
    assert (await lab.again(handle).describe()).state == "sleeping"
    with engine.subscribe(Seen) as seen:
        await lab.again(handle).signal(Approved("Ada"))
        assert await anext(seen) == Seen("Ada")
        await lab.again(handle).result(60)


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)


async def test_activity_state(lab: Lab) -> None:
    @activity
    async def put(ctx: ActivityContext, item: str) -> None:
        ctx.state(Cart).items.append(item)

    @activity
    async def read(ctx: ActivityContext) -> list[str]:
        return ctx.state(Cart).items

    @workflow
    async def shop(ctx: WorkflowContext) -> list[str]:
        await ctx.activity(put, "tea")
        await ctx.activity(put, "milk")
        return await ctx.activity(read)

    engine = await lab.engine(shop)
    handle = await engine.dispatch(shop)
    assert await handle.result(5) == ["tea", "milk"]
    assert await handle.state(Cart) == Cart(["tea", "milk"])


async def test_activity_context_properties(lab: Lab) -> None:
    seen: list[ActivityContext] = []

    @activity
    async def look(ctx: ActivityContext) -> None:
        seen.append(ctx)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(look)

    engine = await lab.engine(work)
    ray = Id.new()
    handle = await engine.dispatch(work, ray_id=ray)
    await handle.result(5)
    [ctx] = seen
    assert (ctx.workflow_id, ctx.workflow_name, ctx.activity_name) == (handle.id, "work", "look")
    assert (ctx.ray_id, ctx.attempt, ctx.progress) == (ray, 1, None)
    assert ctx.created_at == ctx.attempt_at
    assert abs(ctx.created_at.timestamp() * 1000 - lab.clock.now()) < 60_000
    assert not ctx.cancel_requested


async def test_update_tags_from_an_activity(lab: Lab) -> None:
    @activity
    async def tag(ctx: ActivityContext) -> None:
        await ctx.set_tags({"customer": "new"})

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(tag)
        await ctx.listen(Approved)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work, tags={"customer": "old"})
    await lab.asleep(handle)
    assert await engine.find(work, {"customer": "old"}) is None
    found = await engine.find(work, {"customer": "new"})
    assert found is not None
    assert found.id == handle.id


@pytest.mark.parametrize("lab", [False], ids=["bus"], indirect=True)
async def test_a_dispatch_rings_for_its_name(lab: Lab) -> None:
    """The bump of a created workflow: a worker elsewhere hears of it at once, not at its poll."""

    @workflow
    async def echo(ctx: WorkflowContext, value: str) -> str:
        return value

    caller = await lab.engine(worker=False)
    await lab.engine(echo)
    await lab.pause(1)
    before = lab.clock.now()
    handle = await caller.dispatch(echo, "hello")
    assert await handle.result(5) == "hello"
    assert lab.clock.now() == before


paid = Signal("paid", int)


async def test_a_named_signal(lab: Lab) -> None:
    @workflow
    async def wait(ctx: WorkflowContext) -> int:
        return await ctx.listen(paid)

    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait)
    await handle.signal(paid(42))
    assert await handle.result(60) == 42
