"""The victim of the crash test of the engine: runs workflows until it is killed, or all are done.

Started as a program with the folder of a store, a file for its log, and the number of workflows. It
dispatches them all (the ids follow from the numbers, so a second life finds those of the first),
says "ready", waits for every result and checks it, and says "done". Whatever is wrong goes into the
log as a line that begins with "wrong"; every call of an activity is a line that begins with "call".
"""

import asyncio
import dataclasses
import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from tests.engine.proof.stage import OPTIONS, Stage

from perdure import (
    ActivityContext,
    Break,
    Engine,
    Id,
    Signal,
    WorkflowContext,
    activity,
    workflow,
)

ready = Signal("ready", int)
CONCURRENT = 60


class Log:
    """An append-only file: what is written survives the death of the process."""

    file: int
    stage: Stage

    @classmethod
    def line(cls, text: str) -> None:
        os.write(cls.file, f"{text}\n".encode())


class Watcher(Stage):
    """The part of a stage that the activities report to, on a real store."""

    def __init__(self, engine: Engine) -> None:
        self.ran = Calls()
        self.wrong = Wrong()
        self.database = engine.services.database


class Calls(Counter[str]):
    """Counts into the log."""

    def __setitem__(self, key: str, count: int) -> None:
        Log.line(f"call {key}")


class Wrong(list[str]):
    """A list that is the log."""

    def append(self, text: str) -> None:
        Log.line(f"wrong {text}")


@dataclass
class Ledger:
    lines: list[str] = field(default_factory=list)


@activity(initial=0.01, jitter=0.0)
async def book(ctx: ActivityContext, what: str) -> str:
    await Log.stage.note(ctx, what)
    ctx.state(Ledger).lines.append(what)
    if ctx.attempt == 1 and what.endswith("7"):
        raise ConnectionError
    await asyncio.sleep(0)
    return what


@activity
async def apart(ctx: ActivityContext, what: str) -> str:
    await Log.stage.note(ctx, what)
    return what


@activity
def in_thread(ctx: ActivityContext, what: str) -> str:
    return what


@workflow
async def part(ctx: WorkflowContext, number: int) -> int:
    await ctx.activity(apart, f"{number} part")
    got = await ctx.listen(ready)
    await ctx.sleep(0.05)
    return got * 2


@workflow
async def order(ctx: WorkflowContext, number: int) -> int:
    await ctx.activity(book, f"{number} first")
    child = await ctx.dispatch(part, number, tags={"of": number}, unique=f"part {number}")
    assert await ctx.listen(ready, timeout=0.01) is None
    await ctx.signal(child, ready(number))

    async def body(ctx: WorkflowContext, done: list[int]) -> Break[int] | None:
        await ctx.activity(book, f"{number} loop {len(done)}")
        done.append(len(done))
        return Break(sum(done)) if len(done) == 9 else None

    total = await ctx.loop(body, [], commit_every=3)

    async def branch(ctx: WorkflowContext) -> str:
        await ctx.sleep(0.02)
        return await ctx.activity(apart, f"{number} branch")

    await ctx.join(branch, ctx.activity(in_thread, "x" * 10_000), ctx.sleep(0.03))
    doubled = await child.result()
    await ctx.activity(book, f"{number} last")
    return total + doubled


def id_of(number: int) -> Id:
    return Id.new(random_bytes=random.Random(number).randbytes)


def ledger_of(number: int) -> list[str]:
    return [
        f"{number} first",
        *(f"{number} loop {i}" for i in range(9)),
        f"{number} last",
    ]


async def check(engine: Engine, number: int) -> None:
    handle = await engine.dispatch(order, number, id=id_of(number), unique=f"order {number}")
    if handle.id != id_of(number):
        Log.line(f"wrong order {number} exists twice")
    result = await handle.result()
    if result != 36 + 2 * number:
        Log.line(f"wrong result of {number}: {result}")
    state = await handle.state(Ledger)
    if state is None or state.lines != ledger_of(number):
        Log.line(f"wrong state of {number}: {state}")


async def main(folder: str, log: str, count: int) -> None:
    Log.file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    options = dataclasses.replace(OPTIONS, linger=0.02)
    async with Engine(folder, workflows=[order, part], options=options) as engine:
        Log.stage = Watcher(engine)
        limit = asyncio.Semaphore(CONCURRENT)

        async def one(number: int) -> None:
            async with limit:
                await check(engine, number)

        os.write(1, b"ready\n")
        await asyncio.gather(*(one(number) for number in range(count)))
        for row in await Log.stage.leftovers():
            Log.line(f"wrong row left: {row}")
        counts = await Log.stage.counts()
        if counts != {"order": {"complete": count}, "part": {"complete": count}}:
            Log.line(f"wrong counters: {counts}")
    os.write(1, b"done\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
