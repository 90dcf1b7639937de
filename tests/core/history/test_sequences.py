"""Cutting histories: the chunking rows of the catalogue, by their names."""

from __future__ import annotations

import pytest
from tests.core.support.canned_histories import (
    failed_task,
    local_activity_heartbeats,
    local_activity_markers,
    sequential_timers,
    single_activity,
    timed_out_task,
)
from tests.core.support.history_builder import HistoryBuilder, HistorySlice

from perdure.core.history.sequences import HistoryUpdate, NoSequence, TaskSequence, find_end


def update_of(part: HistorySlice, *, complete: bool = True) -> HistoryUpdate:
    return HistoryUpdate(
        part.events,
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
        complete=complete,
    )


def take_all(update: HistoryUpdate, from_id: int = 0) -> list[tuple[int, int]]:
    """First and last id of every sequence; asserts that each was shown before."""
    taken: list[tuple[int, int]] = []
    while True:
        shown = update.peek_next_sequence(from_id)
        sequence = update.take_next_sequence(from_id)
        if isinstance(sequence, NoSequence):
            assert sequence is NoSequence.REPLAY_OVER
            return taken
        assert shown == sequence.events
        from_id = sequence.events[-1].event_id
        taken.append((sequence.events[0].event_id, from_id))


def cuts(built: HistoryBuilder) -> list[tuple[int, int]]:
    return take_all(update_of(built.whole()))


def test_consumes_standard_wft_sequence() -> None:
    built = sequential_timers(2)
    update = update_of(built.whole())
    first = update.take_next_sequence(0)
    assert isinstance(first, TaskSequence)
    assert [event.event_id for event in first.events] == [1, 2, 3]
    assert not first.is_final
    second = update.take_next_sequence(3)
    assert isinstance(second, TaskSequence)
    assert [event.event_id for event in second.events] == [4, 5, 6, 7, 8]
    assert take_all(update, 8) == [(9, 13), (14, 15)]


def test_the_last_sequence_is_final() -> None:
    update = update_of(sequential_timers(1).whole())
    flags = []
    from_id = 0
    while isinstance(sequence := update.take_next_sequence(from_id), TaskSequence):
        flags.append(sequence.is_final)
        from_id = sequence.events[-1].event_id
    assert flags == [False, False, True]


def test_skips_wft_failed() -> None:
    assert cuts(failed_task()) == [(1, 3), (4, 11)]


def test_skips_wft_timeout() -> None:
    assert cuts(timed_out_task()) == [(1, 3), (4, 11)]


def test_skips_events_before_desired_wft() -> None:
    update = update_of(sequential_timers(2).whole())
    sequence = update.take_next_sequence(8)
    assert isinstance(sequence, TaskSequence)
    assert sequence.events[0].event_id == 9
    assert take_all(update, 13) == [(14, 15)]


def test_a_start_in_the_middle_of_a_sequence_cuts_from_there() -> None:
    # A chain of heartbeats is one sequence from the start, but a run that already applied its
    # second task goes on with the third.
    built = local_activity_heartbeats(2)
    assert cuts(built)[0] == (1, 9)
    update = update_of(built.whole())
    assert take_all(update, 6)[0] == (7, 9)


def test_history_ends_abruptly() -> None:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    built.task_completed()
    built.timer_started()
    built.terminated()
    assert cuts(built) == [(1, 3), (4, 6)]


def test_a_task_that_the_end_of_the_workflow_swallows() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.timer_started()
    built.signaled()
    built.task_scheduled_and_started()
    built.timed_out()
    assert cuts(built) == [(1, 3), (4, 9)]


def test_heartbeats_skipped() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.full_task()
    built.timer_started(1)
    built.full_task()
    built.full_task()
    built.full_task()
    built.full_task()
    built.timer_started(2)
    assert cuts(built) == [(1, 6), (7, 10), (11, 19), (20, 21)]


def test_heartbeat_marker_end() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.full_task()
    built.local_activity_marker(1, "done")
    built.completed()
    assert cuts(built) == [(1, 6), (7, 9)]


def test_heartbeats_then_signal() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.full_task()
    built.signaled()
    built.full_task()
    built.completed()
    assert cuts(built) == [(1, 6), (7, 10), (11, 12)]


def test_a_signal_during_a_heartbeat_does_not_end_the_chain() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.full_task()
    built.task_scheduled()
    built.signaled()
    built.task_started()
    built.task_completed()
    built.full_task()
    built.completed()
    assert cuts(built) == [(1, 13), (14, 15)]


