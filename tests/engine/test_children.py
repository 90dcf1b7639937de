"""Workflows that start other workflows, wait for them, and learn how they ended."""

import pytest
from tests.engine.lab import Lab

from perdure import (
    Cancelled,
    Child,
    ChildCancelled,
    ChildFailed,
    ChildTerminated,
    Engine,
    Handle,
    Id,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    workflow,
)

go = Signal("go", str)
tell = Signal("tell", str)


@workflow
async def child(ctx: WorkflowContext, name: str) -> str:
    return f"{name} {await ctx.listen(go)}"


@workflow
async def dying(ctx: WorkflowContext) -> str:
    await ctx.listen(go)
    raise ValueError("the child's reason")


@workflow
async def family(ctx: WorkflowContext, name: str) -> str:
    try:
        return await ctx.call(child, name, tags={"of": "family"})
    except (ChildFailed, ChildCancelled, ChildTerminated) as error:
        return f"{type(error).__name__}: {error}"


async def only_child(lab: Lab, engine: Engine) -> Handle[str]:
    """Wait for the child of `family`."""
    for _ in range(100):
        found = await engine.find(child, {"of": "family"})
        if found is not None:
            return found
        await lab.pause(0.1)
    raise AssertionError("there is no child")


async def test_dispatch_goes_on_and_result_waits(lab: Lab) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> list[str]:
        children: list[Child[str]] = [await ctx.dispatch(child, name) for name in ("a", "b")]
        for each in reversed(children):
            await each.signal(go("ok"))
        return [await each.result() for each in children]

    engine = await lab.engine(parent, child)
    assert await (await engine.dispatch(parent)).result() == ["a ok", "b ok"]


async def test_a_child_knows_its_parent_and_shares_its_ray(lab: Lab) -> None:
    @workflow
    async def who(ctx: WorkflowContext) -> tuple[Id | None, Id]:
        return ctx.parent_id, ctx.ray_id

    @workflow
    async def parent(ctx: WorkflowContext) -> tuple[tuple[Id | None, Id], tuple[Id | None, Id]]:
        return await ctx.call(who), (ctx.parent_id, ctx.ray_id)

    engine = await lab.engine(parent, who)
    ray = Id.new()
    handle = await engine.dispatch(parent, ray_id=ray)
    assert await handle.result() == ((handle.id, ray), (None, ray))


async def test_a_parent_sleeps_while_its_child_works(lab: Lab) -> None:
    engine = await lab.engine(family, child)
    handle = await engine.dispatch(family, "f")
    mine = await only_child(lab, engine)
    found = await lab.asleep(handle)
    assert found.status.children == (mine.id,)
    await lab.pause(1000)
    await mine.signal(go("at last"))
    assert await handle.result() == "f at last"


async def test_a_parent_waits_across_a_restart_of_both(lab: Lab) -> None:
    engine = await lab.engine(family, child)
    handle = await engine.dispatch(family, "f")
    mine = await only_child(lab, engine)
    engine = await lab.restart(family, child)
    await lab.again(mine).signal(go("ok"))
    assert await lab.again(handle).result() == "f ok"


async def test_a_child_that_ended_before_it_is_awaited(lab: Lab) -> None:
    @workflow
    async def quick(ctx: WorkflowContext) -> int:
        return 1

    @workflow
    async def parent(ctx: WorkflowContext) -> int:
        mine = await ctx.dispatch(quick)
        await ctx.sleep(100)
        return await mine.result()

    engine = await lab.engine(parent, quick)
    assert await (await engine.dispatch(parent)).result() == 1


async def test_the_death_of_a_child_wakes_its_parent_with_a_typed_error(lab: Lab) -> None:
    """With the child's failure inside."""

    @workflow
    async def parent(ctx: WorkflowContext) -> tuple[str, str]:
        mine = await ctx.dispatch(dying, tags={"k": 1})
        await ctx.sleep(10)
        await mine.signal(go(""))
        try:
            await mine.result()
        except ChildFailed as error:
            return error.failure.type, error.failure.message
        return "", ""

    engine = await lab.engine(parent, dying)
    handle = await engine.dispatch(parent)
    assert await handle.result() == ("ValueError", "the child's reason")


@pytest.mark.parametrize("long", [False, True], ids=["in memory", "asleep"])
async def test_cancelling_a_child_wakes_its_parent(lab: Lab, long: bool) -> None:
    engine = await lab.engine(family, child)
    handle = await engine.dispatch(family, "f")
    mine = await only_child(lab, engine)
    if long:
        await lab.asleep(handle)
    await mine.cancel("not needed")
    answer = await handle.result()
    assert answer.startswith("ChildCancelled")
    assert "not needed" in answer


