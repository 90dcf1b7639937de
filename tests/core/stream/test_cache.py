"""The cache of runs: fetching, buffering, evictions, shutdown."""

from __future__ import annotations

import pytest
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from tests.core.support.canned_histories import sequential_timers, single_timer
from tests.core.support.history_builder import HistoryBuilder, HistorySlice
from tests.core.support.stage import (
    RUN,
    Stage,
    complete_workflow,
    counted,
    kinds,
    start_timer,
)

from perdure.core.actions import (
    CompleteTask,
    Counted,
    FetchPage,
    Finished,
    LangActivation,
    ReleasePermit,
    RunRemoved,
)
from perdure.core.inputs import (
    PageFetched,
    PageFetchFailed,
    PollersStopped,
    ProblemKind,
    ShutdownRequested,
)
from perdure.core.workflow_tasks.completion import MalformedCompletion

Reason = RemoveFromCache.EvictionReason


def timer_of(run_id: str) -> HistoryBuilder:
    built = HistoryBuilder(run_id=run_id)
    built.started()
    built.full_task()
    built.timer_fired(built.timer_started())
    built.task_scheduled_and_started()
    return built


def begin(stage: Stage, built: HistoryBuilder) -> None:
    """The first task of the run, up to the server's receipt of its timer."""
    stage.poll(built, built.to_task(1))
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete(start_timer(), run_id=built.run_id)
    stage.completion()
    stage.report(run_id=built.run_id)


# Fetching


def test_cache_miss_will_fetch_history() -> None:
    """Rows: IT/workflow_tests/stickyness."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.only_task(2))
    assert counted(stage.all(Counted)) == ["sticky_cache_miss"]
    fetch = stage.take(FetchPage)
    assert (fetch.workflow_id, fetch.run_id, fetch.token) == ("workflow-id", RUN, b"")
    stage.page(fetch.fetch, built, 1, built.last_event_id)
    stage.activation()
    stage.complete(start_timer())
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert stage.completion().task_token == b"task-1"


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 8, 100])
def test_fetching_to_continue_replay_works(page_size: int) -> None:
    """Pages of any size give the same activations."""
    stage, built = Stage(), sequential_timers(5, end=False)
    built.timer_fired(built.timer_started(6), 6)
    built.task_scheduled_and_started()
    whole = built.whole()
    total = built.last_event_id
    whole.events[:] = whole.events[:page_size]
    stage.poll(built, whole, next_page_token=b"2" if page_size < total else b"")
    position, seen, seq = page_size, [], 0
    while not stage.has(CompleteTask):
        while stage.has(FetchPage):
            fetch = stage.take(FetchPage)
            until = min(position + page_size, total)
            token = b"more" if until < total else b""
            stage.page(fetch.fetch, built, position + 1, until, token)
            position = until
        activation = stage.activation()
        seen.append((kinds(activation)[0], activation.is_replaying))
        seq += 1
        stage.complete(start_timer(seq))
        while stage.has(FetchPage):
            fetch = stage.take(FetchPage)
            until = min(position + page_size, total)
            token = b"more" if until < total else b""
            stage.page(fetch.fetch, built, position + 1, until, token)
            position = until
    assert seen == [
        ("initialize_workflow", True),
        *[("fire_timer", True)] * 5,
        ("fire_timer", False),
    ]


def test_fetching_error_evicts_wf() -> None:
    stage, built = Stage(), sequential_timers(4, end=False)
    whole = built.whole()
    whole.events[:] = whole.events[:10]
    stage.poll(built, whole, next_page_token=b"more")
    stage.activation()
    stage.complete(start_timer(1))
    fetch = stage.take(FetchPage)
    stage.feed(PageFetchFailed(fetch.fetch, "unavailable"))
    stage.failure()
    stage.report()
    assert stage.eviction().reason == Reason.PAGINATION_OR_HISTORY_FETCH
    stage.take(RunRemoved)


def test_a_page_that_ends_too_early_is_like_one_that_failed() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.only_task(2))
    fetch = stage.take(FetchPage)
    short = HistorySlice(built.events[:3], 0, 3)
    stage.feed(PageFetched(fetch.fetch, short.history(), b""))
    stage.actions.clear()
    assert stage.is_quiet


def test_pagination_works_with_tasks_from_completion() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    part = built.only_task(2)
    part.events[:] = part.events[:2]
    stage.report(next_task=built.poll(part, token=b"next", next_page_token=b"more"))
    fetch = stage.take(FetchPage)
    stage.page(fetch.fetch, built, part.events[-1].event_id + 1, built.last_event_id)
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert stage.completion().task_token == b"next"
    stage.report()
    assert stage.take(ReleasePermit).permit == "permit-1"


# Buffering


def test_lang_slower_than_wft_timeouts() -> None:
    """The task timed out while lang worked: the next one waits, and is not lost."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    built.task_timed_out()
    built.task_scheduled_and_started()
    stage = Stage()
    first = HistorySlice(built.events[:3], 0, 3)
    stage.poll(built, first)
    stage.activation()
    stage.poll(built, built.whole())
    assert stage.is_quiet
    stage.complete(complete_workflow())
    stage.completion()
    stage.refuse(ProblemKind.NOT_FOUND)
    assert stage.eviction().reason == Reason.TASK_NOT_FOUND
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete(complete_workflow())
    assert stage.completion().task_token == b"task-2"


