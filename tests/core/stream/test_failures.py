"""Failures through the stream: of lang, of the machines, of the server, of fetching history."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import CommandType, WorkflowTaskFailedCause
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from tests.core.support.canned_histories import failed_task, single_timer, timed_out_task
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.stage import (
    RUN,
    Stage,
    answer_query,
    cancel_timer,
    complete_workflow,
    counted,
    fail_workflow,
    kinds,
    queries,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import (
    Counted,
    FailTask,
    FetchPage,
    LangActivation,
    ReleasePermit,
    RespondQuery,
    RunRemoved,
)
from perdure.core.inputs import PageFetchFailed, ProblemKind

Reason = RemoveFromCache.EvictionReason
UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE


def begun(**settings: object) -> tuple[Stage, HistoryBuilder]:
    stage, built = Stage(**settings), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    return stage, built


def test_simple_timer_fail_wf_execution() -> None:
    stage, _ = begun()
    stage.complete(fail_workflow())
    request = stage.completion()
    assert request.commands[0].fail_workflow_execution_command_attributes.failure.message == (
        "failed"
    )
    stage.report()
    assert "workflow_failed" in counted(stage.all(Counted))


def test_default_wft_fail_cause_is_worker_unhandled() -> None:
    """Rows: complete_activation_with_failure."""
    stage, _ = begun()
    stage.fail("lang broke")
    request = stage.failure()
    assert (request.cause, request.failure.message) == (UNHANDLED, "lang broke")
    assert not stage.has(LangActivation), "the eviction waits for the report"
    stage.report()
    eviction = stage.eviction()
    assert eviction.reason == Reason.LANG_FAIL
    assert eviction.message == "Workflow activation completion failed: lang broke"


def test_lang_may_force_the_cause() -> None:
    stage, _ = begun()
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    stage.fail(force_cause=cause)
    assert stage.failure().cause == cause


def test_workflow_failures_only_reported_once() -> None:
    """Later attempts run into the server's time-out instead of making it try at once. All of them
    are counted."""
    stage, built = Stage(), single_timer()
    for attempt, reported in ((1, True), (2, False), (3, False)):
        permit = stage.poll(built, built.to_task(1), attempt=attempt)
        stage.activation()
        stage.fail()
        assert "WorkflowError" in {each.reason for each in stage.all(Counted)}
        assert stage.has(FailTask) is reported
        if reported:
            stage.failure()
            stage.report()
        assert stage.take(ReleasePermit).permit == permit
        stage.eviction()


@pytest.mark.parametrize("canned", [failed_task, timed_out_task])
def test_fail_wft_then_recover(canned: type) -> None:
    """A task that failed or timed out is swallowed when the history is replayed.

    Rows: fail_wf_task.
    """
    stage, built = Stage(), canned()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    stage.completion()


def test_nondeterminism_fails_the_task_and_evicts() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built)
    stage.activation()
    stage.complete(schedule_activity())
    request = stage.failure()
    assert (
        request.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    )
    assert request.failure.message.startswith("[TMPRL1100] Nondeterminism error: ")
    assert stage.take(Counted).reason == "NonDeterminismError"
    stage.report()
    eviction = stage.eviction()
    assert eviction.reason == Reason.NONDETERMINISM
    assert "[TMPRL1100]" in eviction.message


def test_a_machine_error_of_a_completion_is_fatal() -> None:
    """Cancelling what was never begun."""
    stage, _ = begun()
    stage.complete(cancel_timer(9))
    assert "Missing associated machine" in stage.failure().failure.message


def test_poll_response_triggers_wf_error() -> None:
    """History that cannot be applied fails the task without asking lang."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.timer_fired(99)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete()
    assert stage.failure().failure.message
    stage.report()
    assert stage.eviction().reason in (Reason.NONDETERMINISM, Reason.FATAL)


def test_an_error_of_applying_a_new_task_is_not_blamed_on_lang() -> None:
    built = HistoryBuilder()
    built.started()
    built.event(1).event_id = 1
    built.task_scheduled_and_started()
    built.event(2).event_id = 3
    built.event(3).event_id = 4
    stage = Stage()
    stage.poll(built)
    request = stage.failure()
    assert request.failure.message.startswith("Fatal error in workflow machines: ")
    assert request.cause == UNHANDLED
    stage.report()
    assert stage.eviction().reason == Reason.UNSPECIFIED


