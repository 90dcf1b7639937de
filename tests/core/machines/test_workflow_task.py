"""Workflow tasks: when the clock moves."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause as Cause
from tests.core.support.fake_host import FakeHost, event

from perdure.core.errors import FatalError, IllegalTransition
from perdure.core.machines.workflow_task import WorkflowTaskMachine


def scheduled(host: FakeHost) -> WorkflowTaskMachine:
    machine = WorkflowTaskMachine(host)
    machine.on_history(event("workflow_task_scheduled"))
    return machine


def started(host: FakeHost) -> WorkflowTaskMachine:
    machine = scheduled(host)
    machine.on_history(event("workflow_task_started"))
    return machine


def test_the_start_that_closes_a_sequence_moves_the_clock() -> None:
    host = FakeHost()
    host.next_started_event_id = 1
    started(host)
    ((event_id, at),) = host.started_tasks
    assert event_id == 1
    assert at == event("workflow_task_started").event_time.ToNanoseconds()


def test_a_completion_moves_the_clock_to_the_start() -> None:
    host = FakeHost()
    machine = started(host)
    assert host.started_tasks == []
    machine.on_history(event("workflow_task_completed"))
    assert [event_id for event_id, _ in host.started_tasks] == [1]
    assert machine.is_closed


@pytest.mark.parametrize("how", ["failed", "timed_out"])
def test_a_lost_task_never_moves_the_clock(how: str) -> None:
    host = FakeHost()
    machine = started(host)
    machine.on_history(event(f"workflow_task_{how}"))
    assert host.started_tasks == []
    assert machine.is_final


def test_a_task_that_never_started_times_out() -> None:
    machine = scheduled(FakeHost())
    machine.on_history(event("workflow_task_timed_out"))
    assert machine.is_final


def test_workflow_update_random_seed_on_workflow_reset() -> None:
    host = FakeHost()
    started(host).on_history(
        event(
            "workflow_task_failed",
            cause=Cause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
            new_run_id="new",
        )
    )
    assert host.reset_to == ["new"]


def test_a_pause_fails_a_task_before_it_starts() -> None:
    cause = Cause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_PAUSE_REQUESTED_BEFORE_TASK_STARTED
    scheduled(FakeHost()).on_history(event("workflow_task_failed", cause=cause))
    with pytest.raises(IllegalTransition):
        scheduled(FakeHost()).on_history(event("workflow_task_failed"))


def test_a_start_without_a_time_is_fatal() -> None:
    timeless = event("workflow_task_started")
    timeless.ClearField("event_time")
    with pytest.raises(FatalError, match="no time"):
        scheduled(FakeHost()).on_history(timeless)
