"""Definitions: names, signatures and types, checked where they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    Activity,
    ActivityContext,
    Message,
    OperationContext,
    Signal,
    Workflow,
    WorkflowContext,
    activity,
    message,
    operation,
    signal,
    workflow,
)
from perdure.engine.definitions import message_and_body, message_of, signal_and_body, signal_of
from perdure.engine.errors import DuplicateName, InvalidDefinition, UnknownWorkflow
from perdure.engine.registry import Registry
from perdure.errors import InvalidName


@dataclass
class Order:
    number: int


@workflow
async def fulfil(ctx: WorkflowContext, order: Order) -> int:
    return order.number


@workflow(name="nightly_report", prune="history")
async def report(ctx: WorkflowContext) -> None:
    """Send the report."""


def test_a_workflow_is_named_after_its_function() -> None:
    assert fulfil.name == "fulfil"
    assert fulfil.input_codec.decode(fulfil.input_codec.encode(Order(7))) == Order(7)


def test_a_name_can_be_kept_when_the_function_is_renamed() -> None:
    assert report.name == "nightly_report"
    assert report.__doc__ == "Send the report."
    assert not report.takes_input


@pytest.mark.parametrize("name", ["", "Upper", "with space", "dash-ed", "ä", "x" * 101, "nul\x00"])
def test_names_out_of_the_alphabet_are_refused(name: str) -> None:
    async def body(ctx: WorkflowContext) -> None: ...

    with pytest.raises(InvalidName, match="workflow name"):
        Workflow(body, name=name)
    with pytest.raises(InvalidName, match="signal name"):
        Signal(name, int)
    with pytest.raises(InvalidName, match="message name"):
        Message(name, int)


async def _no_parameters() -> None: ...


async def _three_parameters(ctx: Any, a: int, b: int) -> None: ...


async def _keyword_only(ctx: Any, *, a: int) -> None: ...


async def _variable(ctx: Any, *a: int) -> None: ...


@pytest.mark.parametrize("function", [_no_parameters, _three_parameters, _keyword_only, _variable])
def test_signatures_other_than_ctx_and_input_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidDefinition, match="ctx"):
        Workflow(function)


def test_a_workflow_must_be_async() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    with pytest.raises(InvalidDefinition, match="async"):
        Workflow(plain)  # type: ignore[arg-type]


def test_only_plain_functions_can_run_in_a_process() -> None:
    async def waiting(ctx: ActivityContext) -> None: ...

    with pytest.raises(InvalidDefinition, match="plain function"):
        Activity(waiting, process=True)


def test_activities_may_be_plain_or_async() -> None:
    @activity
    def plain(ctx: ActivityContext, n: int) -> int:
        return n

    @activity(attempts=2)
    async def waiting(ctx: ActivityContext, n: int) -> int:
        return n

    assert not plain.is_async
    assert waiting.is_async
    assert waiting.retry.attempts == 2


def test_signal_types_know_their_name() -> None:
    @signal
    @dataclass
    class OrderPaid:
        amount: int

    @signal(name="paid_again")
    @dataclass
    class Other:
        amount: int

    assert signal_of(OrderPaid).name == "order_paid"
    assert signal_of(Other).name == "paid_again"
    kind, body = signal_and_body(OrderPaid(3))
    assert (kind.name, body) == ("order_paid", OrderPaid(3))


def test_messages_and_operations_take_a_name_too() -> None:
    @message(name="progress")
    @dataclass
    class Percent:
        value: int

    @operation(name="quote", timeout=None)
    async def ask_for_price(ctx: OperationContext) -> int:
        return 1

    assert message_of(Percent).name == "progress"
    assert (ask_for_price.name, ask_for_price.timeout) == ("quote", None)


def test_signals_over_builtins_wrap_their_bodies() -> None:
    paid = Signal("paid", int)
    assert signal_and_body(paid(3)) == (paid, 3)


def test_a_subclass_is_not_silently_the_signal_of_its_base() -> None:
    @signal
    @dataclass
    class Base:
        amount: int

    @dataclass
    class Derived(Base):
        more: int = 0

    with pytest.raises(InvalidDefinition, match="@signal"):
        signal_and_body(Derived(1))


def test_message_types_know_their_name() -> None:
    @message
    @dataclass
    class HTTPStatus:
        code: int

    kind, body = message_and_body(HTTPStatus(3))
    assert (kind.name, body.code) == ("http_status", 3)


def test_unmarked_types_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidDefinition, match="mark the class with @signal"):
        signal_and_body(Order(1))
    with pytest.raises(InvalidDefinition, match="mark the class with @message"):
        message_and_body(Order(1))


def test_a_registry_holds_one_definition_per_name() -> None:
    async def body(ctx: WorkflowContext) -> None: ...

    registry = Registry([fulfil, fulfil])
    with pytest.raises(DuplicateName, match="fulfil"):
        registry.add(Workflow(body, name="fulfil"))
    with pytest.raises(UnknownWorkflow, match="known: fulfil"):
        registry.get("nothing")
    assert registry.names == {"fulfil"}
