"""Queries through the stream, in the old form (alone) and in the new (with a workflow task)."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import QueryResultType
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistoryBuilder, HistorySlice
from tests.core.support.stage import (
    Stage,
    answer_query,
    complete_workflow,
    fail_query,
    kinds,
    queries,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    FailTask,
    FetchPage,
    ReleasePermit,
    RespondQuery,
)
from perdure.core.inputs import ProblemKind
from perdure.core.versioning import BuildId
from perdure.core.workflow_tasks.completion import MalformedCompletion

Reason = RemoveFromCache.EvictionReason


def cached() -> tuple[Stage, HistoryBuilder]:
    """A run that started its timer."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    stage.actions.clear()
    return stage, built


def first_task_only() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.timer_started()
    return built


def test_legacy_query_of_a_cached_run() -> None:
    stage, _ = cached()
    stage.poll_query(first_task_only(), sticky=True)
    activation = stage.activation()
    assert kinds(activation) == ["query_workflow"]
    assert activation.is_replaying
    assert activation.jobs[0].query_workflow.query_id == "legacy_query"
    stage.complete(answer_query(result="42"))
    request = stage.query_answer()
    assert request.completed_type == QueryResultType.QUERY_RESULT_TYPE_ANSWERED
    assert request.query_result.payloads[0].data == b'"42"'
    assert request.task_token == b"task-2"
    stage.report()
    assert stage.take(ReleasePermit).permit == "permit-2"
    assert stage.is_quiet
    assert stage.stream.cached_runs == 1


def test_legacy_query_replays_the_run_first() -> None:
    stage = Stage()
    stage.poll_query(first_task_only(), sticky=False)
    first = stage.activation()
    assert (kinds(first), first.is_replaying) == (["initialize_workflow"], True)
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    stage.query_answer()
    stage.report()
    assert not stage.has(CompleteTask)


