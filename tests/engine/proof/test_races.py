"""Two things at the same moment, in either order: the gates of the memory driver force each one.

A gate holds a commit after its transaction has read everything, and the rival's transaction then
reads the same state. Whoever comes second must notice.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.engine.proof.stage import KEYS, Stage

from perdure import (
    ActivityContext,
    Cancelled,
    Engine,
    Handle,
    Id,
    Signal,
    Workflow,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFinished,
    WorkflowTerminated,
    activity,
    workflow,
)
from perdure.engine.database.lease import release_lost
from perdure.engine.history.events import ActivityEvent, decode_event
from perdure.engine.history.location import pack_location
from perdure.kv.chunks import read_value

paid = Signal("paid", int)

# A wait longer than this cannot be in memory any more, and shorter than any safety net.
SOON = 3.0


class Door:
    """Holds the activity `enter` until it is opened."""

    opened: asyncio.Event
    entered: int


@activity(timeout=None)
async def enter(ctx: ActivityContext) -> int:
    Door.entered += 1
    mine = Door.entered
    await Door.opened.wait()
    return mine


@workflow
async def waits(ctx: WorkflowContext) -> int:
    return await ctx.listen(paid)


@workflow
async def waits_bounded(ctx: WorkflowContext) -> int | None:
    number: int | None = await ctx.listen(paid, timeout=1_000_000)
    return number


@workflow
async def child(ctx: WorkflowContext) -> int:
    await ctx.sleep(SOON)
    return 5


@workflow
async def parent(ctx: WorkflowContext) -> int:
    return await ctx.call(child)


@workflow
async def sleeps(ctx: WorkflowContext) -> None:
    try:
        await ctx.sleep(1_000_000)
    except Cancelled:
        await ctx.activity(enter)
        raise


@workflow
async def enters(ctx: WorkflowContext) -> int:
    first = await ctx.activity(enter)
    return first * 10 + await ctx.activity(enter)


WORKFLOWS: tuple[Workflow[Any, Any], ...] = (
    waits,
    waits_bounded,
    child,
    parent,
    sleeps,
    enters,
)


@pytest.fixture
async def stage() -> Stage:
    Door.opened = asyncio.Event()
    Door.entered = 0
    return Stage()


@pytest.fixture
async def engine(stage: Stage) -> Engine:
    return await stage.engine(*WORKFLOWS)


async def at_once(
    stage: Stage, held: str, first: Coroutine[Any, Any, Any] | None, rival: Coroutine[Any, Any, Any]
) -> tuple[Any, Any]:
    """Hold the next commit called `held` (of `first`, or of the worker), let `rival` reach its own
    commit behind it, and open the gate. Returns what the two gave, exceptions included."""
    gate = stage.faults.hold(name=held)
    one = asyncio.ensure_future(first) if first is not None else None
    reached = asyncio.ensure_future(gate.reached())
    await stage.until(reached, within=60)
    other = asyncio.ensure_future(rival)
    await stage.settle()
    assert not other.done()
    gate.open()
    tasks = [task for task in (one, other) if task is not None]
    results = await stage.until(asyncio.gather(*tasks, return_exceptions=True), within=60)
    return (results[0] if one is not None else None), results[-1]


async def overtaken_by_sleep(stage: Stage, held: str, call: Coroutine[Any, Any, Any]) -> None:
    """Hold the commit of `call` while the run, which knows nothing of it, goes to sleep behind."""
    gate = stage.faults.hold(name=held)
    calling = asyncio.ensure_future(call)
    await stage.until(gate.reached(), within=60)
    commits = stage.faults.commits
    await stage.pass_time(1.5)
    assert stage.faults.commits == commits, "the gate holds all that comes later"
    gate.open()
    await stage.until(calling)


@pytest.mark.parametrize("kind", [waits, waits_bounded], ids=lambda kind: str(kind.name))
async def test_a_signal_while_the_suspension_commits(
    stage: Stage, engine: Engine, kind: Workflow[None, Any]
) -> None:
    handle = await engine.dispatch(kind)
    await at_once(stage, "suspend", None, handle.signal(paid(3)))
    assert await stage.until(handle.result(), within=SOON) == 3
    await stage.close()


@pytest.mark.parametrize("kind", [waits, waits_bounded], ids=lambda kind: str(kind.name))
async def test_a_suspension_while_the_signal_commits(
    stage: Stage, engine: Engine, kind: Workflow[None, Any]
) -> None:
    handle = await engine.dispatch(kind)
    await stage.pass_time(0.5)
    await overtaken_by_sleep(stage, "publish", handle.signal(paid(3)))
    assert await stage.until(handle.result(), within=SOON) == 3
    await stage.close()


async def test_a_child_ends_while_its_parent_goes_to_sleep(stage: Stage, engine: Engine) -> None:
    handle = await engine.dispatch(parent)
    gate = stage.faults.hold(name="complete")
    await stage.until(gate.reached(), within=60)
    # The child's end is on its way. Wake the parent, so that it looks, and goes to sleep again.
    waking = asyncio.ensure_future(engine.admin.wake(str(handle.id)))
    await stage.settle()
    gate.open()
    await stage.until(waking)
    assert await stage.until(handle.result(), within=SOON) == 5
    await stage.close()


async def test_a_parent_goes_to_sleep_while_its_child_ends(stage: Stage, engine: Engine) -> None:
    """The suspension is held beyond the end of the child, whose commit stands behind it."""
    handle = await engine.dispatch(parent)
    await stage.pass_time(SOON - 1.3)
    await engine.admin.wake(str(handle.id))
    gate = stage.faults.hold(name="suspend")
    await stage.until(gate.reached(), within=60)
    await stage.pass_time(0.5)
    gate.open()
    assert await stage.until(handle.result(), within=SOON) == 5
    await stage.close()


async def test_a_cancel_while_the_suspension_commits(stage: Stage, engine: Engine) -> None:
    Door.opened.set()
    handle = await engine.dispatch(sleeps)
    await at_once(stage, "suspend", None, handle.cancel("now"))
    with pytest.raises(WorkflowCancelled, match="now"):
        await stage.until(handle.result(), within=SOON)
    assert Door.entered == 1
    await stage.close()


async def test_a_suspension_while_the_cancel_commits(stage: Stage, engine: Engine) -> None:
    Door.opened.set()
    handle = await engine.dispatch(waits)
    await stage.pass_time(0.5)
    await overtaken_by_sleep(stage, "request_cancel", handle.cancel("now"))
    with pytest.raises(WorkflowCancelled, match="now"):
        await stage.until(handle.result(), within=SOON)
    await stage.close()


async def _activity_at(stage: Stage, workflow_id: Id, place: int) -> ActivityEvent | None:
    key = KEYS.history(workflow_id) + pack_location(((place,),))
    stored = await read_value(stage.database.transaction(), key)
    event = None if stored is None else decode_event(stored)
    assert event is None or isinstance(event, ActivityEvent)
    return event


async def test_terminated_while_a_step_commits(stage: Stage, engine: Engine) -> None:
    handle = await engine.dispatch(enters)
    await stage.settle()
    Door.opened.set()
    await at_once(stage, "write_event", None, handle.terminate("stop"))
    await _is_terminated(stage, handle)
    assert await _activity_at(stage, handle.id, 2) is None


async def test_a_step_commits_while_terminated(stage: Stage, engine: Engine) -> None:
    handle = await engine.dispatch(enters)
    await stage.settle()
    gate = stage.faults.hold(name="terminate")
    terminating = asyncio.ensure_future(handle.terminate("stop"))
    await stage.until(gate.reached())
    Door.opened.set()
    await stage.settle()
    gate.open()
    await stage.until(terminating)
    await _is_terminated(stage, handle)
    assert await _activity_at(stage, handle.id, 1) is None, "written after the termination"


async def _is_terminated(stage: Stage, handle: Handle[Any]) -> None:
    with pytest.raises(WorkflowTerminated, match="stop"):
        await stage.until(handle.result(), within=SOON)
    await stage.pass_time(60)
    assert await stage.counts() == {"enters": {"terminated": 1}}
    assert await stage.leftovers() == []
    with pytest.raises(WorkflowFinished):
        await handle.signal(paid(1))
    assert all(engine.worker is None or engine.worker.running == 0 for engine in stage.engines)
    await stage.close()


@pytest.mark.parametrize("unique", [True, "order 7"], ids=["by tags", "by key"])
async def test_two_unique_dispatches_start_one(
    stage: Stage, engine: Engine, unique: bool | str
) -> None:
    def dispatching() -> Coroutine[Any, Any, Handle[int]]:
        return engine.dispatch(waits, tags={"order": 7}, unique=unique)

    first, second = await at_once(stage, "dispatch", dispatching(), dispatching())
    assert first.id == second.id
    assert sum((await stage.counts())["waits"].values()) == 1
    await stage.close()


@pytest.mark.parametrize("unique", [True, "order 7"], ids=["by tags", "by key"])
async def test_a_unique_dispatch_while_the_holder_ends(
    stage: Stage, engine: Engine, unique: bool | str
) -> None:
    handle = await engine.dispatch(waits, tags={"order": 7}, unique=unique)
    await stage.pass_time(10)
    await handle.signal(paid(1))
    gate = stage.faults.hold(name="complete")
    await stage.until(gate.reached())
    dispatching = asyncio.ensure_future(engine.dispatch(waits, tags={"order": 7}, unique=unique))
    await stage.settle()
    gate.open()
    second = await stage.until(dispatching)
    # It read the holder as open, before that one ended: either answer is a serial order.
    await stage.pass_time(10)
    counts = (await stage.counts())["waits"]
    assert counts == ({"complete": 1} if second.id == handle.id else {"complete": 1, "sleeping": 1})
    await stage.close()


# -- zombies


def freeze(engine: Engine) -> None:
    """Stop a worker's loops but not its runs: a process that hangs in everything but one task."""
    assert engine.worker is not None
    for loop in engine.worker._loops:
        loop.cancel()


