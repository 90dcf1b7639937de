"""The container of the machines, driven like the stream drives it."""

from __future__ import annotations

from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.canned_histories import single_timer
from tests.core.support.machines_driver import Driver

from perdure.core.workflow_machines import Step


def test_single_timer() -> None:
    driver = Driver(single_timer(1))
    assert driver.next_variants() == ["initialize_workflow"]
    assert driver.machines.replaying
    start = WorkflowCommand()
    start.start_timer.seq = 1
    driver.answer(start)
    activation = driver.activation()
    assert [job.fire_timer.seq for job in activation.jobs] == [1]
    assert not activation.is_replaying
    assert activation.history_length == 8
    assert driver.machines.apply_next_sequence() is Step.OVER
    end = WorkflowCommand()
    end.complete_workflow_execution.SetInParent()
    driver.answer(end, apply=False)
    (command,) = driver.machines.outgoing_commands()
    assert command.HasField("complete_workflow_execution_command_attributes")
