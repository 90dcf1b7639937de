"""Waiting is control flow: user code cannot swallow it, and cannot take steps while it unwinds."""

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

go = Signal("go", str)
calls: list[str] = []


@activity(attempts=1)
async def note(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


@activity(attempts=3, initial=50, jitter=0)
async def flaky(ctx: ActivityContext) -> int:
    if ctx.attempt < 3:
        raise ValueError(ctx.attempt)
    return ctx.attempt


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@pytest.mark.parametrize("wait", ["sleep", "listen", "bounded", "retry", "child", "join"])
async def test_except_exception_does_not_swallow_a_wait(lab: Lab, wait: str) -> None:
    @workflow
    async def child(ctx: WorkflowContext) -> None:
        await ctx.sleep(100)

    @workflow
    async def work(ctx: WorkflowContext) -> list[str]:
        swallowed = []
        try:
            match wait:
                case "sleep":
                    await ctx.sleep(100)
                case "listen":
                    await ctx.listen(go)
                case "bounded":
                    await ctx.listen(go, timeout=100)
                case "retry":
                    await ctx.activity(flaky)
                case "child":
                    await ctx.call(child)
                case "join":
                    await ctx.join(ctx.sleep(100), ctx.listen(go))
        except Exception as error:
            swallowed.append(repr(error))
        return swallowed

    engine = await lab.engine(work, child)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("on"))
    assert await handle.result() == []


async def test_a_finally_block_runs_no_steps_while_the_run_goes_to_sleep(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.listen(go)
        finally:
            await ctx.activity(note, "cleaned up")
        return "done"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    assert calls == []
    await handle.signal(go(""))
    assert await handle.result() == "done"
    assert calls == ["cleaned up"]


async def test_a_swallowed_suspension_is_raised_again_by_every_step(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.listen(go)
        except BaseException:
            await ctx.activity(note, "should not run")
        return "done"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    assert calls == []
    await handle.signal(go(""))
    assert await handle.result() == "done"


@pytest.mark.parametrize("end", ["return", "raise"])
async def test_code_that_ends_after_swallowing_a_suspension_still_sleeps(
    lab: Lab, end: str
) -> None:
    """Neither its result nor its error counts: it has not been awaited what it was based on."""

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            return await ctx.listen(go)
        except BaseException as error:
            if end == "raise":
                raise ValueError("wrapped") from error
            return "made up"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("real"))
    assert await handle.result() == "real"


async def test_a_suspension_swallowed_in_a_closure_is_noticed(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> str:
        async def inner(ctx: WorkflowContext) -> str:
            try:
                return await ctx.listen(go)
            except BaseException:
                return "made up"

        return await ctx.closure(inner)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.signal(go("real"))
    assert await handle.result() == "real"


async def test_an_error_of_an_activity_can_be_caught_and_compensated(lab: Lab) -> None:
    @activity(attempts=1)
    async def charge(ctx: ActivityContext) -> None:
        raise ValueError("no money")

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        undo = [await ctx.activity(note, "reserve")]
        try:
            await ctx.activity(charge)
        except ActivityFailed:
            for what in reversed(undo):
                await ctx.activity(note, f"undo {what}")
                await ctx.sleep(60)
            return "undone"
        return "done"

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == "undone"
    assert calls == ["reserve", "undo reserve"]


async def test_an_error_of_the_body_is_final(lab: Lab) -> None:
    """It is not retried: it would come again. Its type, text and place are kept."""

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        calls.append("ran")
        raise LookupError("nothing there")

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed) as caught:
        await (await engine.dispatch(work)).result()
    failure = caught.value.failure
    assert (failure.type, failure.message) == ("LookupError", "nothing there")
    assert "test_control_flow.py" in failure.stack
    assert calls == ["ran"]


async def test_an_eviction_cannot_be_swallowed_either(lab: Lab) -> None:
    entered: list[str] = []

    @activity(attempts=1)
    async def slow(ctx: ActivityContext) -> None:
        entered.append("slow")
        await lab.clock.sleep(5)

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.activity(slow)
            await ctx.activity(note, "after")
        except Exception:
            await ctx.activity(note, "swallowed")
        finally:
            await ctx.activity(note, "finally")
        return "done"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.until(lambda: bool(entered))
    await engine.shutdown()
    assert calls == []
    await lab.restart(work)
    assert await lab.again(handle).result() == "done"
    assert entered == ["slow"]
    assert calls == ["after", "finally"]