def test_a_newer_task_replaces_the_one_that_waits() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.poll(built, built.to_task(1))
    stage.poll(built, built.to_task(1))
    assert [a.permit for a in stage.all(ReleasePermit)] == ["permit-2"]


def test_lots_of_workflows() -> None:
    """Many more runs than the cache has room for; each is finished."""
    stage = Stage(max_cached_workflows=5)
    runs = {f"run-{number}": timer_of(f"run-{number}") for number in range(40)}
    for built in runs.values():
        stage.poll(built, built.whole(), token=built.run_id.encode())
    finished = set()
    while stage.has(LangActivation):
        assert stage.stream.cached_runs <= 5
        activation = stage.activation()
        match kinds(activation):
            case ["initialize_workflow"]:
                stage.complete(start_timer(), run_id=activation.run_id)
            case ["fire_timer"]:
                stage.complete(complete_workflow(), run_id=activation.run_id)
                finished.add(stage.completion().task_token.decode())
                stage.report(run_id=activation.run_id)
            case _:
                stage.complete(run_id=activation.run_id)
    assert finished == set(runs)
    assert stage.stream.cached_runs == 0
    assert len(stage.all(ReleasePermit)) == 40


def test_poll_faster_than_complete_wont_overflow_cache() -> None:
    stage = Stage(max_cached_workflows=3)
    runs = [timer_of(f"run-{number}") for number in range(4)]
    for built in runs[:3]:
        begin(stage, built)
    stage.actions.clear()
    stage.poll(runs[3], runs[3].to_task(1))
    activation = stage.activation()
    assert activation.run_id == "run-0", "the one that was least recently used leaves"
    job = activation.jobs[0].remove_from_cache
    assert (job.message, job.reason) == ("Workflow cache full", Reason.CACHE_FULL)
    assert stage.stream.cached_runs == 3
    stage.complete(run_id="run-0")
    assert stage.activation().run_id == "run-3"
    assert stage.stream.cached_runs == 3


def test_only_as_many_leave_as_others_wait() -> None:
    stage = Stage(max_cached_workflows=3)
    runs = [timer_of(f"run-{number}") for number in range(5)]
    for built in runs[:3]:
        begin(stage, built)
    stage.actions.clear()
    stage.poll(runs[3], runs[3].to_task(1))
    stage.poll(runs[3], runs[3].to_task(1))
    assert len(stage.all(LangActivation)) == 1
    stage.poll(runs[4], runs[4].to_task(1))
    assert len(stage.all(LangActivation)) == 1


def test_a_place_is_kept_while_the_history_for_it_is_fetched() -> None:
    """Otherwise whoever fetches faster takes it, and the one whose turn it was waits again."""
    stage = Stage(max_cached_workflows=1)
    first, second = timer_of("first"), timer_of("second")
    begin(stage, first)
    stage.actions.clear()
    stage.poll(second, second.only_task(2))
    stage.eviction()
    fetch = stage.take(FetchPage)
    stage.poll(first, first.whole())
    assert stage.is_quiet, "the place is promised"
    stage.page(fetch.fetch, second, 1, second.last_event_id)
    assert stage.activation().run_id == "second"


