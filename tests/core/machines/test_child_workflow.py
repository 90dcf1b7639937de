"""Child workflows: start, outcome, and the matrix of cancelling."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import CommandType
from temporalio.bridge.proto.child_workflow.child_workflow_pb2 import (
    ChildWorkflowCancellationType,
)
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import application_failure, payload, payloads

from perdure.core.errors import NondeterminismError
from perdure.core.machines.child_workflow import ChildWorkflowMachine

ABANDON = ChildWorkflowCancellationType.ABANDON
TRY = ChildWorkflowCancellationType.TRY_CANCEL
WAIT = ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED
WAIT_REQUESTED = ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED
ALL = (ABANDON, TRY, WAIT, WAIT_REQUESTED)
CANCEL = lang("cancel_child_workflow_execution", child_workflow_seq=1, reason="enough")
OUTCOMES: dict[str, dict[str, Any]] = {
    "completed": {"result": payloads("done")},
    "failed": {"failure": application_failure("broken")},
    "timed_out": {},
    "terminated": {},
    "canceled": {"details": payloads("details")},
}


def new(host: FakeHost, kind: int = ABANDON, **fields: Any) -> ChildWorkflowMachine:
    machine = ChildWorkflowMachine(
        host,
        lang(
            "start_child_workflow_execution",
            seq=1,
            workflow_id="child",
            workflow_type="type",
            cancellation_type=kind,
            **({"namespace": "namespace"} | fields),
        ),
    )
    host.prepare()
    return machine


def initiated(host: FakeHost, kind: int = ABANDON) -> ChildWorkflowMachine:
    machine = new(host, kind)
    machine.on_history(
        event(
            "start_child_workflow_execution_initiated",
            workflow_id="child",
            workflow_type=WorkflowType(name="type"),
        )
    )
    host.prepared.clear()
    return machine


def start_event() -> Any:
    execution = WorkflowExecution(workflow_id="child", run_id="child-run")
    return event("child_workflow_execution_started", workflow_execution=execution)


def started(host: FakeHost, kind: int = ABANDON) -> ChildWorkflowMachine:
    machine = initiated(host, kind)
    machine.on_history(start_event())
    host.jobs.clear()
    return machine


def end(machine: ChildWorkflowMachine, outcome: str) -> None:
    machine.on_history(event(f"child_workflow_execution_{outcome}", **OUTCOMES[outcome]))


def cancel_in_every_way(machine: ChildWorkflowMachine) -> None:
    for name in (
        "CANCEL_ABANDON",
        "CANCEL_TRY",
        "CANCEL_WAIT_COMPLETED",
        "CANCEL_WAIT_REQUESTED",
    ):
        machine.fire(machine.table.events[name], CANCEL)


def test_start() -> None:
    host = FakeHost()
    machine = new(host, memo={"m": payload(1)}, headers={"h": payload(2)}, input=[payload(3)])
    attributes = host.commands()[0].start_child_workflow_execution_command_attributes
    assert attributes.workflow_id == "child"
    assert attributes.memo.fields["m"] == payload(1)
    assert attributes.header.fields["h"] == payload(2)
    assert list(attributes.input.payloads) == [payload(3)]
    assert attributes.inherit_build_id
    assert machine.workflow_id == "child"
    host = FakeHost()
    initiated(host).on_history(start_event())
    job = host.take_job().resolve_child_workflow_execution_start
    assert (job.seq, job.succeeded.run_id) == (1, "child-run")


def test_single_child_workflow_start_fail() -> None:
    host = FakeHost()
    machine = initiated(host)
    machine.on_history(
        event(
            "start_child_workflow_execution_failed",
            workflow_id="child",
            workflow_type=WorkflowType(name="type"),
            cause=1,
        )
    )
    failed = host.take_job().resolve_child_workflow_execution_start.failed
    assert (failed.workflow_id, failed.workflow_type, failed.cause) == ("child", "type", 1)
    cancel_in_every_way(machine)
    assert not host.jobs


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes(outcome: str) -> None:
    host = FakeHost()
    machine = started(host)
    end(machine, outcome)
    job = host.take_job().resolve_child_workflow_execution
    assert job.seq == 1
    expected = {"completed": "completed", "canceled": "cancelled"}.get(outcome, "failed")
    assert job.result.WhichOneof("status") == expected
    if outcome == "completed":
        assert job.result.completed.result == payload("done")
    else:
        failure = getattr(job.result, expected).failure
        words = {"canceled": "cancelled", "timed_out": "timed out"}.get(outcome, outcome)
        assert failure.message == f"Child Workflow execution {words}"
        info = failure.child_workflow_execution_failure_info
        assert (info.namespace, info.workflow_execution.run_id) == ("namespace", "child-run")
        assert failure.HasField("cause")
    cancel_in_every_way(machine)
    assert not host.jobs
    assert not host.new


@pytest.mark.parametrize("kind", ALL)
def test_single_child_workflow_cancel_before_sent(kind: int) -> None:
    host = FakeHost()
    machine = new(host, kind)
    machine.cancel(CANCEL)
    assert machine.is_withdrawn
    assert host.commands() == []
    failure = host.take_job().resolve_child_workflow_execution_start.cancelled.failure
    assert failure.cause.HasField("canceled_failure_info")


@pytest.mark.parametrize("begin", [initiated, started], ids=["initiated", "started"])
@pytest.mark.parametrize("kind", ALL)
def test_cancelled_child_gets_reason(begin: Any, kind: int) -> None:
    host = FakeHost()
    machine = begin(host, kind)
    machine.cancel(CANCEL)
    host.prepare()
    if kind == ABANDON:
        assert host.commands() == []
    else:
        (command,) = host.commands()
        kind_of_command = CommandType.COMMAND_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION
        assert command.command_type == kind_of_command
        attributes = command.request_cancel_external_workflow_execution_command_attributes
        assert attributes.child_workflow_only
        assert attributes.reason == "enough"
        assert attributes.workflow_id == "child"
        assert attributes.run_id == ("child-run" if begin is started else "")
    if kind in (ABANDON, TRY):
        result = host.take_job().resolve_child_workflow_execution.result
        assert result.HasField("cancelled")
        assert machine.is_final
    else:
        assert not host.jobs
        assert not machine.is_final


@pytest.mark.parametrize("begin", [initiated, started], ids=["initiated", "started"])
@pytest.mark.parametrize("kind", [ABANDON, TRY])
@pytest.mark.parametrize("outcome", [*OUTCOMES, "start_failed"])
def test_abandoned_child_resolves_post_cancel(begin: Any, kind: int, outcome: str) -> None:
    """Rows: immediately_cancelled_ok_with_terminal_events, cancels_ignored_terminal."""
    host = FakeHost()
    machine = begin(host, kind)
    machine.cancel(CANCEL)
    host.jobs.clear()
    if outcome == "start_failed":
        machine.on_history(event("start_child_workflow_execution_failed", cause=1))
    else:
        if begin is initiated:
            machine.on_history(start_event())
        end(machine, outcome)
    cancel_in_every_way(machine)
    assert not host.jobs


@pytest.mark.parametrize("kind", [WAIT, WAIT_REQUESTED])
def test_waiting_for_a_cancelled_child(kind: int) -> None:
    host = FakeHost()
    machine = initiated(host, kind)
    machine.cancel(CANCEL)
    machine.on_history(start_event())
    assert host.take_job().resolve_child_workflow_execution_start.HasField("succeeded")
    end(machine, "canceled")
    assert host.take_job().resolve_child_workflow_execution.result.HasField("cancelled")


@pytest.mark.parametrize(("name", "kind"), [("other", "type"), ("child", "other")])
def test_child_wf_id_or_type_change_is_nondeterministic(name: str, kind: str) -> None:
    changed = event(
        "start_child_workflow_execution_initiated",
        workflow_id=name,
        workflow_type=WorkflowType(name=kind),
    )
    with pytest.raises(NondeterminismError, match="'other'"):
        new(FakeHost()).on_history(changed)
    new(FakeHost(checks=False)).on_history(changed)