@pytest.mark.parametrize("by_type", [False, True])
def test_nondeterminism_may_fail_the_workflow(*, by_type: bool) -> None:
    stage = (
        Stage(fail_workflow_on_nondeterminism_types=frozenset({"workflow-type"}))
        if by_type
        else Stage(fail_workflow_on_nondeterminism=True)
    )
    built = single_timer()
    stage.poll(built)
    stage.activation()
    stage.complete(schedule_activity())
    (command,) = stage.completion().commands
    assert command.command_type == CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION
    failure = command.fail_workflow_execution_command_attributes.failure
    assert failure.HasField("application_failure_info")
    assert not failure.application_failure_info.non_retryable
    assert failure.message.startswith("[TMPRL1100]")
    stage.report()
    assert stage.eviction().reason == Reason.NONDETERMINISM


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (ProblemKind.UNHANDLED_COMMAND, Reason.UNHANDLED_COMMAND),
        (ProblemKind.NOT_FOUND, Reason.TASK_NOT_FOUND),
        (ProblemKind.OTHER, Reason.FATAL),
    ],
)
def test_a_refused_answer_evicts(problem: ProblemKind, reason: int) -> None:
    stage, _ = begun()
    stage.complete(start_timer())
    stage.completion()
    stage.refuse(problem)
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert stage.eviction().reason == reason


@pytest.mark.parametrize(
    ("problem", "cause", "metric"),
    [
        (ProblemKind.GRPC_MESSAGE_TOO_LARGE, "GRPC_MESSAGE_TOO_LARGE", "GrpcMessageTooLarge"),
        (ProblemKind.PAYLOADS_TOO_LARGE, "PAYLOADS_TOO_LARGE", "PayloadsTooLarge"),
        (ProblemKind.REQUEST_TOO_LARGE, "REQUEST_TOO_LARGE", "RequestTooLarge"),
    ],
)
def test_too_large_doesnt_spam_task_fails(problem: ProblemKind, cause: str, metric: str) -> None:
    """grpc_message_too_large_doesnt_spam_task_fails, payloads_too_large_…

    Rows: payloads_too_large_doesnt_spam_task_fails.
    """
    for attempt in (1, 2):
        stage, built = Stage(), single_timer()
        stage.poll(built, built.to_task(1), attempt=attempt)
        stage.activation()
        stage.complete(start_timer())
        stage.completion()
        stage.refuse(problem, "too large")
        if attempt == 1:
            request = stage.failure()
            assert request.cause == WorkflowTaskFailedCause.Value(
                f"WORKFLOW_TASK_FAILED_CAUSE_{cause}"
            )
            assert request.failure.application_failure_info.type == metric
            may_be_retried = problem is ProblemKind.PAYLOADS_TOO_LARGE
            assert request.failure.application_failure_info.non_retryable is not may_be_retried
            assert stage.take(Counted).reason == metric
            stage.report()
        assert not stage.has(FailTask)
        stage.eviction()


def test_unstored_wft_fetch_failure_doesnt_spam_task_fails() -> None:
    stage, built = Stage(), single_timer()
    for attempt, reported in ((1, True), (2, False)):
        permit = stage.poll(built, built.only_task(2), attempt=attempt)
        fetch = stage.take(FetchPage)
        stage.feed(PageFetchFailed(fetch.fetch, "no such history"))
        if reported:
            action = stage.take(FailTask)
            assert action.unstored
            assert "no such history" in action.request.failure.message
        assert stage.take(ReleasePermit).permit == permit
        assert stage.is_quiet


def test_cached_run_fetch_failure_doesnt_spam_task_fails() -> None:
    """The stale run leaves first; then the task fails, once."""
    for attempt, reported in ((1, True), (2, False)):
        stage, built = begun()
        stage.complete(start_timer())
        stage.completion()
        stage.report()
        part = built.only_task(2)
        part.events[:] = part.events[:1]
        stage.poll(built, part, attempt=attempt, next_page_token=b"page")
        fetch = stage.take(FetchPage)
        assert fetch.token == b"page"
        stage.feed(PageFetchFailed(fetch.fetch, "gone"))
        assert stage.eviction().reason == Reason.PAGINATION_OR_HISTORY_FETCH
        assert stage.has(FailTask) is reported
        if reported:
            assert stage.take(FailTask).unstored, "nobody waits for it any more"
        stage.take(RunRemoved)
        assert {p.permit for p in stage.all(ReleasePermit)} == {"permit-1", "permit-2"}


