"""When exactly a replay ends, and the jobs that come straight from history (CT/replay_flag,
CT/workflow_cancels, CT/event_groups and the rest of CT/workflow_tasks)."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.canned_histories import sequential_timers, single_timer
from tests.core.support.history_builder import HistoryBuilder, duration
from tests.core.support.stage import (
    Stage,
    answer_query,
    cancel_timer,
    complete_workflow,
    kinds,
    queries,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    Counted,
    FailTask,
)
from perdure.core.run.randomness import seed_of_run


def test_replay_flag_is_correct() -> None:
    stage, built = Stage(), sequential_timers(2, end=False)
    built.timer_fired(built.timer_started(3), 3)
    built.task_scheduled_and_started()
    stage.poll(built)
    flags = []
    for seq in (1, 2, 3):
        flags.append(stage.activation().is_replaying)
        stage.complete(start_timer(seq))
    flags.append(stage.activation().is_replaying)
    assert flags == [True, True, True, False]


def test_replay_flag_correct_with_query() -> None:
    """Queries say that they replay; the work after them does not."""
    stage, built = Stage(), single_timer()
    stage.poll(built, queries=queries(q="question"))
    assert stage.activation().is_replaying
    stage.complete(start_timer())
    activation = stage.activation()
    assert (kinds(activation), activation.is_replaying) == (["fire_timer"], False)
    stage.complete(start_timer(2))
    activation = stage.activation()
    assert (kinds(activation), activation.is_replaying) == (["query_workflow"], True)
    stage.complete(answer_query("q"))
    assert len(stage.completion().commands) == 1


def test_replay_flag_correct_signal_before_query_ending_on_wft_completed() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled()
    built.full_task()
    stage = Stage()
    stage.poll_query(built, sticky=False)
    for expected in ("initialize_workflow", "signal_workflow", "query_workflow"):
        activation = stage.activation()
        assert (kinds(activation), activation.is_replaying) == ([expected], True)
        stage.complete(*([answer_query()] if expected == "query_workflow" else []))
    stage.query_answer()
    assert not stage.has(CompleteTask)


# Cancellation of the workflow


def test_immediate_cancel() -> None:
    built = HistoryBuilder()
    built.started()
    built.cancel_requested("because")
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    activation = stage.activation()
    assert kinds(activation) == ["initialize_workflow", "cancel_workflow"]
    assert activation.jobs[1].cancel_workflow.reason == "because"
    command = WorkflowCommand()
    command.cancel_workflow_execution.SetInParent()
    stage.complete(command)
    (sent,) = stage.completion().commands
    assert sent.command_type == CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION
    stage.report()
    assert [c.name for c in stage.all(Counted)] == ["workflow_canceled"]


def _cancelled_during_a_timer() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.timer_started()
    built.cancel_requested()
    built.task_scheduled_and_started()
    return built


def test_timer_then_cancel_req() -> None:
    stage = Stage()
    stage.poll(_cancelled_during_a_timer())
    stage.activation()
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["cancel_workflow"]
    command = WorkflowCommand()
    command.cancel_workflow_execution.SetInParent()
    stage.complete(cancel_timer(), command)
    assert [c.command_type for c in stage.completion().commands] == [
        CommandType.COMMAND_TYPE_CANCEL_TIMER,
        CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION,
    ]


def test_timer_then_cancel_req_then_timer_then_cancelled() -> None:
    built = _cancelled_during_a_timer()
    built.task_completed()
    built.timer_fired(built.timer_started(2), 2)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer(1))
    stage.activation()
    stage.complete(start_timer(2))
    assert kinds(stage.activation()) == ["fire_timer"]


# Timers


def test_timer_cancel() -> None:
    stage, built = Stage(), single_timer()
    built.events[5:] = []
    built.signaled()
    built.task_scheduled_and_started()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete(cancel_timer())
    (command,) = stage.completion().commands
    assert command.cancel_timer_command_attributes.timer_id == "1"


def test_cancel_timer_before_sent_wf_bridge() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer(), cancel_timer(), complete_workflow())
    assert [c.command_type for c in stage.completion().commands] == [
        CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION
    ]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_parallel_timer_test_across_wf_bridge(order: tuple[int, int]) -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timers = {seq: built.timer_started(seq) for seq in (1, 2)}
    for seq in order:
        built.timer_fired(timers[seq], seq)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer(1), start_timer(2))
    assert [job.fire_timer.seq for job in stage.activation().jobs] == list(order)


# Activations


def test_jobs_are_in_appropriate_order() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timer = built.timer_started()
    built.timer_fired(timer)
    built.signaled("one")
    built.task_scheduled_and_started()
    built.task_failed(cause=20, new_run_id="new-run", base_run_id="old-run")
    built.signaled("two")
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer())
    activation = stage.activation()
    assert kinds(activation) == [
        "update_random_seed",
        "signal_workflow",
        "signal_workflow",
        "fire_timer",
    ]
    assert activation.jobs[0].update_random_seed.randomness_seed == seed_of_run("new-run")
    assert [job.signal_workflow.signal_name for job in activation.jobs[1:3]] == ["one", "two"]
    assert activation.jobs[1].signal_workflow.originating_event_id == 7


def test_history_byte_size_and_can_suggestion_in_activation() -> None:
    stage, built = Stage(), single_timer()
    started = built.event(8).workflow_task_started_event_attributes
    started.history_size_bytes = 1234
    started.suggest_continue_as_new = True
    stage.poll(built)
    first = stage.activation()
    assert (first.history_size_bytes, first.continue_as_new_suggested) == (0, False)
    stage.complete(start_timer())
    second = stage.activation()
    assert (second.history_size_bytes, second.continue_as_new_suggested) == (1234, True)
    assert second.history_length == 8


def test_ignorable_events_are_ok() -> None:
    built = HistoryBuilder()
    built.started()
    built.ignorable()
    built.full_task()
    built.ignorable()
    built.timer_fired(built.timer_started())
    built.ignorable()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["fire_timer"]


def test_the_time_of_the_workflow_is_that_of_its_tasks() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built)
    first = stage.activation()
    assert first.timestamp == built.event(3).event_time
    stage.complete(start_timer())
    assert stage.activation().timestamp == built.event(8).event_time


def test_lang_internal_flags() -> None:
    """What history holds is offered back, also during the replay."""
    stage, built = Stage(), single_timer()
    built.set_flags(4, lang=[5, 2])
    stage.poll(built)
    assert list(stage.activation().available_internal_flags) == [2, 5]


def test_cancel_commands_inherit_annotations() -> None:
    """CT/event_groups"""
    stage, built = Stage(), single_timer()
    built.events[5:] = []
    built.signaled()
    built.task_scheduled_and_started()
    stage.poll(built)
    stage.activation()
    start = start_timer()
    start.user_metadata.summary.data = b"summary"
    stage.complete(start)
    stage.activation()
    stage.complete(cancel_timer())
    (command,) = stage.completion().commands
    assert command.user_metadata.summary.data == b"summary"


def test_continue_as_new_preserves_some_values() -> None:
    built = HistoryBuilder()
    built.started(
        retry_policy={"backoff_coefficient": 2.5},
        memo={"fields": {"memo": {"data": b"1"}}},
        search_attributes={"indexed_fields": {"attribute": {"data": b"2"}}},
        workflow_run_timeout=duration(99),
    )
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    command = WorkflowCommand()
    command.continue_as_new_workflow_execution.workflow_type = "next"
    stage.complete(command)
    (sent,) = stage.completion().commands
    attributes = sent.continue_as_new_workflow_execution_command_attributes
    assert attributes.workflow_type.name == "next"
    assert attributes.retry_policy.backoff_coefficient == 2.5
    assert attributes.memo.fields["memo"].data == b"1"
    assert attributes.search_attributes.indexed_fields["attribute"].data == b"2"
    stage.report()
    assert [c.name for c in stage.all(Counted)] == ["workflow_continue_as_new"]


@pytest.mark.parametrize(
    ("task_queue", "intent", "uses_own_build"),
    [
        ("task-queue", 0, True),
        ("", 0, True),
        ("other", 0, False),
        ("other", 1, True),
        ("task-queue", 2, False),
    ],
)
def test_use_compatible_version_flag(task_queue: str, intent: int, *, uses_own_build: bool) -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(schedule_activity(task_queue=task_queue, versioning_intent=intent))
    (command,) = stage.completion().commands
    attributes = command.schedule_activity_task_command_attributes
    assert attributes.use_workflow_build_id is uses_own_build


# Activities: races of cancelling and ending


def _activity(*, cancellation: int) -> WorkflowCommand:
    return schedule_activity(cancellation_type=cancellation)


def cancel_activity(seq: int = 1) -> WorkflowCommand:
    command = WorkflowCommand()
    command.request_cancel_activity.seq = seq
    return command


def test_activity_not_canceled_on_replay_repro() -> None:
    """Cancelled without asking (abandoned), then completed after all: lang hears of it once."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    scheduled = built.activity_scheduled()
    built.signaled()
    built.full_task()
    started = built.activity_started(scheduled)
    built.activity_completed(scheduled, started)
    built.signaled()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(_activity(cancellation=2))
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete(cancel_activity())
    activation = stage.activation()
    assert kinds(activation) == ["resolve_activity"]
    assert activation.jobs[0].resolve_activity.result.HasField("cancelled")
    stage.complete()
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete(complete_workflow())
    assert not stage.has(FailTask)
    stage.completion()


def test_activity_not_canceled_when_also_completed_repro() -> None:
    """Cancelled in the very task that brings its result: no cancel command is sent."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    scheduled = built.activity_scheduled()
    started = built.activity_started(scheduled)
    built.activity_completed(scheduled, started)
    built.cancel_requested()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(_activity(cancellation=1))
    assert sorted(kinds(stage.activation())) == ["cancel_workflow", "resolve_activity"]
    stage.complete(cancel_activity(), complete_workflow())
    assert [c.command_type for c in stage.completion().commands] == [
        CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION
    ]


def test_replay_ok_ending_with_terminated_or_timed_out() -> None:
    """Rows: replay_ok_ending_with_timed_out."""
    for end in ("terminated", "timed_out"):
        built = single_timer()
        built.events[5:] = []
        getattr(built, end)()
        stage = Stage(evict_after_replay=True)
        stage.poll(built)
        stage.activation()
        stage.complete(start_timer())
        assert stage.eviction().message == "Always evict workflows after replay"
        assert built.events[-1].event_type in (
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
        )
