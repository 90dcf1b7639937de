"""Nexus operations: outcomes, ways to cancel, and what may still arrive afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.nexus.nexus_pb2 import NexusOperationCancellationType
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import application_failure, payload

from perdure.core.errors import NondeterminismError
from perdure.core.machines.nexus_operation import NexusOperationMachine

WAIT = NexusOperationCancellationType.WAIT_CANCELLATION_COMPLETED
ABANDON = NexusOperationCancellationType.ABANDON
TRY = NexusOperationCancellationType.TRY_CANCEL
WAIT_REQUESTED = NexusOperationCancellationType.WAIT_CANCELLATION_REQUESTED
ALL = (WAIT, ABANDON, TRY, WAIT_REQUESTED)
CANCEL = lang("request_cancel_nexus_operation", seq=1)
BROKEN = application_failure("broken")
OUTCOMES: dict[str, dict[str, Any]] = {
    "completed": {"result": payload("done")},
    "failed": {"failure": BROKEN},
    "timed_out": {"failure": BROKEN},
    "canceled": {"failure": BROKEN},
}


def nexus_event(what: str, **fields: Any) -> HistoryEvent:
    return event(f"nexus_operation_{what}", **fields)


def new(host: FakeHost, kind: int = WAIT) -> NexusOperationMachine:
    machine = NexusOperationMachine(
        host,
        lang(
            "schedule_nexus_operation",
            seq=1,
            endpoint="endpoint",
            service="service",
            operation="operation",
            input=payload(1),
            nexus_header={"key": "value"},
            cancellation_type=kind,
        ),
    )
    host.prepare()
    return machine


def scheduled(host: FakeHost, kind: int = WAIT) -> NexusOperationMachine:
    machine = new(host, kind)
    machine.on_history(nexus_event("scheduled", service="service", operation="operation"))
    host.prepared.clear()
    return machine


def started(host: FakeHost, kind: int = WAIT) -> NexusOperationMachine:
    machine = scheduled(host, kind)
    machine.on_history(nexus_event("started", operation_token="token"))
    host.jobs.clear()
    return machine


def cancel_in_every_way(machine: NexusOperationMachine) -> None:
    for name in ("CANCEL_WAIT_COMPLETED", "CANCEL_ABANDON", "CANCEL_TRY", "CANCEL_WAIT_REQUESTED"):
        machine.fire(machine.table.events[name], CANCEL)


def test_nexus_async() -> None:
    host = FakeHost()
    machine = new(host)
    attributes = host.commands()[0].schedule_nexus_operation_command_attributes
    assert (attributes.endpoint, attributes.service) == ("endpoint", "service")
    assert attributes.input == payload(1)
    assert dict(attributes.nexus_header) == {"key": "value"}
    machine.on_history(nexus_event("scheduled", service="service", operation="operation"))
    machine.on_history(nexus_event("started", operation_token="token"))
    start = host.take_job().resolve_nexus_operation_start
    assert (start.seq, start.operation_token) == (1, "token")
    machine.on_history(nexus_event("completed", result=payload("done")))
    assert host.take_job().resolve_nexus_operation.result.completed == payload("done")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcome_before_started(outcome: str) -> None:
    """Rows: nexus_basic."""
    host = FakeHost()
    machine = scheduled(host)
    machine.on_history(nexus_event(outcome, **OUTCOMES[outcome]))
    if outcome == "completed":
        start, result = host.jobs
        assert start.resolve_nexus_operation_start.started_sync
        assert result.resolve_nexus_operation.result.completed == payload("done")
    else:
        assert host.take_job().resolve_nexus_operation_start.failed == BROKEN


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcome_after_started(outcome: str) -> None:
    host = FakeHost()
    machine = started(host)
    machine.on_history(nexus_event(outcome, **OUTCOMES[outcome]))
    expected = {"canceled": "cancelled"}.get(outcome, outcome)
    assert host.take_job().resolve_nexus_operation.result.WhichOneof("status") == expected
    cancel_in_every_way(machine)
    machine.on_history(nexus_event("cancel_request_completed"))
    machine.on_history(nexus_event("cancel_request_failed", failure=BROKEN))
    assert not host.jobs


@pytest.mark.parametrize("kind", ALL)
def test_nexus_cancel_before_sent(kind: int) -> None:
    host = FakeHost()
    machine = new(host, kind)
    machine.cancel(CANCEL)
    assert host.commands() == []
    failure = host.take_job().resolve_nexus_operation_start.failed
    assert failure.cause.HasField("canceled_failure_info")
    assert failure.nexus_operation_execution_failure_info.service == "service"


@pytest.mark.parametrize("begin", [scheduled, started], ids=["scheduled", "started"])
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_nexus_cancellation_types(begin: Any, kind: int, outcome: str) -> None:
    """Lang hears of the end once, whatever the order of things.

    Rows: nexus_cancel_before_start.
    """
    host = FakeHost()
    machine = begin(host, kind)
    machine.cancel(CANCEL)
    machine.cancel(CANCEL)
    host.prepare()
    assert len(host.commands()) == (0 if kind == ABANDON else 1)
    if kind in (TRY, ABANDON):
        cancelled = host.take_job().resolve_nexus_operation.result.cancelled
        assert cancelled.message == "Nexus operation cancelled after starting"
    else:
        assert not host.jobs
    if kind != ABANDON:
        machine.on_history(nexus_event("cancel_requested", scheduled_event_id=1))
        machine.on_history(nexus_event("cancel_request_completed", scheduled_event_id=1))
    if kind == WAIT_REQUESTED:
        assert host.take_job().resolve_nexus_operation.result.HasField("cancelled")
    if begin is scheduled and outcome != "failed":
        machine.on_history(nexus_event("started", operation_token="token"))
        if kind == WAIT:
            assert host.take_job().resolve_nexus_operation_start.operation_token == "token"
    machine.on_history(nexus_event(outcome, **OUTCOMES[outcome]))
    assert len(host.jobs) == (1 if kind == WAIT else 0)


@pytest.mark.parametrize("begin", [scheduled, started], ids=["scheduled", "started"])
@pytest.mark.parametrize("kind", [WAIT, WAIT_REQUESTED])
def test_a_cancel_request_that_fails(begin: Any, kind: int) -> None:
    host = FakeHost()
    machine = begin(host, kind)
    machine.cancel(CANCEL)
    host.prepare()
    machine.on_history(nexus_event("cancel_requested", scheduled_event_id=1))
    machine.on_history(nexus_event("cancel_request_failed", failure=BROKEN))
    if kind == WAIT_REQUESTED:
        failed = host.take_job().resolve_nexus_operation.result.failed
        assert failed.message == "Nexus operation cancellation request failed"
        assert failed.cause == BROKEN
        assert failed.nexus_operation_execution_failure_info.operation == "operation"
        machine.on_history(nexus_event("failed", failure=BROKEN))
    assert not host.jobs


def test_what_comes_after_an_abandon_is_swallowed() -> None:
    host = FakeHost()
    machine = scheduled(host, ABANDON)
    machine.cancel(CANCEL)
    host.jobs.clear()
    for what in ("started", "cancel_request_completed", "cancel_request_failed", *OUTCOMES):
        machine.on_history(nexus_event(what))
    cancel_in_every_way(machine)
    assert not host.jobs


@pytest.mark.parametrize("what", ["service", "operation"])
def test_mismatch_is_nondeterminism(what: str) -> None:
    """Rows: service_mismatch_is_nondeterministic, operation_mismatch_is_nondeterministic."""
    names = {"service": "service", "operation": "operation"} | {what: "other"}
    with pytest.raises(NondeterminismError, match=f"Nexus {what} 'other'"):
        new(FakeHost()).on_history(nexus_event("scheduled", **names))


def test_mismatch_is_allowed_before_determinism_flag_is_recorded() -> None:
    new(FakeHost(checks=False)).on_history(
        nexus_event("scheduled", service="other", operation="other")
    )
