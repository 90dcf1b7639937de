"""Several workers on one store: who runs what, and what happens when one of them goes away."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.proof.stage import KEYS, OPTIONS, Stage

from perdure import (
    ActivityContext,
    Engine,
    Handle,
    Id,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.engine.database.dispatch import Dispatch, dispatch
from perdure.engine.database.inspect import ListFilter, list_workflows
from perdure.engine.database.lease import due, holders, take
from perdure.engine.database.status import read_status, wake_now
from perdure.engine.history.location import pack_location
from perdure.engine.runner import Runner
from perdure.fleet import Fleet
from perdure.kv.errors import StoreFailed

go = Signal("go", int)


class Scene:
    """What the activities report: who is inside of which workflow, and who ever was."""

    stage: Stage
    inside: Counter[Id]
    workers: defaultdict[Id, set[Id]]
    blocked: asyncio.Event
    swallowed: int


@pytest.fixture(autouse=True)
def scene(stage: Stage) -> None:
    Scene.stage = stage
    Scene.inside = Counter()
    Scene.workers = defaultdict(set)
    Scene.blocked = asyncio.Event()
    Scene.swallowed = 0


@activity(timeout=None)
async def work(ctx: ActivityContext, seconds: float) -> str:
    stage = Scene.stage
    await stage.note(ctx, f"{ctx.workflow_id} {ctx.coordinate}")
    Scene.inside[ctx.workflow_id] += 1
    if Scene.inside[ctx.workflow_id] > 1:
        stage.wrong.append(f"{ctx.workflow_id} runs twice at once")
    worker = ctx._branch.run.lease.worker
    Scene.workers[worker].add(ctx.workflow_id)
    try:
        await stage.clock.sleep(seconds)
    finally:
        Scene.inside[ctx.workflow_id] -= 1
    return str(worker)


@workflow
async def steps(ctx: WorkflowContext, seconds: float) -> list[str]:
    seen = []
    for _ in range(4):
        seen.append(await ctx.activity(work, seconds))
        await ctx.sleep(3)
    return seen


@workflow
async def listens(ctx: WorkflowContext) -> int:
    return await ctx.listen(go)


@activity(timeout=None)
async def stubborn(ctx: ActivityContext) -> str:
    """The first call swallows its cancellation and returns all the same."""
    try:
        await Scene.blocked.wait()
    except asyncio.CancelledError:
        Scene.swallowed += 1
    return "done"


@workflow
async def blocks(ctx: WorkflowContext) -> str:
    result = await ctx.activity(stubborn)
    await ctx.activity(work, 0.0)
    return result


@workflow
async def parent(ctx: WorkflowContext) -> int:
    return await ctx.call(listens)


WORKFLOWS = (steps, listens, blocks, parent)


async def finished(stage: Stage, handles: list[Handle[Any]], within: float = 1000) -> list[Any]:
    return await stage.until(asyncio.gather(*(h.result() for h in handles)), within=within)


def worker_id(engine: Engine) -> Id:
    assert engine.worker is not None
    return engine.worker.id


# -- sharing


async def test_workers_share_and_never_run_one_workflow_twice_at_once(stage: Stage) -> None:
    client = await stage.engine(*WORKFLOWS, worker=False)
    engines = [await stage.engine(*WORKFLOWS) for _ in range(3)]
    await stage.pass_time(11)
    handles = [await client.dispatch(steps, 1.0) for _ in range(60)]
    await finished(stage, handles)
    shares = [len(Scene.workers[worker_id(engine)]) for engine in engines]
    assert min(shares) >= 5, shares
    assert set(stage.ran.values()) == {1}
    assert await stage.leftovers() == []


async def test_a_worker_that_stops_pinging_is_succeeded(stage: Stage) -> None:
    dying = await stage.engine(*WORKFLOWS)
    handles = [await dying.dispatch(steps, 1e9) for _ in range(10)]
    await stage.settle()
    assert len(Scene.workers[worker_id(dying)]) == 10
    _kill(dying)
    Scene.inside.clear()
    heir = await stage.engine(*WORKFLOWS)
    await stage.pass_time(25)
    assert not Scene.workers[worker_id(heir)], "it was given up too early"
    await stage.pass_time(30)
    assert len(Scene.workers[worker_id(heir)]) == 10
    assert await holders(stage.database, KEYS) == [worker_id(heir)]
    counts = await stage.counts()
    assert counts == {"steps": {"running": 10}}
    for handle in handles:
        await heir.handle(steps, handle.id).terminate()
    stage.engines.remove(dying)


def _kill(engine: Engine) -> None:
    """End everything a worker does, without a word to the store."""
    assert engine.worker is not None
    for task in (*engine.worker._loops, *engine.worker._tasks):
        task.cancel()


# -- shutdown


async def test_a_graceful_shutdown_hands_over(stage: Stage) -> None:
    """Running activities end and count; what waits goes on elsewhere without a pause."""
    first = await stage.engine(*WORKFLOWS)
    handles: list[Handle[Any]] = [await first.dispatch(steps, 5.0) for _ in range(5)]
    waiting = await first.dispatch(listens)
    await stage.pass_time(2)
    second = await stage.engine(*WORKFLOWS)
    first_id = str(worker_id(first))
    await stage.until(first.shutdown())
    stage.engines.remove(first)
    assert await holders(stage.database, KEYS) in ([], [worker_id(second)])
    await second.signal(waiting.id, go(7))
    assert await stage.until(second.handle(listens, waiting.id).result(), within=2) == 7
    results = await finished(stage, [second.handle(steps, h.id) for h in handles])
    assert all(result[0] == first_id != result[1] for result in results)
    assert set(stage.ran.values()) == {1}, "an activity ran twice"


async def test_a_forced_shutdown_gives_back(stage: Stage) -> None:
    """What does not end in time is cancelled, and runs again elsewhere."""
    first = await stage.engine(*WORKFLOWS)
    handle = await first.dispatch(steps, 1e9)
    await stage.settle()
    second = await stage.engine(*WORKFLOWS)
    await stage.until(first.shutdown(timeout=3), within=20)
    stage.engines.remove(first)
    await stage.pass_time(1)
    assert Scene.workers[worker_id(second)] == {handle.id}
    await second.handle(steps, handle.id).terminate()


async def test_a_forced_shutdown_with_an_activity_that_swallows_it(stage: Stage) -> None:
    first = await stage.engine(*WORKFLOWS)
    handle = await first.dispatch(blocks)
    await stage.settle()
    await stage.until(first.shutdown(timeout=1), within=20)
    stage.engines.remove(first)
    assert Scene.swallowed == 1
    second = await stage.engine(*WORKFLOWS)
    assert await stage.until(second.handle(blocks, handle.id).result(), within=5) == "done"
    assert Scene.swallowed == 1, "a result that was recorded counts"


async def test_shutdown_while_work_streams_in(stage: Stage) -> None:
    first = await stage.engine(*WORKFLOWS)
    second = await stage.engine(*WORKFLOWS)
    handles: list[Handle[Any]] = []

    async def stream() -> None:
        for _ in range(50):
            handles.append(await second.dispatch(steps, 0.1))
            await stage.clock.sleep(0.05)

    streaming = asyncio.ensure_future(stream())
    await stage.pass_time(1)
    await stage.until(first.shutdown())
    stage.engines.remove(first)
    await stage.until(streaming)
    await finished(stage, handles)
    assert set(stage.ran.values()) == {1}


# -- leases nobody runs


async def test_a_stray_lease_is_released(stage: Stage) -> None:
    """The store says that this worker runs it; the worker never heard of that."""
    engine = await stage.engine(*WORKFLOWS)
    request = Dispatch(Id.new(), "listens", b"\xc0", {}, Id.new())
    await dispatch(stage.database, KEYS, request, stage.clock.now())
    wakes = await due(stage.database, KEYS, "listens", stage.clock.now() + 1, 10)
    await take(stage.database, KEYS, wakes, worker_id(engine), stage.clock.now())
    handle = engine.handle(listens, request.id)
    await handle.signal(go(1))
    assert await stage.until(handle.result(), within=60) == 1


async def test_a_lease_of_nobody_is_released(stage: Stage) -> None:
    """A worker that was forgotten by all took a workflow in its last moment."""
    engine = await stage.engine(*WORKFLOWS)
    request = Dispatch(Id.new(), "listens", b"\xc0", {}, Id.new())
    await dispatch(stage.database, KEYS, request, stage.clock.now())
    wakes = await due(stage.database, KEYS, "listens", stage.clock.now() + 1, 10)
    await take(stage.database, KEYS, wakes, Id.new(), stage.clock.now())
    handle = engine.handle(listens, request.id)
    await handle.signal(go(1))
    assert await stage.until(handle.result(), within=60) == 1


async def test_a_run_that_fails_in_the_engine_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of the engine leaves no lease for ever."""
    original = Runner._load
    failures = iter([ValueError("a defect")] * 3)

    async def load(self: Runner, lease: Any) -> Any:
        for failure in failures:
            raise failure
        return await original(self, lease)

    monkeypatch.setattr(Runner, "_load", load)
    client = await stage.engine(*WORKFLOWS, worker=False)
    await stage.engine(*WORKFLOWS)
    handle = await client.dispatch(steps, 0.0)
    await finished(stage, [handle], within=200)


