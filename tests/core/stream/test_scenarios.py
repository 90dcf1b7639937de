"""Workflows of the catalogue whose point is that they go the same way live and in a replay."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.bridge.proto.child_workflow import ChildWorkflowCancellationType
from temporalio.bridge.proto.workflow_commands import ActivityCancellationType, WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder, payloads
from tests.core.support.scenario import Answers, lived, replayed, told
from tests.core.support.stage import (
    RUN,
    Stage,
    cancel_timer,
    complete_workflow,
    kinds,
    run_local,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    FailTask,
    LangActivation,
    RunLocalActivities,
)
from perdure.core.inputs import LocalCancelsDelivered, LocalResolved
from perdure.core.local_activities.requests import LocalActivityRequest, LocalOutcome, LocalResult

ABANDON = ChildWorkflowCancellationType.ABANDON
TRY = ChildWorkflowCancellationType.TRY_CANCEL
WAIT = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED


def cancel_activity(seq: int = 1) -> WorkflowCommand:
    command = WorkflowCommand()
    command.request_cancel_activity.seq = seq
    return command


def start_child(kind: ChildWorkflowCancellationType.ValueType) -> WorkflowCommand:
    command = WorkflowCommand()
    child = command.start_child_workflow_execution
    child.seq, child.workflow_id, child.workflow_type = 1, "child-id", "child"
    child.cancellation_type = kind
    return command


def cancel_child(reason: str = "enough") -> WorkflowCommand:
    command = WorkflowCommand()
    command.cancel_child_workflow_execution.child_workflow_seq = 1
    command.cancel_child_workflow_execution.reason = reason
    return command


def cancel_workflow() -> WorkflowCommand:
    command = WorkflowCommand()
    command.cancel_workflow_execution.SetInParent()
    return command


def patch(patch_id: str) -> WorkflowCommand:
    command = WorkflowCommand()
    command.set_patch_marker.patch_id = patch_id
    return command


def begun() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    return built


def alike(built: HistoryBuilder, answers: Answers) -> list[list[str]]:
    """Live and replayed lang is told the same; that is returned."""
    jobs = told(lived(built, answers))
    assert told(replayed(built, answers)) == jobs
    return jobs


# Timers and activities


def test_repro_nondeterminism_with_timer_bug() -> None:
    """An activity beats a timer, which is cancelled; then another timer."""
    built = begun()
    timer = built.timer_started(1)
    activity = built.activity_scheduled("2")
    built.activity_completed(activity, built.activity_started(activity))
    built.full_task()
    built.timer_canceled(timer, 1)
    built.timer_fired(built.timer_started(3), 3)
    built.full_task()
    built.completed()
    jobs = alike(
        built,
        [
            [start_timer(1), schedule_activity(2)],
            [cancel_timer(1), start_timer(3)],
            [complete_workflow()],
        ],
    )
    assert jobs == [["initialize_workflow"], ["resolve_activity"], ["fire_timer"]]


def test_wft_timeout_repro() -> None:
    """A task that timed out between an activity's end and a signal is as if it never was."""
    built = begun()
    activity = built.activity_scheduled("1")
    built.activity_completed(activity, built.activity_started(activity))
    built.task_scheduled_and_started()
    built.task_timed_out()
    built.signaled("meanwhile")
    built.full_task()
    built.completed()
    jobs = alike(built, [[schedule_activity(1)], [complete_workflow()]])
    assert jobs == [["initialize_workflow"], ["signal_workflow", "resolve_activity"]]


def test_task_fail_causes_replay_unset_too_soon() -> None:
    """A failed task in the midst of history does not end the replay."""
    built = begun()
    built.timer_fired(built.timer_started(1), 1)
    built.task_scheduled_and_started()
    built.task_failed()
    built.full_task()
    built.timer_fired(built.timer_started(2), 2)
    built.task_scheduled_and_started()
    answers = [[start_timer(1)], [start_timer(2)], [complete_workflow()]]
    activations = replayed(built, answers)
    assert [activation.is_replaying for activation in activations] == [True, True, False]
    assert [activation.is_replaying for activation in lived(built, answers)] == [False] * 3


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_replay_flag_is_correct_partial_history(tasks: int) -> None:
    """A history that ends with the start of a task: only that task is live."""
    built = begun()
    for seq in (1, 2):
        built.timer_fired(built.timer_started(seq), seq)
        built.full_task()
    answers = [[start_timer(1)], [start_timer(2)], [complete_workflow()]][:tasks]
    activations = replayed(built, answers, built.to_task(tasks))
    assert [a.is_replaying for a in activations] == [True] * (tasks - 1) + [False]


def test_replay_ending_wft_complete_with_commands_but_no_scheduled_started() -> None:
    """The last that was written is what the last task did."""
    built = begun()
    built.timer_started(1)
    activations = replayed(built, [[start_timer(1)]])
    assert told(activations) == [["initialize_workflow"]]
    assert activations[0].is_replaying


