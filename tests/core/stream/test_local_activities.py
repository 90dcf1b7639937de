"""Local activities through the stream: one result per activation, heartbeats, leaving runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import CommandType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload
from tests.core.support.stage import (
    RUN,
    Stage,
    answer_query,
    complete_workflow,
    kinds,
    queries,
    run_local,
    start_timer,
)

from perdure.core.actions import (
    CancelAllLocalActivities,
    ClearHeartbeat,
    CompleteTask,
    Finished,
    ForgetLocalActivities,
    ReleasePermit,
    RunLocalActivities,
    RunRemoved,
    SetHeartbeat,
)
from perdure.core.inputs import (
    HeartbeatDue,
    LocalCancelsDelivered,
    LocalResolved,
    ProblemKind,
)
from perdure.core.local_activities.requests import (
    LocalActivityCancel,
    LocalActivityRequest,
    LocalOutcome,
    LocalResult,
)

Reason = RemoveFromCache.EvictionReason


def cancel_local(seq: int = 1) -> WorkflowCommand:
    command = WorkflowCommand()
    command.request_cancel_local_activity.seq = seq
    return command


def resolve(stage: Stage, seq: int = 1, value: object = "done") -> None:
    result = LocalResult(
        seq, LocalOutcome.COMPLETED, 1, Timestamp(), payload=payload(value), runtime=0.5
    )
    stage.feed(LocalResolved(RUN, seq, result))


def cancelled(stage: Stage, seq: int = 1) -> None:
    result = LocalResult(seq, LocalOutcome.CANCELLED, 1, Timestamp(), failure=Failure())
    stage.feed(LocalResolved(RUN, seq, result))


def first_task() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    return built


def running(*seqs: int, **settings: Any) -> tuple[Stage, HistoryBuilder]:
    """A run whose first task started these local activities."""
    stage, built = Stage(**settings), first_task()
    stage.poll(built, built.to_task(1), received_at=100.0)
    stage.activation()
    stage.complete(*(run_local(seq) for seq in seqs))
    requests = stage.take(RunLocalActivities).requests
    assert [r.command.seq for r in requests if isinstance(r, LocalActivityRequest)] == list(seqs)
    assert stage.is_quiet
    return stage, built


def continue_after_heartbeat(stage: Stage, built: HistoryBuilder) -> None:
    """The server answers a heartbeat with the next task."""
    built.task_completed()
    previous = built.last_task_started
    started = built.task_scheduled_and_started()
    part = HistorySlice(built.events[previous:], previous, started)
    stage.report(next_task=built.poll(part, token=b"after heartbeat"), received_at=200.0)


def resolved(activation: WorkflowActivation) -> list[int]:
    assert all(job.resolve_activity.is_local for job in activation.jobs)
    return [job.resolve_activity.seq for job in activation.jobs]


def markers(commands: Any) -> list[dict[str, Any]]:
    def data(command: Command) -> Any:
        attributes = command.record_marker_command_attributes
        return json.loads(attributes.details["data"].payloads[0].data)

    return [
        data(command)
        for command in commands
        if command.command_type == CommandType.COMMAND_TYPE_RECORD_MARKER
    ]


def test_one_local_activity() -> None:
    stage, _ = running(1)
    resolve(stage)
    activation = stage.activation()
    assert resolved(activation) == [1]
    assert not activation.is_replaying
    stage.complete(complete_workflow())
    commands = stage.completion().commands
    assert [c.command_type for c in commands] == [
        CommandType.COMMAND_TYPE_RECORD_MARKER,
        CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    ]
    stage.report()
    stage.take(ClearHeartbeat)


def test_local_activity_resolutions_are_delivered_incrementally() -> None:
    """Each result in an activation of its own, all under the same task."""
    stage, _ = running(1, 2, 3)
    for seq in (2, 3, 1):
        resolve(stage, seq)
    seen = []
    for _ in range(3):
        seen += resolved(stage.activation())
        assert stage.is_quiet, "the next one waits for lang's answer"
        stage.complete()
    assert seen == [2, 3, 1]
    request = stage.completion()
    assert [m["seq"] for m in markers(request.commands)] == [2, 3, 1]
    indices = [m["activation_index"] for m in markers(request.commands)]
    assert indices == sorted(set(indices)), "so a replay can deliver them one by one"
    assert not request.force_create_new_workflow_task


def test_the_task_is_kept_until_the_last_local_activity_is_done() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.complete(start_timer())
    assert stage.is_quiet
    resolve(stage, 2)
    stage.activation()
    stage.complete()
    kinds_of_commands = [c.command_type for c in stage.completion().commands]
    assert CommandType.COMMAND_TYPE_START_TIMER in kinds_of_commands


# Heartbeats


def test_local_act_heartbeat() -> None:
    """At 80 % of the task's time-out the task is answered, and a new one taken."""
    stage, built = running(1)
    heartbeat = stage.take(SetHeartbeat)
    assert (heartbeat.run_id, heartbeat.task_token, heartbeat.at) == (RUN, b"task-1", 108.0)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    request = stage.completion()
    assert request.force_create_new_workflow_task
    assert not request.commands
    continue_after_heartbeat(stage, built)
    assert stage.is_quiet
    assert stage.take(SetHeartbeat).at == 208.0
    resolve(stage)
    assert resolved(stage.activation()) == [1]
    stage.complete(complete_workflow())
    request = stage.completion()
    assert request.task_token == b"after heartbeat"
    assert not request.force_create_new_workflow_task


