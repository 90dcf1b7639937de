"""Cancel asks the code of a workflow to end; terminate does not ask."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Break,
    Cancelled,
    Id,
    Signal,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    WorkflowFinished,
    WorkflowNotFound,
    WorkflowTerminated,
    activity,
    workflow,
)

go = Signal("go", str)
calls: list[str] = []


@activity(attempts=1)
async def note(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


@activity(attempts=None, initial=0.8, factor=1, jitter=0)
async def failing_soon(ctx: ActivityContext) -> None:
    raise ValueError


@activity(attempts=10, initial=500, jitter=0)
async def failing_late(ctx: ActivityContext) -> None:
    raise ValueError


@workflow
async def never(ctx: WorkflowContext) -> None:
    await ctx.listen(go)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


async def endless(ctx: WorkflowContext) -> Any:
    async def body(ctx: WorkflowContext, state: None) -> Break[None] | None:
        await ctx.sleep(1000)
        return None

    return await ctx.loop(body)


async def in_closure(ctx: WorkflowContext) -> Any:
    async def body(ctx: WorkflowContext) -> None:
        await ctx.listen(go)

    return await ctx.closure(body)


async def naps(ctx: WorkflowContext) -> Any:
    for _ in range(100):
        await ctx.sleep(0.9)


WAITS: dict[str, Callable[[WorkflowContext], Awaitable[Any]]] = {
    "sleep": lambda ctx: ctx.sleep(1000),
    "naps": naps,
    "listen": lambda ctx: ctx.listen(go),
    "bounded listen": lambda ctx: ctx.listen(go, timeout=1000),
    "listen many": lambda ctx: ctx.listen_many(go, n=3, timeout=1000),
    "call": lambda ctx: ctx.call(never),
    "short back-off": lambda ctx: ctx.activity(failing_soon),
    "back-off": lambda ctx: ctx.activity(failing_late),
    "join": lambda ctx: ctx.join(ctx.sleep(1000), ctx.listen(go)),
    "loop": endless,
    "closure": in_closure,
}


@pytest.mark.parametrize("restart", [False, True], ids=["", "then evicted"])
@pytest.mark.parametrize("pause", [0.3, 20.0], ids=["in memory", "asleep"])
@pytest.mark.parametrize("wait", WAITS)
async def test_every_wait_is_interrupted_and_can_be_compensated(
    lab: Lab, wait: str, pause: float, restart: bool
) -> None:
    """The code gets `Cancelled` once; then it may take steps; in the end it is cancelled."""
    reasons: set[str] = set()

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "started")
        try:
            await WAITS[wait](ctx)
        except Cancelled as cancelled:
            reasons.add(cancelled.reason)
            await ctx.activity(note, "compensated")
            await ctx.sleep(50)
            await ctx.activity(note, "after a sleep")
        return "an output that does not count"

    engine = await lab.engine(work, never)
    handle = await engine.dispatch(work)
    await lab.pause(pause)
    await handle.cancel("changed my mind")
    if restart:
        await lab.until(lambda: "compensated" in calls)
        await lab.asleep(handle)
        await lab.restart(work, never)
    with pytest.raises(WorkflowCancelled, match="changed my mind"):
        await lab.again(handle).result()
    assert calls == ["started", "compensated", "after a sleep"]
    assert reasons == {"changed my mind"}


async def test_an_uncaught_cancel_ends_the_workflow(lab: Lab) -> None:
    engine = await lab.engine(never)
    handle = await engine.dispatch(never)
    await lab.asleep(handle)
    await handle.cancel()
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert (await handle.describe()).state == "cancelled"


async def test_except_exception_does_not_swallow_a_cancel(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        try:
            await ctx.listen(go)
        except Exception:
            calls.append("swallowed")

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.cancel()
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert calls == []


async def test_cancel_before_the_first_run(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(note, "ran")

    engine = await lab.engine(worker=False)
    handle = await engine.dispatch(work)
    await handle.cancel("too early")
    await lab.restart(work)
    with pytest.raises(WorkflowCancelled, match="too early"):
        await lab.again(handle).result()
    assert calls == []


async def test_an_activity_that_runs_is_not_interrupted_but_may_look(lab: Lab) -> None:
    seen: list[bool] = []

    @activity(timeout=None)
    async def long(ctx: ActivityContext) -> str:
        while not ctx.cancel_requested:
            seen.append(ctx.cancel_requested)
            await lab.clock.sleep(1)
        return "stopped early"

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        calls.append(await ctx.activity(long))
        await ctx.activity(note, "next step")

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.until(lambda: bool(seen))
    await handle.cancel()
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert calls == ["stopped early"]


async def test_cancel_reaches_every_member_of_a_join(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        def member(name: str) -> Callable[[WorkflowContext], Awaitable[None]]:
            async def closure(ctx: WorkflowContext) -> None:
                try:
                    await ctx.listen(go)
                except Cancelled:
                    await ctx.activity(note, name)
                    raise

            return closure

        await ctx.join(member("a"), member("b"))

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.cancel()
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert sorted(calls) == ["a", "b"]


async def test_a_cancel_is_delivered_once(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            for name in ("one", "two"):
                await ctx.activity(note, name)
                await ctx.sleep(30)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.cancel("first")
    await handle.cancel("second")
    with pytest.raises(WorkflowCancelled, match="first"):
        await handle.result()
    assert calls == ["one", "two"]


async def test_an_error_while_compensating_is_a_death_like_any_other(lab: Lab) -> None:
    @workflow
    async def work(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            raise ValueError("compensation failed") from None

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.cancel()
    with pytest.raises(WorkflowFailed, match="compensation failed"):
        await handle.result()


async def test_a_cancelled_workflow_can_clean_up_with_signals_and_children(lab: Lab) -> None:
    @workflow
    async def helper(ctx: WorkflowContext, what: str) -> str:
        return await ctx.activity(note, what)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            await ctx.call(helper, "by a child")
            calls.append(await ctx.listen(go))

    engine = await lab.engine(work, helper)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await handle.cancel()
    await lab.until(lambda: bool(calls))
    await handle.signal(go("by a signal"))
    with pytest.raises(WorkflowCancelled):
        await handle.result()
    assert calls == ["by a child", "by a signal"]


@pytest.mark.parametrize("running", [False, True], ids=["asleep", "running"])
async def test_terminate_asks_nobody(lab: Lab, running: bool) -> None:
    started: list[str] = []

    @activity(timeout=None)
    async def long(ctx: ActivityContext) -> None:
        started.append("long")
        await lab.clock.sleep(3)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        try:
            await (ctx.activity(long) if running else ctx.sleep(1000))
            await ctx.activity(note, "went on")
        except BaseException:
            calls.append("told")
            raise

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    if running:
        await lab.until(lambda: bool(started))
    else:
        await lab.asleep(handle)
        calls.clear()
    await handle.terminate("enough")
    with pytest.raises(WorkflowTerminated, match="enough"):
        await handle.result()
    await lab.pause(30)
    assert "went on" not in calls
    assert (await handle.describe()).state == "terminated"


async def test_what_is_finished_cannot_be_cancelled_or_terminated(lab: Lab) -> None:
    @workflow
    async def quick(ctx: WorkflowContext) -> None: ...

    engine = await lab.engine(quick)
    handle = await engine.dispatch(quick)
    await handle.result()
    nobody = engine.handle(None, Id.new())
    for act in ("cancel", "terminate"):
        with pytest.raises(WorkflowFinished):
            await getattr(handle, act)()
        with pytest.raises(WorkflowNotFound):
            await getattr(nobody, act)()


async def test_replay_delivers_a_cancel_where_it_was_delivered(lab: Lab) -> None:
    """Sleeps that were over by then are not interrupted, even if the wall clock was set back."""
    slept: list[int] = []

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        done = 0
        try:
            for _ in range(10):
                await ctx.sleep(10)
                done += 1
        except Cancelled:
            slept.append(done)
            await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.pause(35)
    await handle.cancel()
    await lab.until(lambda: bool(slept))
    await lab.asleep(handle)
    lab.clock.jump(-30_000)  # type: ignore[attr-defined]
    await lab.restart(work)
    await lab.again(handle).signal(go(""))
    with pytest.raises(WorkflowCancelled):
        await lab.again(handle).result()
    assert set(slept) == {3}