def test_task_just_before_heartbeat_chain_is_taken() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.full_task()
    built.full_task()
    built.signaled()
    built.full_task()
    built.full_task()
    built.signaled()
    built.full_task()
    assert cuts(built) == [(1, 9), (10, 16), (17, 21)]


def test_la_marker_chunking() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.local_activity_marker(1)
    built.local_activity_marker(2)
    built.task_scheduled()
    built.signaled()
    built.task_started()
    built.task_completed()
    built.local_activity_marker(3)
    built.completed()
    assert cuts(built) == [(1, 3), (4, 9), (10, 12)]
    assert cuts(local_activity_markers(3)) == [(1, 3), (4, 8)]


def test_just_signal_is_complete_wft() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled()
    built.full_task()
    built.signaled()
    built.full_task()
    built.completed()
    assert cuts(built) == [(1, 3), (4, 7), (8, 11), (12, 13)]


def test_finding_end_index_with_started_as_last_event() -> None:
    built = single_activity()
    part = built.only_task(2)
    assert find_end(part.events, 0, complete=True) == len(part.events) - 1
    assert find_end(part.events, 0, complete=False) is None
    assert take_all(update_of(part), 3) == [(4, 9)]


def test_needs_fetch_if_ending_in_middle_of_wft_seq() -> None:
    built = sequential_timers(2)
    events = built.between(1, 10)
    update = HistoryUpdate(events, previous_started_id=0, started_id=18, complete=False, limit=8)
    assert isinstance(update.take_next_sequence(0), TaskSequence)
    assert update.can_take_next_sequence(3)
    assert isinstance(update.take_next_sequence(3), TaskSequence)
    assert not update.can_take_next_sequence(8)
    assert update.take_next_sequence(8) is NoSequence.NEED_FETCH
    assert update.peek_next_sequence(8) == []


def test_update_accepted_after_empty_wft() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled_and_started()
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=5)
    built.timer_started()
    built.update_completed(accepted)
    built.timer_fired(9)
    built.full_task()
    built.completed()
    assert cuts(built) == [(1, 3), (4, 6), (7, 13), (14, 15)]


@pytest.mark.parametrize("begins", [True, False])
def test_an_update_is_met_where_a_replay_will_meet_it(*, begins: bool) -> None:
    """A run that is not cached, or only in part, gets a chain of heartbeats and a new update."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    if not begins:
        built.timer_started()
        built.timer_fired(5)
        built.full_task()
    built.full_task()
    built.task_scheduled()
    sequencing = built.signaled()
    built.task_started()
    new = HistoryUpdate(
        list(built.events),
        previous_started_id=built.task_ends()[-2],
        started_id=built.last_event_id,
        update_after=sequencing,
    )
    live = take_all(new)
    built.task_completed()
    built.update_accepted(sequencing_event_id=sequencing)
    assert cuts(built)[: len(live)] == live
    assert live[-1] == (built.last_event_id - 5, built.last_event_id - 2)


def test_wft_fail_on_first_task_with_update() -> None:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    built.task_failed()
    built.task_scheduled_and_started()
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=2)
    built.update_completed(accepted)
    built.full_task()
    assert cuts(built)[0] == (1, 6)


def test_no_events_are_the_end_of_the_replay() -> None:
    update = HistoryUpdate([], previous_started_id=0, started_id=0)
    assert update.first_event_id == 0
    assert update.peek_next_sequence(0) == []
    assert update.take_next_sequence(0) is NoSequence.REPLAY_OVER


def test_the_next_completed_task_is_found() -> None:
    update = update_of(sequential_timers(1).whole())
    completed = update.peek_next_task_completed(0)
    assert completed is not None
    assert completed.event_id == 4
    assert isinstance(update.take_next_sequence(0), TaskSequence)
    completed = update.peek_next_task_completed(8)
    assert completed is not None
    assert completed.event_id == 9
    assert update.peek_next_task_completed(9) is None


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "continued_as_new"])
def test_an_ended_workflow_ends_the_sequence(end: str) -> None:
    built = sequential_timers(0, end=False)
    getattr(built, end)()
    assert cuts(built) == [(1, 3), (4, 5)]


def test_the_end_of_a_task_without_commands_is_no_sequence() -> None:
    built = sequential_timers(1, end=False)
    update = update_of(built.whole())
    assert take_all(update) == [(1, 3), (4, 8)]
    built = HistoryBuilder()
    built.started()
    built.full_task()
    update = update_of(built.whole())
    assert take_all(update) == [(1, 3)]
    # What the task says about itself can still be read.
    completed = update.peek_next_task_completed(3)
    assert completed is not None
    assert completed.event_id == 4