def test_a_heartbeat_carries_what_there_is() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.complete(start_timer())
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    commands = stage.completion().commands
    assert [c.command_type for c in commands] == [
        CommandType.COMMAND_TYPE_RECORD_MARKER,
        CommandType.COMMAND_TYPE_START_TIMER,
    ]


def test_a_heartbeat_waits_for_lang() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    assert stage.is_quiet
    stage.complete()
    assert stage.completion().force_create_new_workflow_task


def test_a_heartbeat_of_an_earlier_task_is_ignored() -> None:
    stage, built = running(1)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    stage.completion()
    continue_after_heartbeat(stage, built)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    assert stage.is_quiet


def test_results_between_two_tasks_wait_for_the_second() -> None:
    stage, built = running(1)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    stage.completion()
    resolve(stage)
    assert stage.is_quiet
    continue_after_heartbeat(stage, built)
    assert resolved(stage.activation()) == [1]


def test_a_signal_joins_while_a_local_activity_runs() -> None:
    stage, built = running(1)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    stage.completion()
    built.task_completed()
    previous = built.last_task_started
    built.signaled()
    started = built.task_scheduled_and_started()
    part = HistorySlice(built.events[previous:], previous, started)
    stage.report(next_task=built.poll(part, token=b"next"))
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete()
    assert stage.is_quiet
    resolve(stage)
    assert resolved(stage.activation()) == [1]


# Queries


def test_a_query_answered_while_local_activities_run_forces_a_new_task() -> None:
    stage, built = Stage(), first_task()
    stage.poll(built, built.to_task(1), queries=queries(q="question"))
    stage.activation()
    stage.complete(run_local())
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query("q"))
    request = stage.completion()
    assert "q" in request.query_results
    assert request.force_create_new_workflow_task


def test_legacy_query_while_waiting_on_la_is_buffered() -> None:
    """la_resolve_during_legacy_query_does_not_combine"""
    stage, built = running(1)
    stage.poll_query(built, sticky=True)
    assert stage.is_quiet
    resolve(stage)
    assert resolved(stage.activation()) == [1]
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    assert stage.query_answer().task_token == b"task-2"


def test_query_during_wft_heartbeat_doesnt_accidentally_fail_to_continue_heartbeat() -> None:
    stage, built = running(1)
    stage.actions.clear()
    stage.poll_query(built, sticky=True)
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    assert stage.completion().force_create_new_workflow_task
    continue_after_heartbeat(stage, built)
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    stage.query_answer()
    stage.report()
    assert stage.take(SetHeartbeat).task_token == b"after heartbeat"
    resolve(stage)
    assert resolved(stage.activation()) == [1]


# Cancellations, and the end of the workflow


def test_local_activities_do_not_hold_the_end_of_a_workflow_up() -> None:
    stage, _ = running(1)
    signal = stage.take(SetHeartbeat)
    assert signal.task_token == b"task-1"
    stage, built = Stage(), first_task()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(run_local(1), run_local(2))
    resolve(stage, 1)
    stage.activation()
    stage.actions.clear()
    stage.complete(complete_workflow())
    (cancel,) = stage.take(RunLocalActivities).requests
    assert cancel == LocalActivityCancel(RUN, 2)
    assert not stage.completion().force_create_new_workflow_task


