"""Wrong values are refused where they are given, not found later in a dead workflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from perdure import Engine, PayloadError, Signal, WorkflowContext, workflow

paid = Signal("paid", int)


@dataclass
class Order:
    number: int


@workflow
async def fulfil(ctx: WorkflowContext, order: Order) -> int:
    return await ctx.listen(paid)


@workflow
async def careless(ctx: WorkflowContext) -> str:
    try:
        await ctx.call(fulfil, cast("Any", Order("seven")))  # type: ignore[arg-type]
    except PayloadError as error:
        return str(error)
    return "it was taken"


async def test_an_input_of_the_wrong_type_is_refused_at_dispatch() -> None:
    async with Engine("memory:", workflows=[fulfil]) as engine:
        with pytest.raises(PayloadError, match='input of workflow "fulfil"'):
            await engine.dispatch(fulfil, Order("seven"))  # type: ignore[arg-type]
        assert (await engine.admin.list()).workflows == []


async def test_an_input_of_the_wrong_type_is_refused_in_the_parent() -> None:
    async with Engine("memory:", workflows=[fulfil, careless]) as engine:
        handle = await engine.dispatch(careless)
        assert 'input of workflow "fulfil"' in await handle.result(timeout=20)


async def test_a_signal_of_the_wrong_type_is_refused_when_sent() -> None:
    async with Engine("memory:", workflows=[fulfil]) as engine:
        handle = await engine.dispatch(fulfil, Order(7))
        with pytest.raises(PayloadError, match='signal "paid"'):
            await handle.signal(paid(cast("Any", "much")))
        await engine.signal(str(handle.id), paid(3))
        assert await handle.result(timeout=20) == 3