def test_legacy_query_after_complete() -> None:
    """A workflow that has ended is asked after its whole history was replayed, and does not stay
    in the cache for that."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.completed()
    stage = Stage()
    for _ in range(2):
        stage.poll_query(built, sticky=False)
        stage.activation()
        stage.complete(complete_workflow())
        assert kinds(stage.activation()) == ["query_workflow"]
        stage.complete(answer_query())
        stage.query_answer()
        stage.report()
        assert stage.eviction().reason == Reason.WORKFLOW_EXECUTION_ENDING
        assert stage.is_quiet
        assert stage.stream.cached_runs == 0


def test_a_failed_legacy_query() -> None:
    stage, _ = cached()
    stage.poll_query(first_task_only(), sticky=True)
    stage.activation()
    stage.complete(fail_query(message="unknown query"))
    request = stage.query_answer()
    assert request.completed_type == QueryResultType.QUERY_RESULT_TYPE_FAILED
    assert request.error_message == "unknown query"


def test_legacy_query_response_gets_not_found_not_fatal() -> None:
    stage, _ = cached()
    stage.poll_query(first_task_only(), sticky=True)
    stage.activation()
    stage.complete(answer_query())
    stage.query_answer()
    stage.refuse(ProblemKind.NOT_FOUND)
    assert stage.is_quiet
    assert stage.stream.cached_runs == 1


def test_legacy_query_too_large_responds_with_failure() -> None:
    stage, _ = cached()
    stage.poll_query(first_task_only(), sticky=True)
    stage.activation()
    stage.complete(answer_query())
    stage.query_answer()
    stage.refuse(ProblemKind.GRPC_MESSAGE_TOO_LARGE, "message larger than max")
    request = stage.query_answer()
    assert request.completed_type == QueryResultType.QUERY_RESULT_TYPE_FAILED
    assert request.error_message == "GRPC Message too large"
    stage.report()
    assert stage.is_quiet


def test_new_queries() -> None:
    """They come after everything else of the task, and are answered with it."""
    stage, built = cached()
    stage.poll(built, built.only_task(2), queries=queries(q1="one", q2="two"))
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert not stage.has(CompleteTask)
    activation = stage.activation()
    assert activation.is_replaying
    assert [job.query_workflow.query_id for job in activation.jobs] == ["q1", "q2"]
    stage.complete(answer_query("q1", 1), fail_query("q2", "no"))
    request = stage.completion()
    assert request.query_results["q1"].answer.payloads[0].data == b"1"
    assert request.query_results["q2"].error_message == "no"
    assert len(request.commands) == 1
    assert not request.force_create_new_workflow_task


def test_new_query_fail() -> None:
    stage, built = cached()
    stage.poll(built, built.only_task(2), queries=queries(q1="one"))
    stage.activation()
    stage.complete(start_timer(2))
    stage.activation()
    stage.fail("query handler missing")
    assert stage.failure().failure.message == "query handler missing"
    stage.report()
    assert stage.eviction().reason == Reason.LANG_FAIL


def test_queries_with_nothing_else_are_asked_at_once() -> None:
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
    stage.poll(built, built.only_task(2), queries=queries(q1="one"))
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query("q1"))
    assert "q1" in stage.completion().query_results


def test_a_legacy_query_must_be_answered_alone() -> None:
    stage, _ = cached()
    stage.poll_query(first_task_only(), sticky=True)
    stage.activation()
    with pytest.raises(MalformedCompletion, match="only command"):
        stage.complete(answer_query(), start_timer(5))
    with pytest.raises(MalformedCompletion, match="does not answer"):
        stage.complete()
    stage.complete(answer_query())
    stage.query_answer()


def test_both_forms_of_queries_in_one_task_are_fatal() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(
        built,
        built.to_task(1),
        query=WorkflowQuery(query_type="old"),
        queries=queries(q1="new"),
    )
    assert not stage.has(FailTask)
    assert stage.eviction().reason == Reason.UNSPECIFIED


def test_an_expired_query_is_dropped() -> None:
    """It was asked of an earlier state than the run is in; the server asks again."""
    stage, built = cached()
    stage.poll(built, built.only_task(2))
    stage.activation()
    stage.complete(start_timer(2))
    stage.completion()
    stage.report()
    stage.actions.clear()
    stage.poll_query(first_task_only(), sticky=True)
    assert not stage.has(RespondQuery)
    assert stage.take(ReleasePermit).permit == "permit-3"
    assert stage.eviction().message == "Query expired"


def test_query_cache_miss_causes_page_fetch_dont_reply_wft_too_early() -> None:
    stage = Stage()
    stage.poll_query(first_task_only(), sticky=True)
    fetch = stage.take(FetchPage)
    assert fetch.token == b""
    assert stage.is_quiet
    stage.page(fetch.fetch, first_task_only(), 1, 5)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete(start_timer())
    assert not stage.has(CompleteTask)
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    stage.query_answer()


def test_query_replay_with_continue_as_new_doesnt_reply_empty_command() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.continued_as_new()
    stage = Stage()
    stage.poll_query(built, sticky=False)
    stage.activation()
    command = complete_workflow()
    command.continue_as_new_workflow_execution.workflow_type = "workflow-type"
    stage.complete(command)
    assert not stage.has(CompleteTask)
    assert kinds(stage.activation()) == ["query_workflow"]


def test_legacy_query_combined_with_timer_fire_repro() -> None:
    """A query that arrives while lang works waits, and does not join that work."""
    stage, built = cached()
    stage.poll(built, built.only_task(2))
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.poll_query(built, sticky=True)
    assert stage.is_quiet
    stage.complete(start_timer(2))
    assert not stage.completion().query_results
    stage.report()
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    assert stage.query_answer().task_token == b"task-3"


def test_queries_arent_lost_in_buffer_void() -> None:
    """Several queries wait for one busy run: each gets its turn."""
    stage, built = cached()
    stage.poll(built, built.only_task(2))
    stage.activation()
    for _ in range(2):
        stage.poll_query(built, sticky=True)
    stage.complete(complete_workflow())
    stage.completion()
    stage.report()
    for token in (b"task-3", b"task-4"):
        assert kinds(stage.activation()) == ["query_workflow"]
        stage.complete(answer_query())
        assert stage.query_answer().task_token == token
        stage.report()
    assert stage.eviction().reason == Reason.WORKFLOW_EXECUTION_ENDING


def moved_on() -> HistoryBuilder:
    """The timer has fired and the next task has started since the run was asked."""
    built = first_task_only()
    built.timer_fired(5)
    built.task_scheduled_and_started()
    return built


def ask_of_the_past(stage: Stage, built: HistoryBuilder, *, pages: bool) -> None:
    """A lone query of the state after the first task, to a worker that does not know the run."""
    if pages:
        stage.poll(built, HistorySlice([], 3, 0), query=WorkflowQuery(query_type="query"))
        fetch = stage.take(FetchPage)
        assert fetch.token == b""
        stage.page(fetch.fetch, built, 1, 7, b"more")
        fetch = stage.take(FetchPage)
        stage.page(fetch.fetch, built, 8, built.last_event_id)
    else:
        stage.poll(
            built, HistorySlice(built.events[:], 3, 0), query=WorkflowQuery(query_type="query")
        )


@pytest.mark.parametrize("pages", [True, False])
def test_a_lone_query_never_moves_its_run_on(pages: bool) -> None:
    """Newer events than the query asks about are left to the workflow task that comes for them."""
    stage, built = Stage(), moved_on()
    ask_of_the_past(stage, built, pages=pages)
    first = stage.activation()
    assert (kinds(first), first.is_replaying) == (["initialize_workflow"], True)
    stage.complete(start_timer())
    query = stage.activation()
    assert kinds(query) == ["query_workflow"]
    assert query.history_length == 5
    stage.complete(answer_query())
    stage.query_answer()
    stage.report()
    assert stage.is_quiet

    stage.poll(built, built.only_task(2))
    following = stage.activation()
    assert (kinds(following), following.is_replaying) == (["fire_timer"], False)
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1


@pytest.mark.parametrize("pages", [True, False])
def test_a_lone_query_of_a_run_that_has_ended_sees_all_of_it(pages: bool) -> None:
    """A signal that no task took any more is delivered, as by the compiled core."""
    stage, built = Stage(), first_task_only()
    built.signaled("late")
    built.task_scheduled()
    built.terminated()
    ask_of_the_past(stage, built, pages=pages)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete()
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    stage.query_answer()
    stage.report()
    assert not stage.has(CompleteTask)
    assert stage.eviction().message == "Workflow completed"


@pytest.mark.parametrize("pages", [True, False])
def test_a_task_that_comes_during_a_lone_query_is_done_after_it(pages: bool) -> None:
    stage, built = Stage(), moved_on()
    ask_of_the_past(stage, built, pages=pages)
    stage.activation()
    stage.poll(built, built.to_task(2))
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["query_workflow"]
    stage.complete(answer_query())
    stage.query_answer()
    stage.report()
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1


def test_a_lone_query_that_comes_after_a_newer_task_has_expired() -> None:
    """The run cannot go back; the server asks again."""
    stage, built = Stage(), moved_on()
    stage.poll(built, built.to_task(2))
    stage.activation()
    ask_of_the_past(stage, built, pages=False)
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1
    stage.report()
    assert not stage.has(RespondQuery)
    assert [p.permit for p in stage.all(ReleasePermit)] == ["permit-1", "permit-2"]


def test_a_lone_query_whose_history_ends_too_early_is_left_to_another_worker() -> None:
    stage, built = Stage(), moved_on()
    del built.events[2:]
    ask_of_the_past(stage, built, pages=False)
    assert stage.take(ReleasePermit).permit == "permit-1"
    assert not stage.has(FailTask)
    assert stage.is_quiet


def test_a_lone_query_of_the_first_task_goes_by_what_there_is() -> None:
    """No task was completed yet, so nothing bounds the history."""
    stage, built = Stage(), HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage.poll(built, HistorySlice(built.events[:], 0, 0), query=WorkflowQuery(query_type="query"))
    assert kinds(stage.activation()) == ["initialize_workflow"]


def test_build_id_set_properly_on_query_on_first_task() -> None:
    """The task was this worker's own work, so the query behind it names this worker's version."""
    stage = Stage(versioning=BuildId("1.0"))
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage.poll(built, queries=queries(q="question"))
    first = stage.activation()
    assert first.deployment_version_for_current_task.build_id == "1.0"
    stage.complete(start_timer())
    query = stage.activation()
    assert kinds(query) == ["query_workflow"]
    assert query.deployment_version_for_current_task.build_id == "1.0"
    stage.complete(answer_query("q"))
    stage.completion()
    stage.report()
    stage.poll_query(built, sticky=True)
    assert stage.activation().deployment_version_for_current_task.build_id == "1.0"


def test_a_query_behind_a_replay_names_the_version_of_history() -> None:
    built = first_task_only()
    completed = built.event(4).workflow_task_completed_event_attributes
    completed.worker_version.build_id = "0.9"
    stage = Stage(versioning=BuildId("1.0"))
    stage.poll_query(built, sticky=False)
    assert stage.activation().deployment_version_for_current_task.build_id == "0.9"


def test_commands_beside_the_answers_of_queries_are_carried_out() -> None:
    """The SDK sends none, but a lang that does is not passed over in silence."""
    stage, built = cached()
    stage.poll(built, built.only_task(2), queries=queries(q="question"))
    stage.activation()
    stage.complete()
    stage.activation()
    stage.complete(answer_query("q"), start_timer(2))
    request = stage.completion()
    assert set(request.query_results) == {"q"}
    assert len(request.commands) == 1