def test_signal_activation_has_originating_event_id() -> None:
    built = begun()
    signal = built.signaled("signal")
    built.task_scheduled_and_started()
    activation = replayed(built, [[], []])[1]
    assert activation.jobs[0].signal_workflow.originating_event_id == signal


def test_double_signals_at_the_start_come_before_the_first_task_of_the_code() -> None:
    """test_replayer_event_tracing: signals that were there first stand behind the beginning."""
    built = HistoryBuilder()
    built.started()
    built.signaled("one")
    built.signaled("two")
    built.full_task()
    built.timer_fired(built.timer_started(1), 1)
    built.signaled("three")
    built.full_task()
    built.completed()
    jobs = alike(built, [[start_timer(1)], [complete_workflow()]])
    assert jobs == [
        ["initialize_workflow", "signal_workflow", "signal_workflow"],
        ["signal_workflow", "fire_timer"],
    ]


def test_a_swallowed_activity_cancellation_replays() -> None:
    """test_replayer_swallowed_activity_cancellation: the code catches it and goes on."""
    built = begun()
    activity = built.activity_scheduled("1")
    built.cancel_requested("why not")
    built.full_task()
    built.activity_cancel_requested(activity)
    built.timer_fired(built.timer_started(2), 2)
    built.full_task()
    built.completed()
    jobs = alike(
        built,
        [
            [schedule_activity(1)],
            [cancel_activity(1), start_timer(2)],
            [],
            [complete_workflow()],
        ],
    )
    assert jobs[2:] == [["resolve_activity"], ["fire_timer"]]


# Children


def test_abandoned_child_bug_repro() -> None:
    """The parent is cancelled, gives its abandoned child up, and ends; nobody asks the child."""
    built = begun()
    child = built.child_initiated()
    built.child_started(child)
    built.full_task()
    built.cancel_requested("stop")
    built.full_task()
    built.canceled()
    jobs = alike(built, [[start_child(ABANDON)], [], [cancel_child()], [cancel_workflow()]])
    assert jobs == [
        ["initialize_workflow"],
        ["resolve_child_workflow_execution_start"],
        ["cancel_workflow"],
        ["resolve_child_workflow_execution"],
    ]


def test_cancel_child_before_started_event() -> None:
    """The request goes without a run id; the start that comes after it is nobody's news."""
    built = begun()
    child = built.child_initiated()
    built.signaled("cancel it")
    built.full_task()
    request = built.cancel_external_initiated("child-id", child_workflow_only=True)
    timer = built.timer_started(2)
    started = built.child_started(child)
    built.external_cancel_requested(request)
    built.child_ended("canceled", child, started)
    built.timer_fired(timer, 2)
    built.full_task()
    built.completed()
    jobs = alike(
        built,
        [[start_child(TRY)], [cancel_child()], [start_timer(2)], [complete_workflow()]],
    )
    assert jobs == [
        ["initialize_workflow"],
        ["signal_workflow"],
        ["resolve_child_workflow_execution"],
        ["fire_timer"],
    ]


def test_cancel_already_complete_child_ignored() -> None:
    built = begun()
    child = built.child_initiated()
    started = built.child_started(child)
    built.child_ended("completed", child, started, result=payloads("done"))
    built.full_task()
    built.completed()
    jobs = alike(built, [[start_child(TRY)], [cancel_child(), complete_workflow()]])
    assert jobs[1] == [
        "resolve_child_workflow_execution_start",
        "resolve_child_workflow_execution",
    ]


# Patches


def test_patched_on_second_workflow_task_is_deterministic() -> None:
    """The code asks for the patch in the second task: it must know of the marker by then."""
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    built.timer_fired(built.timer_started(1), 1)
    built.full_task()
    built.patch_marker("change")
    built.patch_search_attributes("change")
    built.activity_scheduled("2")
    built.task_scheduled_and_started()
    answers = [[start_timer(1)], [patch("change"), schedule_activity(2)]]
    assert told(replayed(built, answers)) == [
        ["initialize_workflow"],
        ["notify_has_patch", "fire_timer"],
    ]


def test_same_change_multiple_spots() -> None:
    """Asked twice, in one task or in two, the patch has one marker."""
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    built.patch_marker("change")
    built.patch_search_attributes("change")
    first = built.activity_scheduled("1")
    built.activity_completed(first, built.activity_started(first))
    built.full_task()
    second = built.activity_scheduled("2")
    built.activity_completed(second, built.activity_started(second))
    built.full_task()
    built.completed()
    answers = [
        [patch("change"), schedule_activity(1), patch("change")],
        [patch("change"), schedule_activity(2)],
        [complete_workflow()],
    ]
    assert told(replayed(built, answers)) == [
        ["initialize_workflow", "notify_has_patch"],
        ["resolve_activity"],
        ["resolve_activity"],
    ]
    assert told(lived(built, answers)) == [
        ["initialize_workflow"],
        ["resolve_activity"],
        ["resolve_activity"],
    ]


