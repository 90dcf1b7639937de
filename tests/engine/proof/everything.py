"""Workflows that take every kind of step, for proofs that interrupt them everywhere."""

from dataclasses import dataclass, field
from typing import Any

from tests.engine.proof.stage import Stage

from perdure import (
    ActivityContext,
    Break,
    Cancelled,
    Id,
    Signal,
    WorkflowContext,
    activity,
    message,
    signal,
    workflow,
)


class Scene:
    """Where the activities report to."""

    stage: Stage


@signal
@dataclass
class Answer:
    number: int


ask = Signal("ask", int)
late = Signal("late", str)
burst = Signal("burst", int)


@message
@dataclass
class Progress:
    step: str


@dataclass
class Ledger:
    """The state: every finished activity writes itself down exactly once."""

    lines: list[str] = field(default_factory=list)


@activity(attempts=4, initial=0.3, factor=30, jitter=0.0)
async def flaky(ctx: ActivityContext, what: str) -> int:
    """Fail twice: once with a pause short enough for memory, once with a long one."""
    await Scene.stage.note(ctx, f"flaky {what} {ctx.attempt}")
    ctx.state(Ledger).lines.append(f"{what} {ctx.attempt}")
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt}")
    attempt: int = ctx.attempt
    return attempt


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    await Scene.stage.note(ctx, what)
    ctx.state(Ledger).lines.append(what)
    return what.upper()


@activity
async def apart(ctx: ActivityContext, what: str) -> str:
    """Like `note`, for joins: without the state."""
    await Scene.stage.note(ctx, what)
    return what.upper()


@workflow
async def helper(ctx: WorkflowContext, parent: str) -> int:
    """A child: answers what it is asked, and has something to say later."""
    asked = await ctx.listen(ask)
    target = Id.parse(parent)
    await ctx.signal(target, Answer(asked + 1))
    for number in range(3):
        await ctx.signal(target, burst(number))
    await ctx.sleep(20)
    await ctx.signal(target, late("better than never"))
    return asked * 2


@workflow
async def double(ctx: WorkflowContext, number: int) -> int:
    await ctx.activity(apart, f"double {number}")
    return number * 2


@workflow
async def inlined(ctx: WorkflowContext, what: str) -> str:
    await ctx.activity(note, f"inline {what}")
    return await ctx.activity(note, f"inline again {what}")


async def inner(ctx: WorkflowContext, numbers: list[int]) -> Break[int] | None:
    numbers.append(len(numbers))
    await ctx.activity(note, f"inner {len(numbers)}")
    return Break(sum(numbers)) if len(numbers) == 3 else None


async def outer(ctx: WorkflowContext, sums: list[int]) -> Break[list[int]] | None:
    total = await ctx.loop(inner, [len(sums)], commit_every=1)
    sums.append(total)
    await ctx.activity(note, f"outer {len(sums)}")
    return Break(sums) if len(sums) == 3 else None


@workflow
async def everything(ctx: WorkflowContext, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"flaky": await ctx.activity(flaky, "first")}
    found["version"] = await ctx.check_version(2)
    found["versioned"] = await ctx.v(2).activity(note, "versioned")
    await ctx.removed("activity", "gone")
    await ctx.set_tags({"step": 1, "naïve": "ü\0"})
    await ctx.message(Progress("begun"), "topic")

    child = await ctx.dispatch(helper, str(ctx.workflow_id), tags={"of": "everything"})
    await ctx.signal(child, ask(number))
    found["answer"] = (await ctx.listen(Answer)).number
    found["late"] = await ctx.listen(late, timeout=10_000)
    found["burst"] = await ctx.listen_many(burst, n=5, timeout=1000)
    found["nothing"] = await ctx.listen(burst, timeout=5)
    found["child"] = await child.result()
    found["missing"] = await ctx.signal_tagged(helper, {"of": "nobody"}, ask(1), missing_ok=True)

    found["called"] = await ctx.call(double, number)
    found["inlined"] = await ctx.inline(inlined, "text")
    await ctx.sleep(0.2)
    await ctx.sleep(500)
    found["loop"] = await ctx.loop(outer, [], commit_every=2)

    async def branch(ctx: WorkflowContext) -> str:
        first = await ctx.activity(apart, "in a branch")
        await ctx.sleep(30)
        return first + await ctx.activity(apart, "at its end")

    found["join"] = await ctx.join(
        ctx.activity(apart, "in a join"), branch, ctx.call(double, 100), ctx.sleep(10)
    )
    found["last"] = await ctx.activity(note, "last")
    return found


def expected(number: int) -> dict[str, Any]:
    """What `everything` returns."""
    return {
        "flaky": 3,
        "version": 2,
        "versioned": "VERSIONED",
        "answer": number + 1,
        "late": "better than never",
        "burst": [0, 1, 2],
        "nothing": None,
        "child": number * 2,
        "missing": False,
        "called": number * 2,
        "inlined": "INLINE AGAIN TEXT",
        "loop": [3, 4, 5],
        "join": ["IN A JOIN", "IN A BRANCHAT ITS END", 200, None],
        "last": "LAST",
    }


LEDGER = [
    "first 3",
    "versioned",
    "inline text",
    "inline again text",
    *(line for n in (1, 2, 3) for line in ("inner 2", "inner 3", f"outer {n}")),
    "last",
]

SAGA_LEDGER = ["book flight", "book hotel", "release hotel", "release flight", "tell: rain 3"]


@workflow
async def saga(ctx: WorkflowContext) -> str:
    """Book twice, wait for days; a cancel in the meantime is compensated for."""
    booked = []
    try:
        for what in ("flight", "hotel"):
            await ctx.activity(note, f"book {what}")
            booked.append(what)
        await ctx.sleep(1_000_000)
    except Cancelled as cancelled:
        for what in reversed(booked):
            await ctx.activity(note, f"release {what}")
            await ctx.sleep(5)
        await ctx.activity(flaky, f"tell: {cancelled.reason}")
        raise
    return "travelled"
