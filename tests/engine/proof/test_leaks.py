"""After the work is done nothing is left in memory: no task, timer, subscription or snapshot."""

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

from tests.engine.proof.everything import Scene, double, everything, helper, saga
from tests.engine.proof.stage import Stage

from perdure import (
    ActivityContext,
    Engine,
    ResultTimeout,
    Signal,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    WorkflowTerminated,
    activity,
    workflow,
)
from perdure.engine.context.run import Run
from perdure.engine.handle import Handle
from perdure.kv.transaction import Transaction
from perdure.pubsub import MemoryPubSub

word = Signal("word", str)


@activity(attempts=1)
async def hangs(ctx: ActivityContext) -> None:
    ctx.heartbeat("alive")
    await asyncio.Event().wait()


@activity
def in_thread(ctx: ActivityContext, given: int) -> int:
    return given


@workflow
async def fails(ctx: WorkflowContext) -> None:
    await ctx.sleep(0.5)
    raise ValueError("as it should")


@workflow
async def times_out(ctx: WorkflowContext) -> None:
    await ctx.activity(hangs, timeout=3)


@workflow
async def listens(ctx: WorkflowContext) -> str:
    return await ctx.listen(word)


WORKFLOWS = (everything, helper, double, saga, fails, times_out, listens)


class Census:
    """What can leak, counted."""

    def __init__(self, stage: Stage) -> None:
        gc.collect()
        self.tasks = len(asyncio.all_tasks())
        self.timers = sum(1 for timer in stage.clock._timers if timer.callback is not None)
        exchange = MemoryPubSub.shared(stage.pubsub_name)._exchange
        self.subscriptions = sum(len(each) for each in exchange.subscriptions.values())
        alive = gc.get_objects()
        self.runs = sum(1 for thing in alive if type(thing) is Run)
        self.transactions = sum(1 for thing in alive if type(thing) is Transaction)

    def __repr__(self) -> str:
        return repr(vars(self))


async def work(stage: Stage, engine: Engine, times: int) -> None:
    """Every way for a workflow to end, and callers who do not wait for it."""
    handles: list[Handle[Any]] = []
    for number in range(times):
        handles.append(await engine.dispatch(everything, number))
        handles.append(await engine.dispatch(fails))
        handles.append(await engine.dispatch(times_out))
        cancelled = await engine.dispatch(saga)
        await stage.pass_time(30)
        await cancelled.cancel()
        terminated = await engine.dispatch(listens)
        await stage.pass_time(0.2)
        await terminated.terminate()
        handles += [cancelled, terminated]
        with suppress(ResultTimeout):
            await stage.until(handles[0].result(timeout=0.001))
        gone = asyncio.ensure_future(handles[0].result())
        await stage.settle()
        gone.cancel()
    for handle in handles:
        with suppress(WorkflowFailed, WorkflowCancelled, WorkflowTerminated):
            await stage.until(handle.result())


async def test_nothing_is_left_in_memory(stage: Stage) -> None:
    Scene.stage = stage
    engine = await stage.engine(*WORKFLOWS)
    await work(stage, engine, 1)
    await stage.pass_time(100)
    before = Census(stage)
    await work(stage, engine, 10)
    await stage.pass_time(100)
    after = Census(stage)
    assert vars(after) == vars(before)
    assert engine.worker is not None
    assert engine.worker.running == 0
    assert not engine.worker._tasks
    assert len(engine.worker._timers) == 0
    assert after.runs == 0


async def test_no_old_version_is_kept(stage: Stage) -> None:
    """A snapshot that is held would make the store keep what it could see."""
    Scene.stage = stage
    engine = await stage.engine(*WORKFLOWS)
    await work(stage, engine, 2)
    gc.collect()
    await stage.pass_time(100)
    chained = [key for key, state in stage.driver._rows.items() if state[2] is not None]
    assert len(chained) < 20, "superseded values are kept"
    assert len(stage.driver._alive) < 20


async def test_nothing_is_left_after_shutdown(stage: Stage) -> None:
    Scene.stage = stage
    tasks = asyncio.all_tasks()
    engine = await stage.engine(*WORKFLOWS)
    await work(stage, engine, 1)
    waiting = await engine.dispatch(listens)
    services = weakref.ref(engine.services.client)
    del waiting
    await stage.until(engine.shutdown())
    stage.engines.clear()
    del engine
    await stage.settle()
    assert asyncio.all_tasks() == tasks
    census = Census(stage)
    assert census.timers == 0
    assert census.subscriptions == 0
    assert services() is None, "something still holds the engine"


async def test_engines_that_come_and_go(stage: Stage) -> None:
    Scene.stage = stage

    async def once() -> None:
        engine = await stage.engine(*WORKFLOWS)
        await stage.until((await engine.dispatch(double, 1)).result())
        await stage.until(engine.shutdown())
        stage.engines.remove(engine)

    await once()
    before = Census(stage)
    for _ in range(5):
        await once()
    assert vars(Census(stage)) == vars(before)