@pytest.mark.parametrize("long", [False, True], ids=["in memory", "asleep"])
async def test_terminating_a_child_wakes_its_parent(lab: Lab, long: bool) -> None:
    engine = await lab.engine(family, child)
    handle = await engine.dispatch(family, "f")
    mine = await only_child(lab, engine)
    if long:
        await lab.asleep(handle)
    await mine.terminate("wrong input")
    answer = await handle.result()
    assert answer.startswith("ChildTerminated")
    assert "wrong input" in answer


async def test_an_uncaught_error_of_a_child_kills_the_parent_with_the_chain(lab: Lab) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        mine = await ctx.dispatch(dying)
        await mine.signal(go(""))
        await mine.result()

    engine = await lab.engine(parent, dying)
    with pytest.raises(WorkflowFailed) as caught:
        await (await engine.dispatch(parent)).result()
    failure = caught.value.failure
    assert failure.type.endswith("ChildFailed")
    assert failure.cause is not None
    assert failure.cause.message == "the child's reason"


async def test_what_a_parent_saw_of_a_child_survives_the_child(lab: Lab) -> None:
    """The awaited result is an event, so pruning the child changes nothing."""
    seen: list[str] = []

    @workflow
    async def quick(ctx: WorkflowContext) -> str:
        return "fine"

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        seen.append(await ctx.call(quick))
        return await ctx.listen(go)

    engine = await lab.engine(parent, quick)
    handle = await engine.dispatch(parent)
    await lab.asleep(handle)
    pruned = await engine.admin.prune(closed_before=lab.clock.now() + 1)
    assert pruned.pruned == 1
    await handle.signal(go("on"))
    assert await handle.result() == "on"
    assert set(seen) == {"fine"}


async def test_cancel_of_a_parent_does_not_touch_the_child(lab: Lab) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> None:
        try:
            await ctx.call(child, "c", tags={"of": "family"})
        except Cancelled:
            await ctx.signal_tagged(child, {"of": "family"}, go("freed"))

    engine = await lab.engine(parent, child)
    handle = await engine.dispatch(parent)
    mine = await only_child(lab, engine)
    await lab.asleep(handle)
    await handle.cancel()
    assert await mine.result() == "c freed"


async def test_a_unique_child_is_shared(lab: Lab) -> None:
    @workflow
    async def parent(ctx: WorkflowContext) -> tuple[Id, str]:
        mine = await ctx.dispatch(child, "shared", unique="the one")
        return mine.id, await mine.result()

    engine = await lab.engine(parent, child)
    handles = [await engine.dispatch(parent) for _ in range(3)]
    for handle in handles:
        await lab.asleep(handle)
    page = await engine.admin.list(name="child")
    assert len(page.workflows) == 1
    await engine.signal(Id.parse(page.workflows[0].id), go("ok"))
    results = [await handle.result() for handle in handles]
    assert {result for _, result in results} == {"shared ok"}
    assert len({id for id, _ in results}) == 1


async def test_inline_shares_the_state_and_the_fate_of_its_workflow(lab: Lab) -> None:
    @workflow
    async def inner(ctx: WorkflowContext, fail: bool) -> tuple[Id, str]:
        if fail:
            raise ValueError("inner")
        return ctx.workflow_id, await ctx.listen(go)

    @workflow
    async def outer(ctx: WorkflowContext) -> tuple[bool, str, str]:
        id, answer = await ctx.inline(inner, False)
        try:
            await ctx.inline(inner, True)
        except ValueError as error:
            return id == ctx.workflow_id, answer, str(error)
        return False, "", ""

    engine = await lab.engine(outer)
    handle = await engine.dispatch(outer)
    await lab.asleep(handle)
    await handle.signal(go("hi"))
    assert await handle.result() == (True, "hi", "inner")


async def test_many_children_side_by_side(lab: Lab) -> None:
    @workflow
    async def square(ctx: WorkflowContext, n: int) -> int:
        await ctx.sleep(n)
        return n * n

    @workflow
    async def parent(ctx: WorkflowContext) -> int:
        return sum(await ctx.join_all([ctx.call(square, n) for n in range(20)]))

    engine = await lab.engine(parent, square)
    assert await (await engine.dispatch(parent)).result() == sum(n * n for n in range(20))