async def test_a_zombie_writes_nothing(stage: Stage, engine: Engine) -> None:
    """Its lease is taken while its activity runs: not a row of it reaches the store."""
    handle = await engine.dispatch(enters)
    await stage.settle()
    freeze(engine)
    heir = await stage.engine(*WORKFLOWS)
    await stage.until(_entered(stage, 2), within=100)
    zombies = engine.worker
    assert zombies is not None
    assert zombies.running == 1
    before = dict(await _rows(stage))

    # Both are inside of the activity. The zombie comes back first; its result must go nowhere.
    heirs_task = Door.opened
    Door.opened = asyncio.Event()
    gate = stage.faults.hold(name="write_event", durable=False)
    heirs_task.set()
    await stage.until(gate.reached())
    gate.open()
    await stage.settle()
    assert await _activity_at(stage, handle.id, 1) is not None
    event = await _activity_at(stage, handle.id, 1)
    assert event is not None
    assert event.output == b"\x02", "what the zombie's call returned was recorded"
    assert zombies.running == 0
    assert before.keys() <= dict(await _rows(stage)).keys()

    Door.opened.set()
    assert await stage.until(heir.handle(enters, handle.id).result(), within=SOON) == 23
    assert await stage.leftovers() == []


async def _entered(stage: Stage, times: int) -> None:
    while Door.entered < times:
        await stage.clock.sleep(1)


async def _rows(stage: Stage) -> list[tuple[bytes, bytes]]:
    return await stage.database.transaction().get_range(b"", b"\xff")


async def test_a_worker_takes_back_what_it_had_lost(stage: Stage, engine: Engine) -> None:
    """The same workflow twice in one worker: the first run is a zombie, the second one counts."""
    handle = await engine.dispatch(enters)
    await stage.settle()
    assert engine.worker is not None
    await release_lost(stage.database, KEYS, engine.worker.id, stage.clock.now(), 10)
    engine.services.doorbell.ring("enters")
    await stage.until(_entered(stage, 2), within=SOON)
    assert engine.worker.running == 1
    Door.opened.set()
    assert await stage.until(handle.result(), within=SOON) == 23
    await stage.pass_time(60)
    assert engine.worker.running == 0
    assert Door.entered == 3
    await stage.close()