def test_patch_marker_size_overflow_replay_is_deterministic() -> None:
    """From the patch on whose list would be too long the upserts are missing in history too."""
    names = [f"{number:02}-{'x' * 180}" for number in range(13)]
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    for number, name in enumerate(names, 1):
        built.patch_marker(name)
        if number * 185 + 2 < 2048:
            built.patch_search_attributes(*names[:number])
    built.timer_fired(built.timer_started(1), 1)
    built.full_task()
    built.completed()
    answers = [[*map(patch, names), start_timer(1)], [complete_workflow()]]
    assert told(replayed(built, answers))[1] == ["fire_timer"]
    assert told(lived(built, answers))[1] == ["fire_timer"]


# Local activities


def la_and_timer() -> HistoryBuilder:
    """A local activity beside a timer, twice over, with heartbeats of tasks in between."""
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    first = built.timer_started(1)
    built.full_task()
    built.full_task()
    built.timer_fired(first, 1)
    built.full_task()
    built.local_activity_marker(2, activation_index=1)
    second = built.timer_started(3)
    built.full_task()
    built.local_activity_marker(4, activation_index=0)
    built.timer_fired(second, 3)
    built.full_task()
    built.completed()
    return built


@pytest.mark.parametrize("task", range(1, 7))
def test_weird_la_nondeterminism_repro(task: int) -> None:
    """A run that is lost while local activities run, at whatever task, can be taken up again.

    Rows: second_weird_la_nondeterminism_repro, third_weird_la_nondeterminism_repro,
    evict_while_la_running_no_interference.
    """
    built, stage = la_and_timer(), Stage()
    stage.poll(built, built.to_task(task))
    over: list[int] = []
    while stage.has(LangActivation) or stage.has(RunLocalActivities):
        for run in stage.all(RunLocalActivities):
            for request in run.requests:
                assert isinstance(request, LocalActivityRequest)
                seq = request.command.seq
                stage.feed(LocalResolved(RUN, seq, _done(seq)))
        commands: list[WorkflowCommand] = []
        for job in stage.activation().jobs:
            if job.HasField("initialize_workflow"):
                commands = [start_timer(1), run_local(2)]
                continue
            over.append(
                job.fire_timer.seq if job.HasField("fire_timer") else job.resolve_activity.seq
            )
            if over in ([1, 2], [2, 1]):
                commands = [start_timer(3), run_local(4)]
            elif len(over) == 4:
                commands = [complete_workflow()]
        stage.complete(*commands)
    assert not stage.has(FailTask)
    assert stage.has(CompleteTask)
    assert over == {4: [1, 2, 4], 5: [1, 2, 4], 6: [1, 2, 4, 3]}.get(task, [2])


def test_la_resolve_same_time_as_other_cancel() -> None:
    """An activity's cancellation and a local activity's result come from one task."""
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    activity = built.activity_scheduled("1")
    timer = built.timer_started(2)
    built.timer_fired(timer, 2)
    built.full_task()
    built.activity_cancel_requested(activity)
    built.local_activity_marker(3, activation_index=1)
    started = built.activity_started(activity)
    built.activity_canceled(activity, started)
    built.full_task()
    built.completed()
    answers = [
        [schedule_activity(1, cancellation_type=WAIT), start_timer(2)],
        [cancel_activity(1), run_local(3)],
        [],
        [complete_workflow()],
    ]
    jobs = alike(built, answers)
    assert jobs == [["initialize_workflow"], ["fire_timer"], *[["resolve_activity"]] * 2]


def test_local_act_command_immediately_follows_la_marker() -> None:
    """What the code does with the result stands right behind the marker."""
    built = begun()
    built.set_flags(4, core=[1, 2, 3])
    built.local_activity_marker(
        1, activation_index=1, complete_time=datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)
    )
    built.timer_fired(built.timer_started(2), 2)
    built.full_task()
    built.completed()
    jobs = alike(built, [[run_local(1)], [start_timer(2)], [complete_workflow()]])
    assert jobs == [["initialize_workflow"], ["resolve_activity"], ["fire_timer"]]


def test_resolved_las_not_recorded_if_wft_fails_many_times() -> None:
    """A failed task records nothing: the next attempt runs the local activity again."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    for attempt in (1, 2, 3):
        stage.poll(built, attempt=attempt)
        assert kinds(stage.activation()) == ["initialize_workflow"]
        stage.complete(run_local())
        assert stage.has(RunLocalActivities)
        stage.all(RunLocalActivities)
        result = LocalResolved(RUN, 1, _done(1))
        stage.feed(result)
        assert kinds(stage.activation()) == ["resolve_activity"]
        stage.fail("no luck")
        assert not stage.has(CompleteTask)
        if attempt == 1:
            stage.failure()
            stage.report()
        assert not stage.has(FailTask), "it is told once"
        stage.feed(LocalCancelsDelivered(RUN))
        stage.eviction()


def _done(seq: int) -> LocalResult:
    return LocalResult(seq, LocalOutcome.COMPLETED, 1, Timestamp(), runtime=0.1)