def test_every_task_whose_history_is_gone_fails_when_the_stale_run_has_left() -> None:
    """Another one may come while lang is asked to drop the run."""
    stage, built = begun()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    part = built.only_task(2)
    part.events[:] = part.events[:1]
    for _ in range(2):
        stage.poll(built, part, next_page_token=b"page")
        stage.feed(PageFetchFailed(stage.take(FetchPage).fetch, "gone"))
    stage.eviction()
    assert [fail.unstored for fail in stage.all(FailTask)] == [True, True]
    permits = {p.permit for p in stage.all(ReleasePermit)}
    assert permits == {"permit-1", "permit-2", "permit-3"}


def test_ensure_fetching_fail_during_complete_sends_task_failure() -> None:
    built = HistoryBuilder()
    built.started()
    for seq in (1, 2, 3, 4):
        built.full_task()
        built.timer_fired(built.timer_started(seq), seq)
    built.task_scheduled_and_started()
    whole = built.whole()
    cut = whole.events[:14]
    stage = Stage()
    whole.events[:] = cut
    stage.poll(built, whole, next_page_token=b"more")
    stage.activation()
    stage.complete(start_timer(1))
    while not stage.has(FetchPage):
        activation = stage.activation()
        stage.complete(start_timer(activation.jobs[0].fire_timer.seq + 1))
    fetch = stage.take(FetchPage)
    stage.feed(PageFetchFailed(fetch.fetch, "lost"))
    assert "lost" in stage.failure().failure.message
    stage.report()
    assert stage.eviction().reason == Reason.PAGINATION_OR_HISTORY_FETCH


def test_failing_wft_doesnt_eat_permit_forever() -> None:
    stage, built = Stage(), single_timer()
    for _ in range(3):
        permit = stage.poll(built, built.to_task(1))
        stage.activation()
        stage.fail()
        stage.failure()
        stage.report()
        assert [a.permit for a in stage.all(ReleasePermit)] == [permit]
        stage.eviction()


def test_a_failure_drops_queries_that_wait() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1), queries=queries(q1="one"))
    stage.activation()
    stage.fail()
    stage.failure()
    stage.report()
    assert stage.eviction().reason == Reason.LANG_FAIL
    assert stage.take(RunRemoved).run_id == RUN


def test_query_failure_because_nondeterminism() -> None:
    """Lang's own completion broke the run: the asker is told."""
    stage, built = Stage(), single_timer()
    stage.poll_query(built, sticky=False)
    stage.activation()
    stage.complete(schedule_activity())
    request = stage.query_answer()
    assert "[TMPRL1100]" in request.error_message
    stage.report()
    assert stage.eviction().reason == Reason.NONDETERMINISM


def test_legacy_query_failure_on_wft_failure() -> None:
    stage, built = Stage(), single_timer()
    stage.poll_query(built, sticky=False)
    stage.activation()
    stage.fail("lang broke")
    request = stage.query_answer()
    assert request.error_message == "lang broke"
    stage.report()
    assert stage.eviction().reason == Reason.LANG_FAIL
    assert stage.take(ReleasePermit).permit == "permit-1"


def test_a_lone_query_is_not_failed_by_errors_that_another_try_may_not_meet() -> None:
    stage, built = Stage(), single_timer()
    built.event(3).ClearField("event_time")
    stage.poll_query(built, sticky=False)
    assert not stage.has(RespondQuery)
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert stage.eviction().reason == Reason.UNSPECIFIED


def test_an_answer_of_a_query_that_was_not_asked_is_malformed() -> None:
    stage, _ = begun()
    with pytest.raises(Exception, match="was not asked"):
        stage.complete(answer_query())


def test_a_malformed_task_that_came_with_a_reply_evicts_the_run() -> None:
    """The reply itself counts, and the slot is not lost."""
    stage, built = begun()
    stage.complete(start_timer())
    stage.completion()
    following = built.poll(built.only_task(2), token=b"next")
    following.ClearField("workflow_type")
    stage.report(next_task=following)
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert "workflow type" in stage.eviction().message