def test_a_place_whose_history_cannot_be_fetched_goes_to_the_next() -> None:
    stage = Stage(max_cached_workflows=1)
    first, second = timer_of("first"), timer_of("second")
    stage.poll(first, first.only_task(2))
    fetch = stage.take(FetchPage)
    stage.poll(second, second.to_task(1))
    assert stage.is_quiet
    stage.feed(PageFetchFailed(fetch.fetch, "unavailable"))
    stage.failure()
    assert stage.activation().run_id == "second"


def test_several_tasks_of_a_run_need_one_place() -> None:
    stage, built = Stage(max_cached_workflows=1), timer_of("run")
    stage.poll_query(built, sticky=True)
    stage.poll(built, built.only_task(2))
    for fetch in stage.all(FetchPage):
        stage.page(fetch.fetch, built, 1, built.last_event_id)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    assert stage.stream.cached_runs == 1


def test_a_run_that_left_waits_behind_the_others_with_its_own_tasks() -> None:
    stage = Stage(max_cached_workflows=1)
    first, second = timer_of("first"), timer_of("second")
    begin(stage, first)
    stage.actions.clear()
    stage.poll(second, second.to_task(1))
    stage.poll(first, first.whole())
    assert stage.eviction().reason == Reason.CACHE_FULL
    assert stage.activation().run_id == "second"
    stage.complete(start_timer(), run_id="second")
    stage.report(run_id="second")
    assert stage.eviction().reason == Reason.CACHE_FULL
    assert stage.activation().run_id == "first"


def test_new_server_work_while_eviction_outstanding_doesnt_overwrite_activation() -> None:
    stage, built = Stage(), single_timer()
    begin(stage, built)
    stage.evict()
    assert kinds(stage.activation()) == ["remove_from_cache"]
    stage.poll(built, built.only_task(2))
    assert stage.is_quiet
    stage.complete()
    stage.take(RunRemoved)
    fetch = stage.take(FetchPage)
    stage.page(fetch.fetch, built, 1, built.last_event_id)
    assert kinds(stage.activation()) == ["initialize_workflow"]


# The eviction dialogue


def test_eviction_waits_until_replay_finished() -> None:
    stage, built = Stage(), sequential_timers(2, end=False)
    built.timer_fired(built.timer_started(3), 3)
    built.task_scheduled_and_started()
    stage.poll(built)
    stage.activation()
    stage.evict()
    for seq in (1, 2, 3):
        assert stage.is_quiet
        stage.complete(start_timer(seq))
        assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    stage.completion()
    stage.report()
    assert stage.eviction().message == "wanted by the test"
    assert stage.is_quiet


def test_an_eviction_carries_nothing_else() -> None:
    stage, built = Stage(), single_timer()
    begin(stage, built)
    stage.evict()
    activation = stage.activation()
    assert kinds(activation) == ["remove_from_cache"]
    assert activation.history_length == 3
    assert not activation.HasField("timestamp")
    assert "sticky_cache_total_forced_eviction" in counted(stage.all(Counted))
    with pytest.raises(MalformedCompletion, match="no commands"):
        stage.complete(start_timer())
    stage.complete()
    assert stage.stream.cached_runs == 0


def test_a_second_request_only_replaces_the_reason() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.evict()
    stage.fail()
    stage.failure()
    stage.report()
    assert stage.eviction().reason == Reason.LANG_FAIL
    assert stage.is_quiet


def test_the_end_of_a_workflow_is_no_forced_eviction() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(complete_workflow())
    stage.completion()
    stage.report()
    assert stage.eviction().reason == Reason.WORKFLOW_EXECUTION_ENDING
    assert "sticky_cache_total_forced_eviction" not in counted(stage.all(Counted))


# Speculative tasks


