"""What a broken server, proxy or lang may send, case by case: it fails one run, and says why.

`test_stream_mutations` tries the same at random; here every case is named and its end is exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import History
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import Success, WorkflowActivationCompletion
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistoryBuilder, HistorySlice
from tests.core.support.stage import (
    RUN,
    Stage,
    answer_query,
    cancel_timer,
    complete_workflow,
    kinds,
    queries,
    run_local,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    FailTask,
    FetchPage,
    ReleasePermit,
    RespondQuery,
    RunLocalActivities,
    RunRemoved,
    SetHeartbeat,
)
from perdure.core.inputs import (
    Completed,
    LocalCancelsDelivered,
    NewTask,
    PageFetched,
)
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.workflow_tasks.completion import MalformedCompletion
from perdure.core.workflow_tasks.task import MalformedTask

Reason = RemoveFromCache.EvictionReason
UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE
NONDETERMINISM = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR

VARIANTS = [field.name for field in WorkflowCommand.DESCRIPTOR.oneofs_by_name["variant"].fields]


def leaves(stage: Stage) -> Any:
    """The failed task is reported, lang drops the run, and its slot comes back."""
    stage.report()
    eviction = stage.eviction()
    assert stage.take(RunRemoved).run_id == RUN
    assert stage.take(ReleasePermit).permit == f"permit-{stage.polls}"
    assert stage.is_quiet
    return eviction


def first_task() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    return built


# Tasks


@pytest.mark.parametrize(
    "missing",
    [
        "task_token",
        "workflow_execution",
        "workflow_type",
        "workflow_execution_task_queue",
        "history",
    ],
)
def test_a_task_without_an_essential_part_is_refused(missing: str) -> None:
    stage = Stage()
    task = first_task().poll()
    task.ClearField(missing)  # type: ignore[arg-type]
    with pytest.raises(MalformedTask, match=missing.replace("_", " ")):
        stage.feed(NewTask(task, "permit", 0.0))
    assert stage.stream.cached_runs == 0
    stage.poll(first_task())
    assert kinds(stage.activation()) == ["initialize_workflow"], "the stream goes on"


def test_a_task_without_a_run_id_is_refused() -> None:
    task = first_task().poll()
    task.workflow_execution.run_id = ""
    with pytest.raises(MalformedTask, match="run id"):
        Stage().feed(NewTask(task, "permit", 0.0))


def test_old_and_new_queries_in_one_task_fail_it() -> None:
    stage = Stage()
    built = first_task()
    task = built.poll(queries=queries(q="query"), query=queries(q="query")["q"], token=b"task-1")
    stage.feed(NewTask(task, "permit-1", 0.0))
    stage.polls = 1
    eviction = stage.eviction()
    assert eviction.reason == Reason.UNSPECIFIED
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert not stage.has(RespondQuery), "the server asks again"


def test_a_history_shorter_than_promised_fails_the_task() -> None:
    stage, built = Stage(), first_task()
    stage.poll(built, HistorySlice(built.events[:], 0, 9))
    request = stage.take(FailTask)
    assert request.unstored
    assert "ends at event 3" in request.request.failure.message
    assert stage.take(ReleasePermit).permit == "permit-1"


@pytest.mark.parametrize("empty", [True, False])
def test_page_tokens_that_lead_in_a_circle_fail_the_task(empty: bool) -> None:
    """Pages that bring nothing new may lead to others, but never back."""
    stage, built = Stage(), single_timer()
    stage.poll(built, HistorySlice(built.events[:2], 0, 8), next_page_token=b"a")
    events = [] if empty else built.events[:2]
    for token in (b"b", b"a"):
        fetch = stage.take(FetchPage).fetch
        stage.feed(PageFetched(fetch, History(events=events), token))
    request = stage.take(FailTask)
    assert request.unstored
    assert "looping history pages: after event 2" in request.request.failure.message
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert stage.is_quiet


def test_a_token_may_come_again_if_its_page_brings_more() -> None:
    """A server may keep a cursor behind one and the same token."""
    stage, built = Stage(), single_timer()
    stage.poll(built, HistorySlice(built.events[:2], 0, 8), next_page_token=b"a")
    stage.page(stage.take(FetchPage).fetch, built, 3, 4, b"a")
    stage.page(stage.take(FetchPage).fetch, built, 5, 8, b"a")
    assert kinds(stage.activation()) == ["initialize_workflow"]


# Events


def spoil_time(built: HistoryBuilder) -> None:
    built.event(3).event_time.seconds = 2**62


def drop_time(built: HistoryBuilder) -> None:
    built.event(3).ClearField("event_time")


def lose_event(built: HistoryBuilder) -> None:
    del built.events[1]


def double_event(built: HistoryBuilder) -> None:
    built.events.insert(1, built.events[1])


def swap_events(built: HistoryBuilder) -> None:
    built.events[0], built.events[1] = built.events[1], built.events[0]


def future_event(built: HistoryBuilder) -> None:
    event = built.event(2)
    event.ClearField("workflow_task_scheduled_event_attributes")
    event.event_type = 5000  # type: ignore[assignment]


def unspecified_event(built: HistoryBuilder) -> None:
    event = built.event(2)
    event.ClearField("workflow_task_scheduled_event_attributes")
    event.ClearField("event_type")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (spoil_time, "WORKFLOW_TASK_STARTED (event 3) of history has no valid time"),
        (drop_time, "event 3, WorkflowTaskStarted, has no time"),
        (lose_event, "History is out of order: WORKFLOW_TASK_STARTED (event 3) follows event 1"),
        (double_event, "History is out of order: WORKFLOW_TASK_SCHEDULED (event 2) follows"),
        (future_event, "type 5000 (event 2) of history is of a kind that is not supported"),
        (unspecified_event, "UNSPECIFIED (event 2) of history is of a kind that is not supported"),
    ],
    ids=lambda part: part.__name__ if callable(part) else "",
)
def test_a_broken_history_fails_its_task(
    spoil: Callable[[HistoryBuilder], None], text: str
) -> None:
    """… and no lang had a part in it."""
    stage, built = Stage(), first_task()
    spoil(built)
    stage.poll(built, HistorySlice(built.events[:], 0, 3))
    request = stage.failure()
    assert request.cause == UNHANDLED
    assert text in request.failure.message
    assert leaves(stage).reason == Reason.UNSPECIFIED


def test_a_history_that_does_not_begin_at_the_beginning_is_fetched() -> None:
    """Swapped first events look like a run that should be cached here."""
    stage, built = Stage(), first_task()
    swap_events(built)
    stage.poll(built, HistorySlice(built.events[:], 0, 3))
    assert stage.take(FetchPage).token == b""


def test_ignorable_events_are_ok() -> None:
    """Anything from the future may stand anywhere if the server says that it does not matter."""
    built = HistoryBuilder()
    built.started()
    built.ignorable()
    built.task_scheduled()
    built.ignorable(6000)
    built.task_started()
    stage = Stage()
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow"]


def test_an_event_without_attributes_that_matter_never_stops_the_worker() -> None:
    """A signal of which only the kind is left is a signal without a name."""
    built = first_task()
    built.task_completed()
    built.signaled()
    built.event(5).ClearField("workflow_execution_signaled_event_attributes")
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete()
    assert stage.activation().jobs[0].signal_workflow.signal_name == ""


# Completions


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_command_with_nothing_in_it(variant: str) -> None:
    """Every kind: it is carried out, or it fails the task of its run; the worker goes on."""
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    command = WorkflowCommand()
    getattr(command, variant).SetInParent()
    try:
        stage.complete(command)
    except MalformedCompletion:
        stage.fail("lang takes it back")
    if stage.has(RunLocalActivities):
        stage.evict()
        stage.feed(LocalCancelsDelivered(RUN))
    else:
        stage.report()
        stage.evict()
    stage.eviction()
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert stage.stream.cached_runs == 0


@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if "cancel_" in v and "workflow_" not in v]
)
def test_the_cancellation_of_what_never_was_is_nondeterminism(variant: str) -> None:
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    command = WorkflowCommand()
    getattr(command, variant).SetInParent()
    stage.complete(command)
    request = stage.failure()
    assert request.cause == NONDETERMINISM
    assert "Missing associated machine" in request.failure.message
    assert leaves(stage).reason == Reason.NONDETERMINISM


@pytest.mark.parametrize(
    "variant",
    [
        "schedule_activity",
        "schedule_local_activity",
        "start_child_workflow_execution",
        "schedule_nexus_operation",
    ],
)
def test_an_unknown_cancellation_type_is_the_first_one(variant: str) -> None:
    """Lang may be newer than the core: what it asks for begins all the same."""
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    command = WorkflowCommand()
    body = getattr(command, variant)
    body.seq = 1
    body.cancellation_type = 77
    if variant == "schedule_local_activity":
        body.start_to_close_timeout.seconds = 1
    stage.complete(command)
    assert stage.has(CompleteTask) or stage.has(RunLocalActivities)


def test_a_number_used_twice_in_one_completion() -> None:
    """Both commands go out, as lang wished; the machine that can be cancelled is the later one."""
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    stage.complete(start_timer(1), start_timer(1), cancel_timer(1))
    assert len(stage.completion().commands) == 1


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (WorkflowActivationCompletion(run_id=RUN), "neither a success nor a failure"),
        (
            WorkflowActivationCompletion(
                run_id=RUN, successful=Success(commands=[WorkflowCommand()])
            ),
            "no variant",
        ),
        (
            WorkflowActivationCompletion(
                run_id=RUN, successful=Success(commands=[answer_query(), start_timer()])
            ),
            "must be the only command",
        ),
        (
            WorkflowActivationCompletion(run_id=RUN, successful=Success(commands=[answer_query()])),
            "answers a legacy query that was not asked",
        ),
        (
            WorkflowActivationCompletion(
                run_id=RUN, successful=Success(commands=[answer_query("q"), start_timer()])
            ),
            "answers queries that were not asked",
        ),
    ],
    ids=["no status", "no variant", "legacy answer mixed", "not asked", "not asked at all"],
)
def test_a_malformed_completion_changes_nothing(
    completion: WorkflowActivationCompletion, text: str
) -> None:
    """Lang hears of it and may still answer properly."""
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    with pytest.raises(MalformedCompletion, match=text):
        stage.feed(Completed(completion))
    assert stage.is_quiet
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1


def test_a_completion_for_nothing_is_malformed() -> None:
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    stage.complete(start_timer())
    with pytest.raises(MalformedCompletion, match="no activation of this run is outstanding"):
        stage.complete(start_timer())
    stage.complete(start_timer(), run_id="unknown run")
    assert len(stage.all(CompleteTask)) == 1


def test_an_eviction_is_answered_with_nothing_but_nothing() -> None:
    stage = Stage()
    stage.poll(first_task())
    stage.activation()
    stage.complete(start_timer())
    stage.report()
    stage.evict()
    stage.activation()
    with pytest.raises(MalformedCompletion, match="an eviction is answered with no commands"):
        stage.complete(start_timer(2))
    stage.complete()
    stage.take(RunRemoved)


# What nobody foresaw


def test_an_unforeseen_error_ends_the_work_on_its_own_run_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    other = HistoryBuilder(run_id="other", workflow_id="other")
    other.started()
    other.task_scheduled_and_started()
    stage.poll(other)
    stage.activation()
    stage.poll(first_task())
    stage.activation()

    def iterate(self: WorkflowMachines, _: object) -> None:
        raise ZeroDivisionError("a fault in the machines")

    with monkeypatch.context() as patch:
        patch.setattr(WorkflowMachines, "iterate", iterate)
        stage.complete(start_timer())
    request = stage.failure()
    assert request.cause == UNHANDLED
    assert "unexpected ZeroDivisionError: a fault in the machines" in request.failure.message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert leaves(stage).reason == Reason.FATAL
    stage.complete(start_timer(), run_id="other")
    assert len(stage.completion().commands) == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_unforeseen_error_while_an_activation_is_made(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """The server is told once; the run leaves each time."""
    stage = Stage()

    def activation(self: WorkflowMachines) -> None:
        raise ZeroDivisionError("a fault in the machines")

    monkeypatch.setattr(WorkflowMachines, "activation", activation)
    stage.poll(first_task(), attempt=attempt)
    if attempt == 1:
        assert "unexpected ZeroDivisionError" in stage.failure().failure.message
        stage.report()
    assert stage.eviction().reason == Reason.UNSPECIFIED
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert stage.stream.cached_runs == 0


# Times that a server should have set


def test_a_task_without_a_time_limit_is_renewed_by_the_servers_default() -> None:
    """… and not at once, over and over."""
    stage, built = Stage(), first_task()
    attributes = built.event(1).workflow_execution_started_event_attributes
    attributes.ClearField("workflow_task_timeout")
    stage.poll(built, received_at=100.0)
    stage.activation()
    stage.complete(run_local())
    assert stage.take(SetHeartbeat).at == pytest.approx(108.0)


# Replies


def test_a_reply_that_brings_a_task_of_another_run() -> None:
    """It gets the slot of the run that answered, and is that other run's from then on."""
    stage = Stage()
    other = HistoryBuilder(run_id="other", workflow_id="other")
    other.started()
    other.task_scheduled_and_started()
    stage.poll(first_task())
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report(next_task=other.poll(token=b"task of another"))
    assert not stage.has(ReleasePermit)
    assert stage.activation().run_id == "other"
    stage.complete(complete_workflow(), run_id="other")
    assert stage.completion().task_token == b"task of another"
    stage.report(run_id="other")
    assert stage.take(ReleasePermit).permit == "permit-1"


@pytest.mark.parametrize("event_id", [1, 3, 1000])
def test_a_reset_of_what_was_never_speculative_costs_its_run_at_most(event_id: int) -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report(reset_to=event_id)
    stage.take(ReleasePermit)
    stage.poll(built, built.only_task(2))
    assert "out of order" in stage.failure().failure.message
    leaves(stage)