def test_a_cancelled_local_activity_that_was_never_sent_resolves_at_once() -> None:
    stage, built = Stage(), first_task()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(run_local(), cancel_local())
    assert not stage.has(RunLocalActivities)
    (job,) = stage.activation().jobs
    assert job.resolve_activity.result.HasField("cancelled")
    stage.complete(complete_workflow())
    assert len(markers(stage.completion().commands)) == 1


# Leaving the cache


def test_la_cancel_delivered_before_eviction_activation() -> None:
    stage, _ = running(1)
    stage.evict()
    stage.take(CancelAllLocalActivities)
    assert stage.is_quiet
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.LANG_REQUESTED
    stage.take(ForgetLocalActivities)
    stage.take(RunRemoved)


def test_eviction_requested_during_activation_cancels_la_before_evicting() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.evict()
    assert not stage.has(CancelAllLocalActivities)
    stage.complete()
    stage.take(CancelAllLocalActivities)
    assert stage.is_quiet
    stage.feed(LocalCancelsDelivered(RUN))
    assert kinds(stage.activation()) == ["remove_from_cache"]


def test_la_results_during_withheld_eviction_do_not_surface() -> None:
    """Neither queued, backing off nor running ones."""
    stage, _ = running(1, 2, 3)
    stage.evict()
    resolve(stage, 1)
    cancelled(stage, 2)
    cancelled(stage, 3)
    assert stage.is_quiet
    stage.feed(LocalCancelsDelivered(RUN))
    assert kinds(stage.activation()) == ["remove_from_cache"]


def test_la_resolution_after_wft_not_found_during_eviction() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.complete()
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    stage.completion()
    stage.refuse(ProblemKind.NOT_FOUND)
    cancelled(stage, 2)
    assert stage.is_quiet
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.TASK_NOT_FOUND
    assert stage.is_quiet


def test_wft_failure_cancels_running_las() -> None:
    stage, _ = running(1, 2)
    resolve(stage, 1)
    stage.activation()
    stage.fail()
    stage.failure()
    stage.report()
    stage.take(CancelAllLocalActivities)
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.LANG_FAIL


@pytest.mark.parametrize("left", [False, True])
def test_an_eviction_sends_what_the_task_has_so_far(*, left: bool) -> None:
    """What lang decided is not lost; with results outstanding a new task is forced."""
    stage, _ = running(1, 2)
    if left:
        resolve(stage, 1)
        stage.activation()
        stage.complete(start_timer())
    stage.evict()
    stage.feed(LocalCancelsDelivered(RUN))
    stage.eviction()
    assert stage.has(CompleteTask) is left
    if left:
        request = stage.completion()
        assert request.force_create_new_workflow_task
        assert len(request.commands) == 2
        stage.report()
    assert stage.take(ReleasePermit).permit == "permit-1"
    stage.take(RunRemoved)


def test_zero_cache_doesnt_evict_before_wft_is_answered() -> None:
    stage, _ = running(1, max_cached_workflows=0, sticky_queue=None)
    assert not stage.has(CancelAllLocalActivities)
    resolve(stage)
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    assert not stage.has(CancelAllLocalActivities)
    stage.report()
    stage.take(CancelAllLocalActivities)
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.CACHE_FULL


def test_want_of_room_does_not_interrupt_local_activities() -> None:
    """The task is answered first: otherwise it would have to time out, and all be done again."""
    stage, _ = running(1, 2, max_cached_workflows=1)
    other = HistoryBuilder(run_id="other")
    other.started()
    other.task_scheduled_and_started()
    stage.poll(other, other.to_task(1))
    assert stage.is_quiet
    for seq in (1, 2):
        resolve(stage, seq)
        assert resolved(stage.activation()) == [seq]
        stage.complete()
    assert not stage.has(CancelAllLocalActivities)
    stage.completion()
    stage.report()
    stage.take(CancelAllLocalActivities)
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.CACHE_FULL
    assert stage.activation().run_id == "other"


