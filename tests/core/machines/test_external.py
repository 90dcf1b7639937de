"""Signals to other workflows, and requests to cancel them."""

from __future__ import annotations

import pytest
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import payload

from perdure.core.errors import FatalError
from perdure.core.machines.cancel_external import CancelExternalMachine
from perdure.core.machines.signal_external import SignalExternalMachine

CANCEL = lang("cancel_signal_workflow", seq=1)
TARGET = {"namespace": "ns", "workflow_id": "other", "run_id": "run"}


def signal(host: FakeHost, *, recorded: bool = True) -> SignalExternalMachine:
    command = lang(
        "signal_external_workflow_execution",
        seq=1,
        workflow_execution=TARGET,
        signal_name="name",
        args=[payload(1)],
    )
    machine = SignalExternalMachine(host, command)
    host.prepare()
    if recorded:
        machine.on_history(event("signal_external_workflow_execution_initiated"))
        machine.cancel(CANCEL)
    return machine


def test_signal() -> None:
    host = FakeHost()
    machine = signal(host, recorded=False)
    attributes = host.commands()[0].signal_external_workflow_execution_command_attributes
    assert (attributes.namespace, attributes.execution.workflow_id) == ("ns", "other")
    assert not attributes.child_workflow_only
    assert list(attributes.input.payloads) == [payload(1)]
    machine.on_history(event("signal_external_workflow_execution_initiated"))
    machine.on_history(event("external_workflow_execution_signaled"))
    job = host.take_job().resolve_signal_external_workflow
    assert job.seq == 1
    assert not job.HasField("failure")
    machine.cancel(CANCEL)
    assert machine.is_final


def test_signal_to_a_child() -> None:
    host = FakeHost()
    command = lang("signal_external_workflow_execution", seq=1, child_workflow_id="child")
    SignalExternalMachine(host, command)
    host.prepare()
    attributes = host.commands()[0].signal_external_workflow_execution_command_attributes
    assert attributes.child_workflow_only
    assert (attributes.namespace, attributes.execution.workflow_id) == ("namespace", "child")


def test_signal_fails() -> None:
    host = FakeHost()
    machine = signal(host)
    machine.on_history(event("signal_external_workflow_execution_failed", cause=1))
    job = host.take_job().resolve_signal_external_workflow
    assert job.failure.message == "Unable to signal external workflow because it was not found"
    assert job.failure.application_failure_info.type == "ExternalWorkflowExecutionNotFound"
    assert job.cause == 1
    machine.cancel(CANCEL)
    assert not host.jobs


def test_signal_cancelled_before_sent() -> None:
    host = FakeHost()
    machine = signal(host, recorded=False)
    machine.cancel(CANCEL)
    machine.cancel(CANCEL)
    assert host.commands() == []
    failure = host.take_job().resolve_signal_external_workflow.failure
    assert failure.message == "Signal was cancelled before being sent"


def cancel(host: FakeHost) -> CancelExternalMachine:
    command = lang(
        "request_cancel_external_workflow_execution",
        seq=1,
        workflow_execution=TARGET,
        reason="enough",
    )
    machine = CancelExternalMachine.of_command(host, command)
    host.prepare()
    return machine


def test_cancel() -> None:
    host = FakeHost()
    machine = cancel(host)
    attributes = host.commands()[0].request_cancel_external_workflow_execution_command_attributes
    assert (
        attributes.reason == "Cancel requested by workflow with run id run-id with reason: enough"
    )
    assert not attributes.child_workflow_only
    machine.on_history(event("request_cancel_external_workflow_execution_initiated"))
    machine.on_history(event("external_workflow_execution_cancel_requested"))
    job = host.take_job().resolve_request_cancel_external_workflow
    assert job.seq == 1
    assert not job.HasField("failure")


def test_cancel_fails() -> None:
    host = FakeHost()
    machine = cancel(host)
    machine.on_history(event("request_cancel_external_workflow_execution_initiated"))
    machine.on_history(event("request_cancel_external_workflow_execution_failed", cause=1))
    job = host.take_job().resolve_request_cancel_external_workflow
    assert job.failure.message == "Unable to cancel external workflow because not found"
    assert job.failure.application_failure_info.type == "ExternalWorkflowExecutionNotFound"
    assert job.cause == 1


def test_a_request_to_cancel_cannot_be_cancelled() -> None:
    with pytest.raises(FatalError, match="cannot be cancelled"):
        cancel(FakeHost()).cancel(CANCEL)