# -- rows that cannot be read


ROWS: dict[str, Callable[[Id], bytes]] = {
    "record": KEYS.record,
    "status": KEYS.status,
    "history": lambda wf: KEYS.history(wf) + pack_location(((1,),)),
    "cancel": KEYS.cancel,
    "place": lambda wf: KEYS.history(wf) + b"no location",
}


@pytest.mark.parametrize("damage", [b"\x00\xc1", b"", b"\x07", b"\x01\x00\x00\x00\x09" + bytes(8)])
@pytest.mark.parametrize("row", ROWS)
async def test_an_unreadable_workflow_is_set_aside(stage: Stage, row: str, damage: bytes) -> None:
    """It is dead with the reason; all others go on, before and after it."""
    client = await stage.engine(*WORKFLOWS, worker=False)
    good = [await client.dispatch(listens) for _ in range(3)]
    bad = await client.dispatch(listens)
    good += [await client.dispatch(listens) for _ in range(3)]
    engine = await stage.engine(*WORKFLOWS)
    await stage.pass_time(5)
    await _write(stage, ROWS[row](bad.id), damage)
    for handle in (bad, *good):
        await _wake(stage, handle.id)
    engine.services.doorbell.ring("listens")
    await stage.pass_time(5)
    for handle in good:
        await client.signal(handle.id, go(1))
    assert await finished(stage, good, within=20) == [1] * 6
    assert await holders(stage.database, KEYS) == []
    with pytest.raises(WorkflowFailed, match="Quarantined"):
        await stage.until(bad.result(), within=20)
    counts = await stage.counts()
    assert counts == {"listens": {"complete": 6, "dead": 1}}


