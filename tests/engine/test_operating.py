"""What operators see and do: silence, wake, revive, prune, metrics, traces, shutdown."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    ChildFailed,
    Engine,
    Id,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    WorkflowNotFound,
    activity,
    workflow,
)
from perdure.engine.errors import WorkflowBusy
from perdure.engine.tracing import EngineTracing

go = Signal("go", str)
calls: list[str] = []


@workflow
async def wait(ctx: WorkflowContext) -> str:
    return await ctx.listen(go)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


# -- silence and wake


async def test_a_silenced_workflow_keeps_its_signals_and_does_not_run(lab: Lab) -> None:
    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait)
    await lab.asleep(handle)
    await engine.admin.silence(str(handle.id))
    await handle.signal(go("kept"))
    await lab.pause(30)
    assert (await handle.describe()).state == "silenced"
    await lab.restart(wait)
    await lab.pause(30)
    assert (await lab.again(handle).describe()).state == "silenced"
    await lab._engines[-1].admin.unsilence(str(handle.id))
    assert await lab.again(handle).result() == "kept"


async def test_a_silenced_workflow_sleeps_through_its_deadline(lab: Lab) -> None:
    @workflow
    async def nap(ctx: WorkflowContext) -> str:
        await ctx.sleep(60)
        return "rested"

    engine = await lab.engine(nap)
    handle = await engine.dispatch(nap)
    await lab.asleep(handle)
    await engine.admin.silence(str(handle.id))
    await lab.pause(200)
    assert (await handle.describe()).state == "silenced"
    await engine.admin.unsilence(str(handle.id))
    assert await handle.result() == "rested"


async def test_a_running_workflow_is_not_silenced(lab: Lab) -> None:
    @activity
    async def slow(ctx: ActivityContext) -> None:
        calls.append("slow")
        await lab.clock.sleep(10)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(slow)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.until(lambda: bool(calls))
    with pytest.raises(WorkflowBusy, match="running"):
        await engine.admin.silence(str(handle.id))
    await handle.result()


async def test_waking_is_harmless(lab: Lab) -> None:
    runs: list[int] = []

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        runs.append(1)
        return await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    for _ in range(3):
        before = len(runs)
        await engine.admin.wake(str(handle.id))
        await lab.until(lambda before=before: len(runs) > before)  # type: ignore[misc]
        await lab.asleep(handle)
    await handle.signal(go("x"))
    assert await handle.result() == "x"


# -- revive


async def test_a_revived_workflow_goes_on_from_its_last_step(lab: Lab) -> None:
    broken = [True]

    @activity
    async def note(ctx: ActivityContext, what: str) -> str:
        calls.append(what)
        return what

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "before")
        if broken[0]:
            raise ValueError("a bug in the code")
        return await ctx.activity(note, "after")

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    with pytest.raises(WorkflowFailed, match="a bug"):
        await handle.result()
    broken[0] = False
    revived = await engine.admin.revive(name="work", error="a bug")
    assert [view.id for view in revived.workflows] == [str(handle.id)]
    assert await handle.result() == "after"
    assert calls == ["before", "after"]


async def test_a_revived_workflow_tries_the_activity_again_that_killed_it(lab: Lab) -> None:
    """With all its attempts: the world was mended, so what had failed is what must be redone."""
    broken = [True]

    @activity(attempts=2, initial=0.1, jitter=0)
    async def charge(ctx: ActivityContext) -> int:
        calls.append(f"attempt {ctx.attempt}")
        if broken[0]:
            raise ValueError("no network")
        return ctx.attempt

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        async def closure(ctx: WorkflowContext) -> int:
            return await ctx.activity(charge)

        return (await ctx.join(closure, ctx.sleep(0)))[0]

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    with pytest.raises(WorkflowFailed, match="no network"):
        await handle.result()
    await engine.admin.revive(ids=[str(handle.id)])
    with pytest.raises(WorkflowFailed, match="no network"):
        await handle.result()
    broken[0] = False
    await engine.admin.revive(ids=[str(handle.id)])
    assert await handle.result() == 1
    assert calls == ["attempt 1", "attempt 2", "attempt 1", "attempt 2", "attempt 1"]


async def test_a_revived_parent_waits_again_for_its_revived_child(lab: Lab) -> None:
    broken = [True]

    @workflow
    async def child(ctx: WorkflowContext) -> str:
        if broken[0]:
            raise ValueError("a bug in the child")
        return "mended"

    @workflow
    async def parent(ctx: WorkflowContext) -> str:
        return await ctx.call(child)

    engine = await lab.engine(parent, child)
    handle = await engine.dispatch(parent)
    with pytest.raises(WorkflowFailed, match="a bug in the child"):
        await handle.result()
    broken[0] = False
    await engine.admin.revive(name="child")
    await engine.admin.revive(ids=[str(handle.id)])
    assert await handle.result() == "mended"


async def test_a_revived_workflow_sends_the_signal_again_that_had_no_target(lab: Lab) -> None:
    @workflow
    async def sender(ctx: WorkflowContext) -> bool:
        return await ctx.signal_tagged(wait, {"k": 1}, go("hello"))

    engine = await lab.engine(sender, wait)
    handle = await engine.dispatch(sender)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    target = await engine.dispatch(wait, tags={"k": 1})
    await engine.admin.revive(ids=[str(handle.id)])
    assert await handle.result() is True
    assert await target.result() == "hello"


async def test_a_failure_that_was_handled_stays_as_it_was(lab: Lab) -> None:
    """Reviving undoes what killed the workflow, not what its code had dealt with."""
    broken = [True]

    @workflow
    async def dies(ctx: WorkflowContext) -> str:
        calls.append("child")
        raise ValueError("child")

    @activity(attempts=1)
    async def refuse(ctx: ActivityContext) -> None:
        calls.append("refuse")
        raise ValueError("refused")

    @activity(attempts=1)
    async def undo(ctx: ActivityContext) -> None:
        calls.append("undo")

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.activity(refuse)
        except Exception as error:
            await ctx.activity(undo)
            try:
                await ctx.call(dies)
            except ChildFailed:
                await ctx.activity(undo)
            if broken[0]:
                raise LookupError("a bug while compensating") from error
        return "compensated"

    engine = await lab.engine(work, dies)
    handle = await engine.dispatch(work)
    with pytest.raises(WorkflowFailed, match="a bug while"):
        await handle.result()
    broken[0] = False
    await engine.admin.revive(ids=[str(handle.id)])
    assert await handle.result() == "compensated"
    assert calls == ["refuse", "undo", "child", "undo"]


# -- prune


@pytest.mark.parametrize("variant", ["all", "history", "none"])
async def test_pruning_does_what_the_definition_says(lab: Lab, variant: str) -> None:
    """Nothing is left behind of what was to go, and nothing is lost of what was to stay."""

    @workflow(prune=variant)  # type: ignore[call-overload, untyped-decorator]
    async def work(ctx: WorkflowContext) -> str:
        await ctx.sleep(1)
        return "done"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work, tags={"k": 1})
    await handle.result()
    await engine.admin.prune(closed_before=lab.clock.now() + 1)
    if variant == "all":
        with pytest.raises(WorkflowNotFound):
            await handle.result()
        return
    assert await handle.result() == "done"
    assert await lab.outline(handle) == ([] if variant == "history" else ["{1} sleep"])


async def test_the_worker_prunes_by_itself(lab: Lab) -> None:
    @workflow
    async def quick(ctx: WorkflowContext) -> None: ...

    engine = await lab.engine(quick)
    handle = await engine.dispatch(quick)
    await handle.result()
    lab.clock.jump(8 * 86_400_000)  # type: ignore[attr-defined]
    await lab.pause(3700)
    with pytest.raises(WorkflowNotFound):
        await handle.result()


# -- gauges, metrics, traces


async def counts(engine: Engine) -> dict[str, dict[str, int]]:
    """How many workflows are in which phase, by name, without zeros."""
    stats = await engine.admin.stats()
    return {
        name: {phase: count for phase, count in phases.items() if count}
        for name, phases in stats.workflows.items()
    }


async def test_gauges_follow_every_change(lab: Lab) -> None:
    """They do not drift."""

    @workflow
    async def dies(ctx: WorkflowContext) -> None:
        raise ValueError

    engine = await lab.engine(wait, dies)
    handles = [await engine.dispatch(wait) for _ in range(5)]
    dead = [await engine.dispatch(dies) for _ in range(2)]
    for handle in handles:
        await lab.asleep(handle)
    for each in dead:
        await lab.in_state(each, "dead")
    assert await counts(engine) == {"wait": {"sleeping": 5}, "dies": {"dead": 2}}
    await handles[0].signal(go("x"))
    await handles[0].result()
    await handles[1].cancel()
    await handles[2].terminate()
    await lab.in_state(handles[1], "cancelled")
    assert (await counts(engine))["wait"] == {
        "sleeping": 2,
        "complete": 1,
        "cancelled": 1,
        "terminated": 1,
    }
    assert not any((await engine.admin.stats()).signals.values())


async def test_the_metrics_of_an_engine_tell_what_it_did(lab: Lab) -> None:
    @activity(attempts=2, initial=0.1)
    async def flaky(ctx: ActivityContext) -> None:
        if ctx.attempt == 1:
            raise ValueError

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(flaky)
        await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await handle.signal(go("x"))
    await handle.result()
    registry = engine.metrics.registry
    samples = {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.value
    }
    names = {name for name, _ in samples}
    for part in ("activity", "signal", "dispatch", "transaction"):
        assert any(part in name for name in names), part


async def test_a_ray_is_one_trace(lab: Lab) -> None:
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))

    @activity
    async def step(ctx: ActivityContext) -> None: ...

    @workflow
    async def child(ctx: WorkflowContext) -> None:
        await ctx.activity(step)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(step)
        await ctx.sleep(20)
        await ctx.call(child)

    tracing = EngineTracing(provider, clock=lab.clock)
    engine = await lab.engine(work, child, tracing=tracing)
    await (await engine.dispatch(work, ray_id=Id.new())).result()
    spans = exported.get_finished_spans()
    runs = [span for span in spans if "work" in span.name or "child" in span.name]
    steps = [span for span in spans if "step" in span.name]
    assert len(runs) >= 3
    assert len(steps) == 2
    traces = {span.context.trace_id for span in (*runs, *steps) if span.context is not None}
    assert len(traces) == 1


# -- shutdown


async def test_shutdown_waits_for_running_activities_up_to_its_bound(lab: Lab) -> None:
    @activity(timeout=None)
    async def slow(ctx: ActivityContext, seconds: float) -> None:
        calls.append("started")
        await lab.clock.sleep(seconds)
        calls.append("finished")

    @workflow
    async def work(ctx: WorkflowContext, seconds: float) -> str:
        await ctx.activity(slow, seconds)
        return "done"

    engine = await lab.engine(work)
    short = await engine.dispatch(work, 3.0)
    await lab.until(lambda: calls == ["started"])
    await engine.shutdown(timeout=10)
    assert calls == ["started", "finished"]

    engine = await lab.restart(work)
    assert await lab.again(short).result() == "done"
    calls.clear()
    long = await engine.dispatch(work, 1000.0)
    await lab.until(lambda: calls == ["started"])
    before = lab.clock.monotonic()
    await engine.shutdown(timeout=5)
    assert 5 <= lab.clock.monotonic() - before < 6
    assert calls == ["started"]
    engine = await lab.restart(work)
    await lab.until(lambda: calls == ["started", "started"])
    await lab.again(long).terminate()


async def test_an_engine_can_be_shut_down_twice_and_started_again(lab: Lab) -> None:
    engine = await lab.engine(wait)
    await engine.shutdown()
    await engine.shutdown()
    await engine.start()
    handle = await engine.dispatch(wait)
    await handle.signal(go("x"))
    assert await handle.result() == "x"
