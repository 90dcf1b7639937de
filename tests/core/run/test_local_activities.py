"""Local activities in the container: requests, results in their turn, and markers ahead."""

from __future__ import annotations

import json

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1 import Command
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    ActivityCancellationType,
    WorkflowCommand,
)
from tests.core.support.fake_host import lang_message
from tests.core.support.history_builder import HistoryBuilder, payload
from tests.core.support.machines_driver import Driver

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.local_activities.requests import (
    LocalActivityCancel,
    LocalActivityRequest,
    LocalOutcome,
    LocalResult,
)

WAIT = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
DONE = lang_message("complete_workflow_execution")


def local(seq: int, kind: int = 0) -> WorkflowCommand:
    return lang_message(
        "schedule_local_activity",
        seq=seq,
        activity_id=str(seq),
        activity_type="activity",
        start_to_close_timeout=Duration(seconds=1),
        cancellation_type=kind,
    )


def cancel(seq: int) -> WorkflowCommand:
    return lang_message("request_cancel_local_activity", seq=seq)


def result(seq: int) -> LocalResult:
    return LocalResult(
        seq=seq,
        outcome=LocalOutcome.COMPLETED,
        attempt=1,
        original_schedule_time=Timestamp(seconds=1),
        payload=payload(seq),
        runtime=0.5,
    )


def resolved(driver: Driver) -> list[int]:
    """Seqs of the local activities that the next activation resolves."""
    return [job.resolve_activity.seq for job in driver.activation().jobs]


def index_of(command: Command) -> int:
    details = command.record_marker_command_attributes.details
    index = json.loads(details["data"].payloads[0].data)["activation_index"]
    assert isinstance(index, int)
    return index


def live() -> Driver:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    driver = Driver(built)
    driver.next_variants()
    return driver


def recorded(*markers: tuple[int, int | None]) -> HistoryBuilder:
    """One task whose markers have these seqs and indexes, and the next task."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for seq, index in markers:
        built.local_activity_marker(seq, seq, activation_index=index)
    built.task_scheduled_and_started()
    return built


def test_local_activity_resolutions_are_delivered_incrementally() -> None:
    driver = live()
    machines = driver.machines
    driver.answer(local(1), local(2), apply=False)
    requests = machines.drain_local_activities()
    assert [r.command.seq for r in requests if isinstance(r, LocalActivityRequest)] == [1, 2]
    assert machines.outstanding_local_activities == 2
    machines.local_resolution(2, result(2))
    assert machines.outstanding_local_activities == 1
    assert resolved(driver) == [2]
    driver.answer(apply=False)
    machines.local_resolution(1, result(1))
    assert resolved(driver) == [1]
    driver.answer(DONE, apply=False)
    second, first, _ = machines.outgoing_commands()
    assert (index_of(second), index_of(first)) == (1, 2)
    assert machines.outstanding_local_activities == 0


def test_results_come_in_their_turn_in_a_replay() -> None:
    """The other half of the test above: the same code takes the same way."""
    driver = Driver(recorded((2, 1), (1, 2)))
    driver.next_variants()
    driver.answer(local(1), local(2), apply=False)
    assert resolved(driver) == [2]
    driver.answer(apply=False)
    assert resolved(driver) == [1]
    driver.answer()
    assert driver.machines.drain_local_activities() == []
    assert driver.machines.last_processed_event == 8


def test_old_batched_local_activity_history_replays() -> None:
    driver = Driver(recorded((2, None), (1, None)))
    driver.next_variants()
    driver.answer(local(1), local(2), apply=False)
    assert resolved(driver) == [2, 1]
    driver.answer()
    assert driver.machines.last_processed_event == 7 + 1


def test_replay_out_of_order_local_activity_markers_is_deterministic() -> None:
    """A result waits for the ones before it, even if lang asked for it first."""
    driver = Driver(recorded((2, 2), (1, 3)))
    driver.next_variants()
    driver.answer(local(1), lang_message("start_timer", seq=9), apply=False)
    assert not driver.machines.has_jobs


def test_cancel_does_not_pull_resolution_from_later_activation() -> None:
    driver = Driver(recorded((1, 1), (2, 2)))
    driver.next_variants()
    driver.answer(local(1, WAIT), local(2, WAIT), cancel(2), apply=False)
    assert resolved(driver) == [1]
    driver.answer(apply=False)
    assert resolved(driver) == [2]


def test_a_held_result_goes_out_when_nothing_else_is_pending() -> None:
    driver = Driver(recorded((1, 5)))
    driver.next_variants()
    driver.answer(local(1), apply=False)
    assert resolved(driver) == [1]


def test_time_moves_with_results() -> None:
    driver = live()
    before = driver.machines.time_now
    driver.answer(local(1), apply=False)
    driver.machines.local_resolution(1, result(1))
    assert driver.machines.time_now == before + 500_000_000


def test_local_act_two_wfts_before_marker() -> None:
    """Heartbeats left no marker: after the replay the activity runs."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timer = built.timer_started(1)
    built.timer_fired(timer, 1)
    built.task_scheduled_and_started()
    driver = Driver(built)
    driver.next_variants()
    driver.answer(local(1), lang_message("start_timer", seq=1))
    assert not driver.machines.replaying
    (request,) = driver.machines.drain_local_activities()
    assert isinstance(request, LocalActivityRequest)
    assert driver.machines.outstanding_local_activities == 1
    driver.activation()
    driver.machines.local_resolution(1, result(1))
    driver.answer(apply=False)
    (marker,) = driver.machines.outgoing_commands()
    assert index_of(marker) == 1


