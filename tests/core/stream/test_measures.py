"""What the stream measures: durations that begin at a moment it knows and end with the action."""

from __future__ import annotations

from temporalio.api.enums.v1 import ApplicationErrorCategory
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.stage import Stage, complete_workflow, counted, start_timer

from perdure.core.actions import Counted, Measured, TaskOver


def tasks_over(stage: Stage) -> list[float]:
    return [action.since for action in stage.all(TaskOver)]


def measured(stage: Stage) -> list[tuple[str, float]]:
    return [(action.name, action.since) for action in stage.all(Measured)]


def test_a_task_is_measured_when_the_server_has_its_answer() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1), received_at=3.0)
    stage.complete(start_timer())
    assert tasks_over(stage) == []
    stage.report()
    (over,) = stage.all(TaskOver)
    assert (over.since, over.event_id, over.attempt) == (3.0, 4, 1)


def test_only_what_has_to_catch_up_is_measured_as_replay() -> None:
    """A first task replays nothing; a later one does until lang gets its first live activation."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(2), received_at=5.0)
    stage.activation()
    assert measured(stage) == []
    stage.complete(start_timer())
    assert measured(stage) == [("workflow_task_replay_latency", 5.0)]


def test_a_workflow_is_measured_when_it_ends() -> None:
    """Its first event says on the wall clock when it began."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    stage = Stage()
    stage.poll(built, built.to_task(1))
    stage.complete(complete_workflow())
    stage.report()
    began = built.events[0].event_time.ToNanoseconds() / 1e9
    (lifetime,) = stage.all(Measured)
    assert lifetime == Measured("workflow_endtoend_latency", lifetime.workflow_type, began, True)
    assert len(tasks_over(stage)) == 1


def test_a_benign_failure_is_measured_and_not_counted() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    stage = Stage()
    stage.poll(built, built.to_task(1))
    command = complete_workflow()
    info = command.fail_workflow_execution.failure.application_failure_info
    info.category = ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN
    stage.complete(command)
    stage.report()
    assert counted(stage.all(Counted)) == []
    assert [name for name, _ in measured(stage)] == ["workflow_endtoend_latency"]
