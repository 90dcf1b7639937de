"""Activities: outcomes, and the matrix of cancelling."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import ActivityType
from temporalio.api.enums.v1 import RetryState, TaskQueueKind
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    ActivityCancellationType,
)
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import (
    application_failure,
    payload,
    payloads,
    timeout_failure,
)

from perdure.core.errors import NondeterminismError
from perdure.core.machines.activity import ActivityMachine

TRY = ActivityCancellationType.TRY_CANCEL
WAIT = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
ABANDON = ActivityCancellationType.ABANDON
ALL = (TRY, WAIT, ABANDON)
CANCEL = lang("request_cancel_activity", seq=1)


def new(host: FakeHost, kind: int = TRY, **fields: object) -> ActivityMachine:
    machine = ActivityMachine(
        host,
        lang(
            "schedule_activity",
            seq=1,
            activity_id="id",
            activity_type="type",
            cancellation_type=kind,
            **fields,
        ),
    )
    host.prepare()
    return machine


def scheduled(host: FakeHost, kind: int = TRY) -> ActivityMachine:
    machine = new(host, kind)
    machine.on_history(
        event("activity_task_scheduled", activity_id="id", activity_type=ActivityType(name="type"))
    )
    host.prepared.clear()
    return machine


def started(host: FakeHost, kind: int = TRY) -> ActivityMachine:
    machine = scheduled(host, kind)
    machine.on_history(event("activity_task_started", scheduled_event_id=1))
    return machine


def test_single_activity_completion() -> None:
    host = FakeHost()
    machine = started(host)
    machine.on_history(event("activity_task_completed", result=payloads("done")))
    job = host.take_job().resolve_activity
    assert (job.seq, job.is_local) == (1, False)
    assert job.result.completed.result == payload("done")
    assert machine.is_closed


def test_completion_without_a_result() -> None:
    host = FakeHost()
    started(host).on_history(event("activity_task_completed"))
    result = host.take_job().resolve_activity.result
    assert result.WhichOneof("status") == "completed"
    assert not result.completed.HasField("result")


def test_failure_has_the_shape_of_an_activity_failure() -> None:
    host = FakeHost()
    started(host).on_history(
        event(
            "activity_task_failed",
            failure=application_failure("broken"),
            identity="worker",
            retry_state=RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED,
        )
    )
    failure = host.take_job().resolve_activity.result.failed.failure
    assert failure.message == "Activity task failed"
    assert failure.cause == application_failure("broken")
    info = failure.activity_failure_info
    assert (info.activity_id, info.activity_type.name, info.identity) == ("id", "type", "worker")
    assert (info.scheduled_event_id, info.started_event_id) == (1, 1)
    assert info.retry_state == RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED


@pytest.mark.parametrize("begin", [scheduled, started], ids=["scheduled", "started"])
def test_activity_timeout(begin: object) -> None:
    """Rows: scheduled_activity_timeout, started_activity_timeout."""
    host = FakeHost()
    machine = begin(host)  # type: ignore[operator]
    machine.on_history(event("activity_task_timed_out", failure=timeout_failure(1)))
    failure = host.take_job().resolve_activity.result.failed.failure
    assert failure.message == "Activity task timed out"
    assert failure.cause == timeout_failure(1)
    machine.cancel(CANCEL)
    assert not host.new


def test_the_command_carries_what_lang_said() -> None:
    host = FakeHost()
    new(
        host,
        task_queue="other",
        arguments=[payload(1)],
        headers={"key": payload(2)},
        start_to_close_timeout=Duration(seconds=3),
        do_not_eagerly_execute=True,
    )
    (command,) = host.commands()
    attributes = command.schedule_activity_task_command_attributes
    assert attributes.activity_id == "id"
    assert attributes.activity_type.name == "type"
    assert attributes.task_queue.name == "other"
    assert attributes.task_queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    assert list(attributes.input.payloads) == [payload(1)]
    assert attributes.header.fields["key"] == payload(2)
    assert attributes.start_to_close_timeout.seconds == 3
    assert not attributes.HasField("schedule_to_close_timeout")
    assert not attributes.request_eager_execution
    assert not attributes.use_workflow_build_id


def test_use_compatible_version_flag() -> None:
    host = FakeHost()
    new(host)
    attributes = host.commands()[0].schedule_activity_task_command_attributes
    assert attributes.use_workflow_build_id
    assert attributes.request_eager_execution
    assert attributes.HasField("header")


@pytest.mark.parametrize("kind", ALL)
def test_cancel_before_sent(kind: int) -> None:
    host = FakeHost()
    machine = new(host, kind)
    machine.cancel(CANCEL)
    assert machine.is_withdrawn
    assert host.commands() == []
    failure = host.take_job().resolve_activity.result.cancelled.failure
    assert failure.message == "Activity cancelled"
    assert failure.cause.HasField("canceled_failure_info")
    assert failure.activity_failure_info.retry_state == RetryState.RETRY_STATE_CANCEL_REQUESTED


def asked(host: FakeHost, machine: ActivityMachine) -> None:
    """The cancellation is a command, repeated wishes are nothing new, and history confirms it."""
    for _ in ALL:
        machine.cancel(CANCEL)
    machine.fire(machine.table.events["CANCEL_ABANDON"])
    machine.fire(machine.table.events["CANCEL_WAIT"])
    machine.fire(machine.table.events["CANCEL_TRY"])
    host.prepare()
    (command,) = host.commands()
    assert command.request_cancel_activity_task_command_attributes.scheduled_event_id == 1
    machine.on_history(event("activity_task_cancel_requested", scheduled_event_id=1))
    for name in ("CANCEL_ABANDON", "CANCEL_WAIT", "CANCEL_TRY"):
        machine.fire(machine.table.events[name])
    host.prepared.clear()


OUTCOMES: dict[str, dict[str, Any]] = {
    "completed": {"result": payloads("late")},
    "failed": {"failure": application_failure("late")},
    "timed_out": {"failure": timeout_failure(1)},
    "canceled": {"details": payloads("details")},
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_started_activity_cancellation_try_cancel(outcome: str) -> None:
    """Rows: started_activity_cancellation_try_cancel_task_canceled."""
    host = FakeHost()
    machine = started(host, TRY)
    machine.cancel(CANCEL)
    assert host.take_job().resolve_activity.result.HasField("cancelled")
    asked(host, machine)
    machine.on_history(event(f"activity_task_{outcome}", **OUTCOMES[outcome]))
    assert not host.jobs
    assert machine.is_final


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_started_activity_cancellation_wait_for_cancellation(outcome: str) -> None:
    """Rows: started_activity_cancellation_wait_for_cancellation_task_canceled."""
    host = FakeHost()
    machine = started(host, WAIT)
    machine.cancel(CANCEL)
    assert not host.jobs
    asked(host, machine)
    machine.on_history(event(f"activity_task_{outcome}", **OUTCOMES[outcome]))
    result = host.take_job().resolve_activity.result
    expected = {"canceled": "cancelled", "timed_out": "failed"}.get(outcome, outcome)
    assert result.WhichOneof("status") == expected
    if outcome == "canceled":
        info = result.cancelled.failure.cause.canceled_failure_info
        assert info.details == payloads("details")
    for name in ("CANCEL_ABANDON", "CANCEL_WAIT", "CANCEL_TRY"):
        machine.fire(machine.table.events[name])


@pytest.mark.parametrize("kind", [TRY, WAIT])
@pytest.mark.parametrize("outcome", ["canceled", "timed_out"])
def test_scheduled_activity_cancellation(kind: int, outcome: str) -> None:
    """Rows: scheduled_activity_cancellation_try_cancel,
    scheduled_activity_cancellation_wait_for_cancellation, cancelled_activity_timeout,
    scheduled_cancelled_activity_task_canceled.
    """
    host = FakeHost()
    machine = scheduled(host, kind)
    machine.cancel(CANCEL)
    assert len(host.jobs) == (1 if kind == TRY else 0)
    host.jobs.clear()
    asked(host, machine)
    machine.on_history(event(f"activity_task_{outcome}", **OUTCOMES[outcome]))
    assert len(host.jobs) == (1 if kind == WAIT else 0)


def test_scheduled_activity_that_turns_out_to_have_started() -> None:
    """Servers write the start of an activity only when it ends."""
    host = FakeHost()
    machine = scheduled(host, WAIT)
    machine.cancel(CANCEL)
    asked(host, machine)
    machine.on_history(event("activity_task_started", scheduled_event_id=1))
    machine.on_history(event("activity_task_completed", result=payloads("late")))
    assert host.take_job().resolve_activity.result.HasField("completed")


@pytest.mark.parametrize("begin", [scheduled, started], ids=["scheduled", "started"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_activity_cancellation_abandon(begin: object, outcome: str) -> None:
    """Rows: scheduled_activity_cancellation_abandon, started_activity_cancellation_abandon."""
    host = FakeHost()
    machine = begin(host, ABANDON)  # type: ignore[operator]
    machine.cancel(CANCEL)
    assert host.take_job().resolve_activity.result.HasField("cancelled")
    assert not host.new
    if begin is scheduled:
        machine.on_history(event("activity_task_started", scheduled_event_id=1))
    machine.on_history(event(f"activity_task_{outcome}", **OUTCOMES[outcome]))
    assert not host.jobs
    for name in ("CANCEL_ABANDON", "CANCEL_WAIT", "CANCEL_TRY"):
        machine.fire(machine.table.events[name])
    assert not host.jobs


def test_activity_cancelled_by_somebody_else() -> None:
    host = FakeHost()
    started(host).on_history(event("activity_task_canceled", details=payloads("details")))
    assert host.take_job().resolve_activity.result.HasField("cancelled")


@pytest.mark.parametrize("outcome", ["completed", "failed", "timed_out"])
def test_tries_cancel_of_completed_activity(outcome: str) -> None:
    host = FakeHost()
    machine = started(host)
    machine.on_history(event(f"activity_task_{outcome}", **OUTCOMES[outcome]))
    host.jobs.clear()
    for name in ("CANCEL_ABANDON", "CANCEL_WAIT", "CANCEL_TRY"):
        machine.fire(machine.table.events[name])
    assert not host.jobs
    assert not host.new


@pytest.mark.parametrize(("name", "kind"), [("other", "type"), ("id", "other")])
def test_activity_id_or_type_change_is_nondeterministic(name: str, kind: str) -> None:
    changed = event(
        "activity_task_scheduled", activity_id=name, activity_type=ActivityType(name=kind)
    )
    with pytest.raises(NondeterminismError, match="'other'"):
        new(FakeHost()).on_history(changed)
    new(FakeHost(checks=False)).on_history(changed)