def test_want_of_room_does_not_outlive_a_heartbeat() -> None:
    stage, _ = running(1, max_cached_workflows=1)
    other = HistoryBuilder(run_id="other")
    other.started()
    other.task_scheduled_and_started()
    stage.poll(other, other.to_task(1))
    stage.feed(HeartbeatDue(RUN, b"task-1"))
    assert stage.completion().force_create_new_workflow_task
    stage.report()
    stage.take(CancelAllLocalActivities)
    stage.feed(LocalCancelsDelivered(RUN))
    assert stage.eviction().reason == Reason.CACHE_FULL
    assert stage.activation().run_id == "other"


def test_those_without_local_activities_make_room_first() -> None:
    stage, _ = running(1, max_cached_workflows=2)
    runs = [HistoryBuilder(run_id=f"other-{number}") for number in range(2)]
    for built in runs:
        built.started()
        built.task_scheduled_and_started()
    stage.poll(runs[0], runs[0].to_task(1))
    stage.activation()
    stage.complete(start_timer(), run_id="other-0")
    stage.completion()
    stage.report(run_id="other-0")
    stage.poll(runs[1], runs[1].to_task(1))
    assert stage.activation().run_id == "other-0"
    assert stage.is_quiet


def test_a_shutdown_waits_for_local_activities_of_a_task() -> None:
    stage, _ = running(1)
    stage.stop()
    assert not stage.has(Finished)
    resolve(stage)
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    stage.take(Finished)


# Replay


def replayed(indices: list[int | None]) -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for seq, index in enumerate(indices, 1):
        built.local_activity_marker(seq, f"result-{seq}", activation_index=index)
    built.completed()
    return built


def test_a_replay_delivers_results_as_they_were_delivered() -> None:
    stage = Stage(evict_after_replay=True)
    stage.poll(replayed([1, 2, 3]))
    stage.activation()
    stage.complete(*(run_local(seq) for seq in (1, 2, 3)))
    assert not stage.has(RunLocalActivities)
    for seq in (1, 2, 3):
        activation = stage.activation()
        assert (resolved(activation), activation.is_replaying) == ([seq], True)
        stage.complete(*([complete_workflow()] if seq == 3 else []))
    assert stage.eviction().reason == Reason.LANG_REQUESTED


def test_histories_without_activation_indices_replay_unchanged() -> None:
    """Older workers gave all results to lang in one activation.

    Rows: la_replay_without_activation_index.
    """
    stage = Stage(evict_after_replay=True)
    stage.poll(replayed([None, None, None]))
    stage.activation()
    stage.complete(*(run_local(seq) for seq in (1, 2, 3)))
    assert resolved(stage.activation()) == [1, 2, 3]
    stage.complete(complete_workflow())
    assert stage.eviction().reason == Reason.LANG_REQUESTED


def test_histories_without_activation_indices_continue_and_replay() -> None:
    """The old part in one activation, then new results one by one."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for seq in (1, 2):
        built.local_activity_marker(seq, activation_index=None)
    built.timer_fired(built.timer_started())
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(run_local(1), run_local(2))
    assert resolved(stage.activation()) == [1, 2]
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(run_local(3), run_local(4))
    for seq in (3, 4):
        resolve(stage, seq)
        assert resolved(stage.activation()) == [seq]
        stage.complete(*([complete_workflow()] if seq == 4 else []))
    assert [m["seq"] for m in markers(stage.completion().commands)] == [3, 4]


def test_cancel_does_not_pull_resolution_from_later_activation() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.local_activity_marker(1, activation_index=1)
    built.local_activity_marker(2, activation_index=2)
    built.completed()
    stage = Stage(evict_after_replay=True)
    stage.poll(built)
    stage.activation()
    stage.complete(run_local(1), run_local(2))
    assert resolved(stage.activation()) == [1]
    stage.complete(cancel_local(2))
    assert resolved(stage.activation()) == [2]
    stage.complete(complete_workflow())
    assert stage.eviction().reason == Reason.LANG_REQUESTED


def test_a_local_activity_without_a_marker_runs_again_after_replay() -> None:
    """evict_while_la_running_no_interference: the run was lost in mid-air."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(run_local())
    (request,) = stage.take(RunLocalActivities).requests
    assert isinstance(request, LocalActivityRequest)
    assert stage.take(SetHeartbeat).run_id == RUN
    assert stage.is_quiet
    resolve(stage)
    activation = stage.activation()
    assert (resolved(activation), activation.is_replaying) == ([1], False)
    stage.complete(complete_workflow())
    assert len(markers(stage.completion().commands)) == 1
