"""The same on RocksDB, with real time: the whole model in a few stories."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Break,
    Signal,
    WorkflowContext,
    activity,
    workflow,
)

go = Signal("go", str)
nobody = Signal("nobody", str)
calls: list[str] = []


@dataclass
class Ledger:
    lines: list[str] = field(default_factory=list)


@activity(attempts=3, initial=0.01, jitter=0.01)
async def charge(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    if ctx.attempt == 1:
        raise ValueError("try again")
    ctx.state(Ledger).lines.append(what)
    return what


@activity
def in_a_thread(ctx: ActivityContext, n: int) -> int:
    return n * n


@workflow
async def child(ctx: WorkflowContext, name: str) -> str:
    await ctx.sleep(0.1)
    return name + await ctx.listen(go)


@workflow
async def story(ctx: WorkflowContext) -> list[str]:
    async def body(ctx: WorkflowContext, told: list[str]) -> Break[list[str]] | None:
        told.append(str(await ctx.activity(in_a_thread, len(told))))
        return Break(told) if len(told) == 5 else None

    await ctx.activity(charge, "first")
    mine = await ctx.dispatch(child, "child ", tags={"of": "story"})
    told = await ctx.loop(body, list[str](), commit_every=2)
    nothing = await ctx.listen(nobody, timeout=0.1)
    answer, from_child = await ctx.join(ctx.listen(go), mine.result())
    return [*told, str(nothing), answer, from_child]


async def test_a_story_with_a_restart_in_its_middle(disk_lab: Lab) -> None:
    lab = disk_lab
    calls.clear()
    engine = await lab.engine(story, child)
    handle = await engine.dispatch(story, tags={"k": 1})
    await lab.asleep(handle)
    engine = await lab.restart(story, child)
    again = await engine.find(story, {"k": 1})
    assert again is not None
    assert again.id == handle.id
    helper = await engine.find(child, {"of": "story"})
    assert helper is not None
    await helper.signal(go("grown"))
    await lab.again(handle).signal(go("yes"))
    result = await lab.again(handle).result(30)
    assert result == ["0", "1", "4", "9", "16", "None", "yes", "child grown"]
    assert calls == ["first", "first"]
    assert await lab.again(handle).state(Ledger) == Ledger(["first"])


async def test_a_store_can_be_moved(disk_lab: Lab, tmp_path: Path) -> None:
    lab = disk_lab
    engine = await lab.engine(child)
    handle = await engine.dispatch(child, "moved ")
    await lab.asleep(handle)
    await engine.shutdown()
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    lab._path = str(tmp_path / "elsewhere")
    await lab.restart(child)
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result(30) == "moved on"


async def test_many_workflows_across_restarts(disk_lab: Lab) -> None:
    lab = disk_lab
    engine = await lab.engine(child)
    handles = [await engine.dispatch(child, f"{n} ") for n in range(50)]
    await lab.restart(child)
    for handle in handles:
        await lab.again(handle).signal(go("ok"))
    await lab.restart(child)
    results = [await lab.again(handle).result(60) for handle in handles]
    assert results == [f"{n} ok" for n in range(50)]
