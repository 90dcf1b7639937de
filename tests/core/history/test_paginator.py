"""Histories in pages: the pagination rows of the catalogue, by their names."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from tests.core.support.canned_histories import (
    failed_task,
    local_activity_heartbeats,
    local_activity_markers,
    sequential_timers,
    single_activity,
    timed_out_task,
)
from tests.core.support.history_builder import HistoryBuilder, HistorySlice

from perdure.core.history.events import TASK_COMPLETED
from perdure.core.history.paginator import (
    EmptyHistoryPage,
    EmptyTask,
    HistoryPaginator,
    PageRequest,
)
from perdure.core.history.sequences import HistoryUpdate, NoSequence


def from_poll(part: HistorySlice, size: int, *, queries: bool = False) -> HistoryPaginator:
    """A paginator whose poll carried the first `size` events of the slice."""
    more = size < len(part.events)
    return HistoryPaginator.from_poll(
        part.events[:size],
        next_page_token=b"%d" % size if more else b"",
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
        has_queries=queries,
    )


class Reader:
    """Takes sequences as the core does and fetches pages of `size` events when it must."""

    def __init__(self, part: HistorySlice, size: int, paginator: HistoryPaginator) -> None:
        self.part = part
        self.size = size
        self.paginator = paginator
        self.fetched = 0

    def update(self) -> HistoryUpdate:
        while isinstance(found := self.paginator.next_update(), PageRequest):
            self.fetched += 1
            begin = int(found.token or b"0")
            end = begin + self.size
            more = end < len(self.part.events)
            self.paginator.feed(self.part.events[begin:end], b"%d" % end if more else b"")
        return found

    def sequences(self, from_id: int = 0) -> list[tuple[int, int, bool, int]]:
        """First id, last id, whether final, and the last id of the sequence seen ahead."""
        taken: list[tuple[int, int, bool, int]] = []
        update = self.update()
        while True:
            found = update.take_next_sequence(from_id)
            if found is NoSequence.REPLAY_OVER:
                return taken
            if found is NoSequence.NEED_FETCH:
                update = self.update()
                continue
            from_id = found.events[-1].event_id
            ahead = update.peek_next_sequence(from_id)
            taken.append(
                (
                    found.events[0].event_id,
                    from_id,
                    found.is_final,
                    ahead[-1].event_id if ahead else 0,
                )
            )


def in_pages(part: HistorySlice, size: int) -> list[tuple[int, int, bool, int]]:
    return Reader(part, size, from_poll(part, size)).sequences()


def update_history() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled_and_started()
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=5)
    timer = built.timer_started()
    built.update_completed(accepted)
    built.timer_fired(timer)
    built.full_task()
    built.full_task()
    built.signaled()
    built.full_task()
    built.completed()
    return built


HISTORIES = {
    "timers": sequential_timers(5),
    "open": sequential_timers(5, end=False),
    "failed": failed_task(),
    "timed out": timed_out_task(),
    "markers": local_activity_markers(9),
    "heartbeats": local_activity_heartbeats(5),
    "updates": update_history(),
    "activity": single_activity(),
}


@pytest.mark.parametrize("size", range(1, 14))
@pytest.mark.parametrize("name", HISTORIES)
def test_paginator_works_with_wft_over_multiple_pages(name: str, size: int) -> None:
    part = HISTORIES[name].whole()
    assert in_pages(part, size) == in_pages(part, len(part.events))


@pytest.mark.parametrize("size", [1, 3, 8])
def test_paginator_extracts_updates(size: int) -> None:
    part = sequential_timers(20).whole()
    found = in_pages(part, size)
    assert len(found) == 22
    assert sum(last - first + 1 for first, last, _, _ in found) == len(part.events)
    assert [final for _, _, final, _ in found] == [False] * 21 + [True]


def test_paginator_streams() -> None:
    part = sequential_timers(5).whole()
    reader = Reader(part, 12, from_poll(part, 12))
    first = reader.update()
    assert reader.fetched == 0
    assert not first.complete
    assert len(reader.sequences()) >= 5
    assert reader.fetched == 2
    assert reader.paginator.is_finished


def test_extreme_pagination_doesnt_drop_wft_events_paginator() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for _ in range(3):
        built.signaled()
        built.full_task()
    built.task_scheduled()
    built.signaled()
    built.task_started()
    part = built.whole()
    assert in_pages(part, 1) == in_pages(part, 100)
    assert in_pages(part, 1)[-1][1] == part.started_event_id


def test_a_page_may_end_before_the_failure_of_a_task() -> None:
    # The page ends on a started task; only the next page tells that the task failed.
    part = failed_task().whole()
    assert part.events[7].event_id == 8
    assert in_pages(part, 8) == [(1, 3, False, 11), (4, 11, True, 0)]


def test_handles_cache_misses() -> None:
    built = sequential_timers(3, end=False)
    built.task_scheduled_and_started()
    part = built.only_task(5)
    paginator = HistoryPaginator.full_fetch(
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
        own_events=part.events,
    )
    first = paginator.next_update()
    assert first == PageRequest(b"")
    whole = built.whole()
    assert Reader(whole, 4, paginator).sequences() == in_pages(whole, 100)


def test_cache_miss_with_only_one_wft_available_orders_properly() -> None:
    # The server has not written the newest task yet: its events come only with the poll.
    built = sequential_timers(1, end=False)
    built.task_scheduled_and_started()
    whole = built.whole()
    paginator = HistoryPaginator.full_fetch(
        previous_started_id=8, started_id=11, own_events=built.between(8, 11)
    )
    assert isinstance(paginator.next_update(), PageRequest)
    paginator.feed(built.between(1, 9), b"")
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert update.complete
    assert [update.first_event_id, update.last_event_id] == [1, 11]
    ids: list[int] = []
    from_id = 0
    while not isinstance(sequence := update.take_next_sequence(from_id), NoSequence):
        ids.extend(event.event_id for event in sequence.events)
        from_id = ids[-1]
    assert ids == [event.event_id for event in whole.events]


def test_handles_blank_fetch_response() -> None:
    built = sequential_timers(1, end=False)
    built.task_scheduled_and_started()
    paginator = from_poll(built.whole(), 4)
    assert isinstance(paginator.next_update(), PageRequest)
    paginator.feed([], b"")
    with pytest.raises(EmptyHistoryPage, match=r"empty history page.*event 4.*event 11"):
        paginator.next_update()


def test_handles_empty_page_with_next_token() -> None:
    part = sequential_timers(1).whole()
    paginator = from_poll(part, 4)
    assert paginator.next_update() == PageRequest(b"4")
    paginator.feed([], b"again")
    assert paginator.next_update() == PageRequest(b"again")
    paginator.feed(part.events[4:], b"")
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert update.last_event_id == part.events[-1].event_id


def test_handles_fetching_page_with_complete_wft_and_page_token_to_empty_page() -> None:
    part = sequential_timers(1).whole()
    paginator = HistoryPaginator.from_poll(
        part.events,
        next_page_token=b"token",
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
        has_queries=False,
    )
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert not update.complete
    assert paginator.next_update() == PageRequest(b"token")
    paginator.feed([], b"")
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert update.complete
    assert update.last_event_id == part.events[-1].event_id
    assert paginator.is_finished


def test_the_event_that_began_the_task_is_known_to_be_the_last() -> None:
    part = single_activity().whole()
    paginator = HistoryPaginator.from_poll(
        part.events,
        next_page_token=b"token",
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
        has_queries=False,
    )
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert update.complete
    assert paginator.is_finished


def test_a_query_of_a_cached_run_has_no_history() -> None:
    paginator = HistoryPaginator.from_poll(
        [], next_page_token=b"", previous_started_id=9, started_id=0, has_queries=True
    )
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    assert update.first_event_id == 0
    assert update.complete


def test_a_task_with_neither_history_nor_queries() -> None:
    with pytest.raises(EmptyTask):
        HistoryPaginator.from_poll(
            [], next_page_token=b"token", previous_started_id=0, started_id=3, has_queries=False
        )


def test_events_already_held_are_not_taken_twice() -> None:
    part = sequential_timers(2).whole()
    paginator = from_poll(part, 10)
    reader = Reader(part, 10, paginator)
    reader.update()
    paginator.feed(part.events[5:], b"")
    update = paginator.next_update()
    assert isinstance(update, HistoryUpdate)
    ids = [event.event_id for event in update.peek_next_sequence(8)]
    assert ids == [9, 10, 11, 12, 13]


@st.composite
def histories(draw: st.DrawFn) -> HistoryBuilder:
    """Any mix of what a history may hold between its tasks."""
    built = HistoryBuilder()
    built.started()
    for _ in range(draw(st.integers(0, 2))):
        built.task_scheduled_and_started()
        built.task_failed()
    built.full_task()
    for step in draw(st.lists(st.sampled_from(["empty", "timer", "signal", "fail", "update"]))):
        if step == "timer":
            built.timer_started()
        elif step == "signal":
            built.signaled()
        elif step == "update":
            sequencing = built.task_scheduled()
            built.task_started()
            built.task_completed()
            built.update_accepted(sequencing_event_id=sequencing)
        built.task_scheduled_and_started()
        if step == "fail":
            built.task_timed_out()
            built.task_scheduled_and_started()
        built.task_completed()
    end = draw(st.sampled_from(["open", "started", "completed", "terminated"]))
    if end == "started":
        built.task_scheduled_and_started()
    elif end != "open":
        getattr(built, end)()
    return built


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(1, 9))
def test_pages_of_any_size_give_the_same_sequences(built: HistoryBuilder, size: int) -> None:
    part = built.whole()
    found = in_pages(part, size)
    assert found == in_pages(part, len(part.events))
    assert found[0][0] == 1
    last = part.events[-1]
    alone = last.event_type == TASK_COMPLETED and found[-1][1] == last.event_id - 1
    assert alone or found[-1][1] == last.event_id
    assert all(before[1] + 1 == after[0] for before, after in pairwise(found))