def test_cancel_immediate() -> None:
    driver = live()
    driver.answer(local(1, WAIT), cancel(1), apply=False)
    assert driver.machines.drain_local_activities() == []
    assert driver.machines.outstanding_local_activities == 0
    assert resolved(driver) == [1]
    driver.answer(apply=False)
    assert len(driver.machines.outgoing_commands()) == 1


def test_a_result_after_a_cancel_is_ignored() -> None:
    driver = live()
    driver.answer(local(1), apply=False)
    driver.machines.drain_local_activities()
    driver.answer(cancel(1), apply=False)
    (request,) = driver.machines.drain_local_activities()
    assert isinstance(request, LocalActivityCancel)
    assert resolved(driver) == [1]
    driver.machines.local_resolution(1, result(1))
    assert not driver.machines.has_jobs


def test_the_end_of_the_workflow_cancels_what_runs() -> None:
    driver = live()
    driver.answer(local(1), apply=False)
    driver.machines.drain_local_activities()
    driver.answer(local(2), DONE, apply=False)
    assert driver.machines.outstanding_local_activities == 0
    (request,) = driver.machines.drain_local_activities()
    assert isinstance(request, LocalActivityCancel)
    assert request.seq == 1
    driver.machines.local_resolution(1, result(1))
    assert not driver.machines.has_jobs


def test_a_result_of_nothing_is_fatal() -> None:
    with pytest.raises(FatalError, match="never asked for"):
        live().machines.local_resolution(3, result(3))


def test_a_marker_without_its_activity_is_nondeterminism() -> None:
    driver = Driver(recorded((1, 1)))
    driver.next_variants()
    with pytest.raises(NondeterminismError):
        driver.answer()


def test_a_live_activity_meets_its_marker_in_the_queue() -> None:
    history = recorded((1, 1))
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    driver.answer(local(1), apply=False)
    driver.machines.drain_local_activities()
    driver.machines.local_resolution(1, result(1))
    driver.activation()
    driver.answer(apply=False)
    assert len(driver.machines.outgoing_commands()) == 1
    driver.feed(history.only_task(2))
    driver.step()
    assert driver.machines.outgoing_commands() == []
    assert driver.machines.activation_index == 0


def test_long_local_activity_with_update() -> None:
    """The marker comes after tasks that gave lang nothing to do: its result is a job of its own,
    before the marker's event."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timer = built.timer_started(9)
    built.timer_fired(timer, 9)
    built.full_task()
    other = built.timer_started(8)
    built.full_task()
    built.local_activity_marker(1, 1, activation_index=2)
    built.timer_fired(other, 8)
    built.task_scheduled_and_started()
    driver = Driver(built)
    driver.next_variants()
    driver.answer(local(1), lang_message("start_timer", seq=9))
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]
    driver.answer(lang_message("start_timer", seq=8))
    assert driver.machines.last_processed_event == 12
    activation = driver.activation()
    assert activation.is_replaying
    assert [job.resolve_activity.seq for job in activation.jobs] == [1]
    driver.answer()
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]