def test_a_speculative_task_is_rolled_back() -> None:
    """The server forgets a task that changed nothing; the next one has the same event ids."""
    stage, built = Stage(), single_timer()
    begin(stage, built)
    built.events[5:] = []
    speculative = HistoryBuilder()
    speculative.events = list(built.events)
    speculative.task_scheduled_and_started()
    stage.poll(built, HistorySlice(speculative.events[3:], 3, 7))
    stage.completion()
    stage.report(reset_to=3)
    built.timer_fired(5)
    built.task_scheduled_and_started()
    stage.poll(built, HistorySlice(built.events[5:], 3, 8))
    assert kinds(stage.activation()) == ["fire_timer"]


# Replay


def test_a_replay_that_ends_live_is_answered_and_evicted() -> None:
    stage, built = Stage(max_cached_workflows=1, evict_after_replay=True), single_timer()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer())
    stage.activation()
    stage.complete(complete_workflow())
    stage.completion()
    stage.report()
    eviction = stage.eviction()
    assert eviction.reason == Reason.LANG_REQUESTED
    stage.take(RunRemoved)
    assert stage.is_quiet


def test_a_replay_of_an_ended_workflow_is_evicted_exactly_once() -> None:
    stage, built = Stage(max_cached_workflows=1, evict_after_replay=True), sequential_timers(2)
    stage.poll(built)
    for seq in (1, 2):
        stage.activation()
        stage.complete(start_timer(seq))
    last = stage.activation()
    assert last.is_replaying is False or last.history_length < built.last_event_id
    stage.complete(complete_workflow())
    assert not stage.has(CompleteTask)
    assert stage.eviction().reason == Reason.LANG_REQUESTED
    stage.take(RunRemoved)
    assert stage.is_quiet


def test_ends_empty_wft_complete() -> None:
    """A history whose last task has no commands ends its replay cleanly.

    Rows: replay_ends_with_empty_wft.
    """
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled()
    built.full_task()
    stage = Stage(evict_after_replay=True)
    stage.poll(built)
    stage.activation()
    stage.complete()
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete()
    assert stage.has(LangActivation) or stage.has(CompleteTask)
    if stage.has(CompleteTask):
        stage.completion()
        stage.report()
    assert stage.eviction().reason == Reason.LANG_REQUESTED


# Shutdown


def test_a_shutdown_without_work_ends_at_once() -> None:
    stage = Stage()
    stage.feed(ShutdownRequested())
    assert not stage.has(Finished)
    stage.feed(PollersStopped())
    stage.take(Finished)
    assert stage.stream.finished


def test_shutdown_worker_can_complete_pending_activation() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.stop()
    assert stage.stream.pending_runs() == [RUN]
    stage.complete(start_timer())
    stage.completion()
    assert not stage.has(Finished)
    stage.report()
    stage.take(Finished)


def test_buffered_work_drained_on_shutdown() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.poll(built, built.only_task(2))
    stage.stop()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(start_timer(2))
    stage.completion()
    assert not stage.has(Finished)
    stage.report()
    stage.take(Finished)


@pytest.mark.parametrize("ignored", [False, True])
def test_an_eviction_under_way_holds_a_shutdown_up_unless_ignored(*, ignored: bool) -> None:
    stage, built = Stage(ignore_evictions_on_shutdown=ignored), single_timer()
    begin(stage, built)
    stage.evict()
    stage.stop()
    assert stage.has(Finished) is ignored
    stage.eviction()
    stage.take(Finished)


def test_complete_eviction_after_shutdown_doesnt_panic() -> None:
    stage, built = Stage(ignore_evictions_on_shutdown=True), single_timer()
    begin(stage, built)
    stage.evict()
    stage.stop()
    stage.eviction()
    assert stage.stream.finished


def test_complete_with_task_not_found_during_shutdown() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.stop()
    stage.complete(start_timer())
    stage.completion()
    stage.refuse(ProblemKind.NOT_FOUND)
    assert not stage.has(Finished)
    assert stage.eviction().reason == Reason.TASK_NOT_FOUND
    stage.take(Finished)


def test_a_fetch_under_way_holds_a_shutdown_up() -> None:
    stage, built = Stage(), single_timer()
    stage.poll(built, built.only_task(2))
    stage.stop()
    assert stage.stream.pending_runs() == [RUN]
    stage.feed(PageFetchFailed(stage.take(FetchPage).fetch, "gone"))
    stage.take(Finished)