async def _write(stage: Stage, key: bytes, value: bytes) -> None:
    tx = stage.database.transaction("damage")
    tx.set(key, value)
    await tx.commit()


async def _wake(stage: Stage, workflow_id: Id) -> None:
    """Put a wake row by hand: the damaged status says nothing any more."""
    tx = stage.database.transaction("wake")
    tx.set(KEYS.wake("listens", stage.clock.now(), workflow_id, 0), b"")
    if (row := await tx.get(KEYS.status(workflow_id))) and len(row) > 20:
        found = await read_status(tx, KEYS, workflow_id)
        assert found is not None
        wake_now(tx, KEYS, workflow_id, found[1], found[0], stage.clock.now())
    await tx.commit()


async def test_failover_past_an_unreadable_status(stage: Stage) -> None:
    dying = await stage.engine(*WORKFLOWS)
    handles = [await dying.dispatch(steps, 1e9) for _ in range(5)]
    await stage.settle()
    _kill(dying)
    stage.engines.remove(dying)
    Scene.inside.clear()
    await _write(stage, KEYS.status(handles[2].id), b"\x00\xc1")
    heir = await stage.engine(*WORKFLOWS)
    await stage.pass_time(60)
    assert len(Scene.workers[worker_id(heir)]) == 4
    with pytest.raises(WorkflowFailed, match="Quarantined"):
        await stage.until(heir.handle(steps, handles[2].id).result(), within=60)
    assert await stage.counts() == {"steps": {"running": 4, "dead": 1}}
    for handle in handles[:2] + handles[3:]:
        await heir.handle(steps, handle.id).terminate()


async def test_the_status_is_damaged_while_it_runs(stage: Stage) -> None:
    engine = await stage.engine(*WORKFLOWS)
    handle = await engine.dispatch(steps, 8.0)
    await stage.settle()
    await _write(stage, KEYS.status(handle.id), b"\x00\xc1")
    await stage.pass_time(120)
    with pytest.raises(WorkflowFailed, match="Quarantined"):
        await stage.until(handle.result(), within=60)
    assert await stage.counts() == {"steps": {"dead": 1}}
    assert await stage.leftovers() == []


async def list_ids(stage: Stage, name: str) -> list[Id]:
    page = await list_workflows(stage.database, KEYS, ListFilter(name=name), 10)
    return [found.id for found in page.workflows]


async def test_a_child_ends_although_its_parent_is_unreadable(stage: Stage) -> None:
    engine = await stage.engine(*WORKFLOWS)
    above = await engine.dispatch(parent)
    await stage.pass_time(5)
    [child] = await list_ids(stage, "listens")
    await _write(stage, KEYS.status(above.id), b"\x00\xc1")
    below = engine.handle(listens, child)
    await below.signal(go(1))
    assert await stage.until(below.result(), within=60) == 1


# -- trouble with the store and with the clock


