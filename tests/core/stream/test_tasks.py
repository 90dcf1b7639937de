"""Workflow tasks through the stream: the jobs of a plain run, cached and not, and its answers."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import CommandType
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.canned_histories import single_activity, single_timer, two_signals
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.stage import (
    RUN,
    Stage,
    complete_workflow,
    counted,
    kinds,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    Counted,
    LangActivation,
    ReleasePermit,
    RunRemoved,
)
from perdure.core.inputs import Completed, NewTask
from perdure.core.workflow_tasks.completion import MalformedCompletion
from perdure.core.workflow_tasks.task import MalformedTask


def test_single_timer_cached() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    first = stage.activation()
    assert kinds(first) == ["initialize_workflow"]
    assert not first.is_replaying
    stage.complete(start_timer())
    request = stage.completion()
    assert [c.command_type for c in request.commands] == [CommandType.COMMAND_TYPE_START_TIMER]
    assert request.task_token == b"task-1"
    stage.report()
    assert stage.take(ReleasePermit).permit == "permit-1"
    stage.poll(built, built.only_task(2))
    assert counted(stage.all(Counted)) == ["sticky_cache_hit"]
    second = stage.activation()
    assert kinds(second) == ["fire_timer"]
    assert not second.is_replaying
    stage.complete(complete_workflow())
    stage.completion()
    stage.report()
    assert stage.eviction().message == "Workflow completed"
    assert stage.take(RunRemoved).run_id == RUN
    assert stage.is_quiet


def test_single_timer_from_its_whole_history() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built)
    first = stage.activation()
    assert (kinds(first), first.is_replaying) == (["initialize_workflow"], True)
    stage.complete(start_timer())
    second = stage.activation()
    assert (kinds(second), second.is_replaying) == (["fire_timer"], False)
    assert not stage.has(CompleteTask)
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1


def test_single_activity_completion() -> None:
    stage, built = Stage(), single_activity()
    stage.poll(built)
    stage.activation()
    stage.complete(schedule_activity())
    second = stage.activation()
    assert kinds(second) == ["resolve_activity"]
    stage.complete(complete_workflow())
    stage.completion()


def test_two_signals() -> None:
    stage, built = Stage(), two_signals()
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete()
    assert kinds(stage.activation()) == ["signal_workflow", "signal_workflow"]


def test_autocompletes_wft_no_work() -> None:
    """A task that brings nothing for lang is answered all the same."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    stage.poll(built, built.only_task(2))
    assert not stage.has(LangActivation)
    assert stage.completion().task_token == b"task-2"


def test_tasks_from_completion_are_delivered() -> None:
    """The next task rides on the answer of the last one, and takes over its slot."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    assert stage.completion().return_new_workflow_task
    stage.report(next_task=built.poll(built.only_task(2), token=b"next"))
    assert not stage.has(ReleasePermit)
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert stage.completion().task_token == b"next"
    stage.report()
    assert stage.take(ReleasePermit).permit == "permit-1"


def test_sends_appropriate_sticky_task_queue_responses() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    sticky = stage.completion().sticky_attributes
    assert sticky.worker_task_queue.name == "sticky"
    assert sticky.worker_task_queue.normal_name == "task-queue"
    assert sticky.schedule_to_start_timeout.seconds == 10


def test_without_a_cache_nothing_is_sticky() -> None:
    stage, built = Stage(max_cached_workflows=0, sticky_queue=None), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    request = stage.completion()
    assert not request.HasField("sticky_attributes")
    assert not request.return_new_workflow_task
    stage.report()
    assert stage.eviction().message == "Workflow cache full"
    assert stage.stream.cached_runs == 0


def test_core_and_lang_internal_flags_are_written_once() -> None:
    """Rows: core_internal_flags."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer(), flags=[7])
    metadata = stage.completion().sdk_metadata
    assert list(metadata.core_used_flags) == [1, 2, 3, 4]
    assert list(metadata.lang_used_flags) == [7]
    stage.report()
    stage.poll(built, built.only_task(2))
    stage.activation()
    stage.complete(complete_workflow())
    metadata = stage.completion().sdk_metadata
    assert not metadata.core_used_flags
    assert not metadata.lang_used_flags


def test_post_terminal_commands_are_retained_when_not_replaying() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(complete_workflow(), start_timer(), complete_workflow("again"))
    assert [c.command_type for c in stage.completion().commands] == [
        CommandType.COMMAND_TYPE_START_TIMER,
        CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
    ]


def _ended_with_a_late_timer(*, core_flags: list[int], timer: bool) -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    built.task_completed(core_flags=core_flags)
    if timer:
        built.timer_started()
    built.completed()
    return built


def test_post_terminal_commands_are_retained_when_replaying_and_flag_set() -> None:
    stage = Stage(evict_after_replay=True)
    stage.poll(_ended_with_a_late_timer(core_flags=[3], timer=True))
    stage.activation()
    stage.complete(complete_workflow(), start_timer())
    assert stage.eviction().message == "Always evict workflows after replay"


def test_post_terminal_commands_are_not_retained_when_replaying_and_flag_not_set() -> None:
    stage = Stage(evict_after_replay=True)
    stage.poll(_ended_with_a_late_timer(core_flags=[], timer=False))
    stage.activation()
    stage.complete(complete_workflow(), start_timer())
    assert stage.eviction().message == "Always evict workflows after replay"


def test_eager_activities_are_chosen_up_to_the_limit() -> None:
    stage, built = Stage(max_eager_activities=2), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(
        schedule_activity(1, do_not_eagerly_execute=True),
        schedule_activity(2, task_queue="elsewhere"),
        *(schedule_activity(seq) for seq in (3, 4, 5)),
    )
    action = stage.take(CompleteTask)
    eager = [
        c.schedule_activity_task_command_attributes.request_eager_execution
        for c in action.request.commands
    ]
    assert eager == [False, False, True, True, False]
    ids = [c.schedule_activity_task_command_attributes.activity_id for c in action.eager]
    assert ids == ["3", "4"]


def test_a_task_without_its_parts_is_refused() -> None:
    stage, built = Stage(), single_timer()
    task = built.poll()
    task.ClearField("workflow_type")
    with pytest.raises(MalformedTask, match="workflow type"):
        stage.feed(NewTask(task, "permit", 0.0))


def test_a_malformed_completion_changes_nothing() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    with pytest.raises(MalformedCompletion, match="neither a success nor a failure"):
        stage.feed(Completed(WorkflowActivationCompletion(run_id=RUN)))
    empty = WorkflowActivationCompletion(run_id=RUN)
    empty.successful.commands.add()
    with pytest.raises(MalformedCompletion, match="no variant"):
        stage.feed(Completed(empty))
    assert stage.is_quiet
    stage.complete(start_timer())
    stage.completion()
    with pytest.raises(MalformedCompletion, match="outstanding"):
        stage.complete()


def test_complete_after_eviction() -> None:
    """A completion of a run that is gone has no effect."""
    stage = Stage()
    stage.complete(run_id="unknown")
    assert stage.is_quiet
