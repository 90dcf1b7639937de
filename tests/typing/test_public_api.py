"""What type checkers know about workflow code.

The function below is never called: the type checker reads it, as part of the checks of this whole
folder. A wrong `assert_type` is an error there, and so is a mistake of the user that is no longer
noticed, because its `type: ignore` is then unused. The one test keeps the rest importable.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, assert_type
from uuid import UUID

from perdure import (
    Activity,
    ActivityContext,
    Break,
    Child,
    Continue,
    Engine,
    Handle,
    Id,
    Operation,
    OperationContext,
    Signal,
    Step,
    Workflow,
    WorkflowContext,
    activity,
    message,
    operation,
    signal,
    workflow,
)
from perdure.engine.client import MessageSubscription


@dataclass
class Order:
    number: int


@dataclass
class Receipt:
    text: str


@signal
@dataclass
class Approved:
    by: str


@message
@dataclass
class News:
    text: str


paid = Signal("paid", int)


@activity(attempts=3, timeout=timedelta(seconds=5))
async def charge(ctx: ActivityContext, order: Order) -> Receipt:
    return Receipt(str(order.number))


@activity
def in_a_thread(ctx: ActivityContext, n: int) -> str:
    return str(n)


@activity
async def without_input(ctx: ActivityContext) -> bool:
    return True


@operation
async def lookup(ctx: OperationContext, key: str) -> list[int]:
    return [len(key)]


@workflow
async def fulfil(ctx: WorkflowContext, order: Order) -> Receipt:
    return await ctx.activity(charge, order)


@workflow(prune="history")
async def nightly(ctx: WorkflowContext) -> int:
    return 1


def definitions() -> None:
    assert_type(charge, Activity[Order, Receipt])
    assert_type(in_a_thread, Activity[int, str])
    assert_type(without_input, Activity[None, bool])
    assert_type(lookup, Operation[str, list[int]])
    assert_type(fulfil, Workflow[Order, Receipt])
    assert_type(nightly, Workflow[None, int])
    assert_type(paid, Signal[int])
    assert_type(Approved("Ada"), Approved)


async def activities(ctx: WorkflowContext) -> None:
    assert_type(ctx.activity(charge, Order(1)), Step[Receipt])
    assert_type(await ctx.activity(charge, Order(1)), Receipt)
    assert_type(await ctx.activity(charge, Order(1), attempts=1, timeout=3), Receipt)
    assert_type(await ctx.activity(in_a_thread, 1), str)
    assert_type(await ctx.activity(without_input), bool)
    assert_type(str(await ctx.activity(in_a_thread, 1)), str)
    await ctx.activity(charge, "not an order")  # type: ignore[misc]
    await ctx.activity(charge)  # type: ignore[arg-type]
    await ctx.activity(fulfil, Order(1))  # type: ignore[call-overload]


async def signals(ctx: WorkflowContext) -> None:
    assert_type(await ctx.listen(Approved), Approved)
    assert_type(await ctx.listen(paid), int)
    assert_type(await ctx.listen(Approved, paid), Approved | int)
    assert_type(await ctx.listen(Approved, timeout=1), Approved | None)
    assert_type(await ctx.listen(Approved, paid, until=5), Approved | int | None)
    assert_type(await ctx.listen_many(Approved, n=3), list[Approved])
    assert_type(await ctx.listen_many(paid, n=3, timeout=timedelta(1)), list[int])
    assert_type(await ctx.signal(Id.new(), Approved("Ada")), bool)
    assert_type(await ctx.signal_tagged(fulfil, {"a": 1}, paid(3), missing_ok=True), bool)
    assert_type(await ctx.message(News("x")), None)
    paid("not a number")  # type: ignore[arg-type]
    await ctx.signal("an id as text", paid(1))  # type: ignore[arg-type]
    (await ctx.listen(Approved, timeout=1)).by  # type: ignore[union-attr]  # noqa: B018


async def children(ctx: WorkflowContext) -> None:
    child = await ctx.dispatch(fulfil, Order(1), tags={"k": True}, unique="key")
    assert_type(child, Child[Receipt])
    assert_type(await child.result(), Receipt)
    assert_type(await ctx.call(fulfil, Order(1)), Receipt)
    assert_type(await ctx.call(nightly), int)
    assert_type(await ctx.inline(fulfil, Order(1)), Receipt)
    assert_type(await ctx.inline(nightly), int)
    await ctx.call(fulfil, 1)  # type: ignore[misc]
    await ctx.dispatch(fulfil)  # type: ignore[arg-type]
    await ctx.dispatch(fulfil, Order(1), tags={"k": 1.5})  # type: ignore[dict-item]


async def structure(ctx: WorkflowContext) -> None:
    async def closure(ctx: WorkflowContext) -> Order:
        return Order(1)

    joined = await ctx.join(ctx.activity(charge, Order(1)), closure, ctx.listen(paid, timeout=1))
    assert_type(joined, tuple[Receipt, Order, int | None])
    assert_type(await ctx.join_all([ctx.activity(in_a_thread, n) for n in range(3)]), list[str])
    assert_type(await ctx.closure(closure), Order)

    async def counting(ctx: WorkflowContext, at: list[int]) -> Break[str] | None:
        return Break("enough") if at else None

    async def replacing(ctx: WorkflowContext, n: int) -> Break[Receipt] | Continue[int]:
        return Break(Receipt("")) if n else Continue(n + 1)

    async def stateless(ctx: WorkflowContext, state: None) -> Break[bytes] | None:
        return Break(b"")

    assert_type(await ctx.loop(counting, [1], commit_every=5), str)
    assert_type(await ctx.loop(replacing, 0), Receipt)
    assert_type(await ctx.loop(stateless), bytes)
    await ctx.loop(counting, "a state of another type")  # type: ignore[arg-type]
    await ctx.join(1, 2)  # type: ignore[call-overload]


async def facts(ctx: WorkflowContext) -> None:
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), Random)
    assert_type(ctx.uuid(), UUID)
    assert_type(ctx.workflow_id, Id)
    assert_type(ctx.parent_id, Id | None)
    assert_type(ctx.v(2), WorkflowContext)
    assert_type(await ctx.check_version(2), int)
    assert_type(await ctx.sleep(timedelta(days=1)), None)
    await ctx.sleep("a minute")  # type: ignore[arg-type]
    await ctx.removed("acitvity")  # type: ignore[arg-type]


async def inside_an_activity(ctx: ActivityContext) -> None:
    assert_type(ctx.state(Order), Order)
    assert_type(await ctx.op(lookup, "key"), list[int])
    assert_type(await ctx.dispatch(fulfil, Order(1)), Handle[Receipt])
    assert_type(await ctx.find(fulfil), Handle[Receipt] | None)
    assert_type(ctx.wait(ctx.op(lookup, "key")), list[int])


async def outside(engine: Engine) -> None:
    handle = await engine.dispatch(fulfil, Order(1), tags={"a": "x", "b": 1, "c": True})
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(timeout=60), Receipt)
    assert_type(await (await engine.dispatch(nightly)).result(), int)
    assert_type(await (await engine.dispatch("by_name", 1)).result(), Any)
    assert_type(engine.handle(fulfil, Id.new()), Handle[Receipt])
    assert_type(await engine.find(fulfil, {"a": "x"}), Handle[Receipt] | None)
    assert_type(await handle.state(Order), Order | None)
    assert_type(await handle.signal(paid(1)), Id)
    assert_type(engine.subscribe(News), MessageSubscription[News])
    assert_type(await engine.op(lookup, "key"), list[int])
    await engine.dispatch(fulfil, "not an order")  # type: ignore[misc]
    await engine.dispatch(fulfil)  # type: ignore[arg-type]
    await engine.op(lookup, 5)  # type: ignore[misc]


READ: list[Callable[..., Awaitable[None] | None]] = [
    definitions,
    activities,
    signals,
    children,
    structure,
    facts,
    inside_an_activity,
    outside,
]


def test_what_a_type_checker_is_told_is_true_of_the_objects() -> None:
    definitions()
    assert len(READ) == 8
    assert charge.input_codec.annotation is Order
    assert charge.output_codec.annotation is Receipt
    assert nightly.output_codec.annotation is int
    assert paid.type is int