@pytest.mark.parametrize(
    "name", ["write_event", "suspend", "complete", "take", "load", "fleet_ping", "take_signals"]
)
@pytest.mark.parametrize("kind", ["conflict", "unknown", "unknown applied"])
async def test_no_trouble_with_the_store_kills_a_workflow(
    stage: Stage, name: str, kind: str
) -> None:
    """Hundreds of refusals in a row, and then it works again."""
    client = await stage.engine(*WORKFLOWS, worker=False)
    engine = await stage.engine(*WORKFLOWS)
    if kind == "conflict":
        stage.faults.conflict(name=name, times=350)
    else:
        stage.faults.unknown(name=name, times=12, applied=kind.endswith("applied"))
    handles: list[Handle[Any]] = [await client.dispatch(steps, 0.1) for _ in range(3)]
    handles += [await engine.dispatch(steps, 0.1) for _ in range(3)]
    handles += [await client.dispatch(listens) for _ in range(2)]
    for handle in handles[-2:]:
        await handle.signal(go(1))
    await finished(stage, handles, within=20_000)
    assert await stage.leftovers() == []


async def test_a_store_that_fails_for_a_while(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit of two minutes fails; workers neither die nor kill."""
    engine = await stage.engine(*WORKFLOWS)
    handles = [await engine.dispatch(steps, 1.0) for _ in range(10)]
    await stage.pass_time(2)
    healthy = stage.driver.commit

    async def fails(_batch: Any) -> Any:
        raise StoreFailed("memory:", "no space left")

    monkeypatch.setattr(stage.driver, "commit", fails)
    await stage.pass_time(120)
    monkeypatch.setattr(stage.driver, "commit", healthy)
    await finished(stage, handles, within=200)
    assert await stage.leftovers() == []


async def test_a_clock_that_jumps(stage: Stage) -> None:
    engines = [await stage.engine(*WORKFLOWS) for _ in range(2)]
    jumps = random.Random(3)

    async def jumping() -> None:
        for _ in range(200):
            stage.clock.jump(jumps.choice([-3_600_000, -5_000, -1, 1, 5_000, 3_600_000]))
            await stage.clock.sleep(jumps.uniform(0, 0.3))

    disturbing = asyncio.ensure_future(jumping())
    handles: list[Handle[Any]] = []
    for number in range(40):
        handles.append(await engines[number % 2].dispatch(steps, 0.5))
        await stage.pass_time(0.2)
    await stage.until(disturbing)
    # Deadlines were set by a clock that was hours wrong; they come true by the right one.
    await finished(stage, handles, within=200 * 3_600)
    assert set(stage.ran.values()) == {1}
    assert await stage.leftovers() == []


async def test_work_that_is_due_does_not_wait_for_a_clock_that_was_set_back(stage: Stage) -> None:
    engine = await stage.engine(*WORKFLOWS)
    handle = await engine.dispatch(listens)
    await stage.pass_time(10)
    await handle.signal(go(1))
    stage.clock.jump(-3_600_000)
    assert await stage.until(handle.result(), within=60) == 1


async def test_members_that_cannot_ping_are_given_up_but_come_back(stage: Stage) -> None:
    options = OPTIONS
    first = await stage.engine(*WORKFLOWS, options=options)
    second = await stage.engine(*WORKFLOWS, options=options)
    await stage.pass_time(20)
    assert first.worker is not None
    ping = first.worker._fleet.ping

    async def silent() -> None:
        raise StoreFailed("memory:", "unreachable")

    first.worker._fleet.ping = silent  # type: ignore[method-assign]
    handles = [await second.dispatch(steps, 40.0) for _ in range(6)]
    await stage.pass_time(70)
    first.worker._fleet.ping = ping  # type: ignore[method-assign]
    Scene.inside.clear()
    await finished(stage, handles, within=2000)
    assert await stage.leftovers() == []
    assert len(second.worker._fleet.members if second.worker else ()) == 2
    stage.wrong = [line for line in stage.wrong if "twice at once" not in line]


async def test_an_engine_that_cannot_start_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is free for the next engine, and no task or subscription stays."""
    tasks = asyncio.all_tasks()

    async def fails(_self: Fleet) -> None:
        raise StoreFailed("store", "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Fleet, "join", fails)
        with pytest.raises(StoreFailed):
            await Engine(tmp_path / "store", workflows=WORKFLOWS).start()
    assert asyncio.all_tasks() == tasks
    async with Engine(tmp_path / "store", workflows=WORKFLOWS) as engine:
        handle = await engine.dispatch(listens)
        await handle.signal(go(4))
        assert await handle.result(timeout=20) == 4
