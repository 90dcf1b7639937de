"""A history that comes in pages.

`HistoryPaginator` turns the events of a poll and the pages fetched after it into `HistoryUpdate`s.
It does no I/O: `next_update` answers with an update, or with the `PageRequest` that must be
fetched and handed to `feed` before it is asked again. Events of a sequence that is not whole yet
wait here.

The pages of a full fetch end where the server had written the history. Events that only the poll
carried (a speculative task is not written anywhere) are appended when the last page is in.

A lone query is no workflow task, so nothing may happen because of it: its history ends where the
last completed task left the run, even if more has been written since. What is newer belongs to the
workflow task that is to come; when the run has ended none will, and all of it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from temporalio.api.history.v1 import HistoryEvent

from perdure.core.history.events import COMMAND_EVENTS, FINAL_EVENTS, TASK_COMPLETED, TASK_STARTED
from perdure.core.history.sequences import HistoryUpdate, cut
from perdure.errors import WorldError

__all__ = [
    "BrokenPages",
    "EmptyHistoryPage",
    "EmptyTask",
    "HistoryPaginator",
    "LoopingPages",
    "PageRequest",
]


class EmptyTask(WorldError):
    """A workflow task came with neither history nor queries."""

    code: ClassVar[str] = "core.empty_task"


class BrokenPages(WorldError):
    """The pages of a history do not lead to its end."""

    code: ClassVar[str] = "core.broken_pages"


class EmptyHistoryPage(BrokenPages):
    """The pages of a history ended before the event that the task promised."""

    code: ClassVar[str] = "core.empty_page"

    def __init__(self, last_event_id: int, promised_event_id: int) -> None:
        super().__init__(
            f"empty history page: the history ends at event {last_event_id}, but the workflow task"
            f" started with event {promised_event_id}"
        )
        self.last_event_id = last_event_id
        self.promised_event_id = promised_event_id


class LoopingPages(BrokenPages):
    """Page after page brought nothing new, and then a token came that had been used before."""

    code: ClassVar[str] = "core.looping_pages"

    def __init__(self, last_event_id: int) -> None:
        super().__init__(
            f"looping history pages: after event {last_event_id} the pages of the history lead in"
            " a circle and bring no more events; this is a fault of the server or of what stands"
            " between it and us"
        )
        self.last_event_id = last_event_id


@dataclass(slots=True, frozen=True)
class PageRequest:
    """Fetch the page with this token; an empty token means the first page."""

    token: bytes


class HistoryPaginator:
    """Updates out of pages; see the module."""

    __slots__ = (
        "_appended",
        "_cut_in_vain",
        "_exhausted",
        "_fruitless",
        "_last_event_id",
        "_later",
        "_query_only",
        "_queue",
        "_token",
        "_update_after",
        "previous_started_id",
        "started_id",
    )

    def __init__(
        self,
        *,
        previous_started_id: int,
        started_id: int,
        events: Iterable[HistoryEvent] = (),
        next_page_token: bytes = b"",
        exhausted: bool = False,
        appended: Sequence[HistoryEvent] = (),
        last_event_id: int = 0,
        query_only: bool = False,
        update_after: int | None = None,
    ) -> None:
        """Use `from_poll` or `full_fetch`."""
        self._update_after = update_after
        self.previous_started_id = previous_started_id
        self.started_id = started_id
        self._query_only = query_only and previous_started_id > 0
        self._queue: list[HistoryEvent] = []
        self._token = next_page_token
        self._exhausted = exhausted
        self._later: list[HistoryEvent] = []
        self._cut_in_vain = 0
        self._fruitless: set[bytes] = set()
        self._appended = appended
        self._last_event_id = last_event_id
        self._append(events)
        if exhausted:
            self._append_end()

    @classmethod
    def from_poll(
        cls,
        events: Sequence[HistoryEvent],
        *,
        next_page_token: bytes,
        previous_started_id: int,
        started_id: int,
        has_queries: bool,
        query_only: bool = False,
        update_after: int | None = None,
    ) -> Self:
        """For a workflow task as it came; `update_after` as in `find_end`.

        A task without history is legal when it carries queries: the run is expected in the cache,
        and the only update is empty. A run that is not there needs `full_fetch`.
        """
        if not events:
            if not has_queries:
                raise EmptyTask("a workflow task came with neither history nor queries")
            return cls(
                previous_started_id=previous_started_id,
                started_id=started_id,
                exhausted=True,
                last_event_id=started_id,
            )
        return cls(
            previous_started_id=previous_started_id,
            started_id=started_id,
            events=events,
            next_page_token=next_page_token,
            exhausted=not next_page_token,
            query_only=query_only,
            update_after=update_after,
        )

    @classmethod
    def full_fetch(
        cls,
        *,
        previous_started_id: int,
        started_id: int,
        own_events: Sequence[HistoryEvent],
        query_only: bool = False,
        update_after: int | None = None,
    ) -> Self:
        """For a task whose run is not cached and whose poll carried only these newest events."""
        return cls(
            previous_started_id=previous_started_id,
            started_id=started_id,
            appended=own_events,
            query_only=query_only,
            update_after=update_after,
        )

    @property
    def is_finished(self) -> bool:
        """Everything was handed out."""
        return self._is_complete() and not self._queue

    def next_update(self) -> HistoryUpdate | PageRequest:
        """The next sequences, at least one and one to look ahead at when there are that many.

        Raises `EmptyHistoryPage` when the pages ended too early, and `LoopingPages` when they do
        not end.
        """
        complete = self._is_complete()
        if complete:
            promised = self.previous_started_id if self._query_only else self.started_id
            if self._last_event_id < promised:
                raise EmptyHistoryPage(self._last_event_id, promised)
            events, self._queue = self._queue, []
            self._exhausted = True
            ends = cut(events, complete=True, update_after=self._update_after)
            return self._update(events, complete=True, ends=ends)
        ends = cut(self._queue, complete=False) if self._may_have_grown() else {}
        if len(ends) < 2:
            self._cut_in_vain = len(self._queue)
            if self._token in self._fruitless:
                raise LoopingPages(self._last_event_id)
            return PageRequest(self._token)
        events = self._queue
        kept_back = max(ends)
        self._queue = events[kept_back:]
        self._cut_in_vain = 0
        return self._update(events, complete=False, limit=kept_back, ends=ends)

    def feed(self, events: Sequence[HistoryEvent], next_page_token: bytes) -> None:
        """The page that was requested. An empty page with a token is followed by another one."""
        known = self._last_event_id
        self._append(events)
        if self._last_event_id > known:
            self._fruitless.clear()
        else:
            self._fruitless.add(self._token)
        self._token = next_page_token
        if not next_page_token:
            self._exhausted = True
            self._append(self._appended)
            self._appended = ()
            self._append_end()

    def _append(self, events: Iterable[HistoryEvent]) -> None:
        last = self._last_event_id
        new = [event for event in events if event.event_id > last]
        if new:
            self._last_event_id = max(last, new[-1].event_id)
        self._queue.extend(self._of_completed_tasks(new) if self._query_only else new)

    def _of_completed_tasks(self, events: list[HistoryEvent]) -> list[HistoryEvent]:
        """What belongs to the last completed task, its commands included; the rest is kept."""
        if self._later:
            self._later += events
            return []
        for index, event in enumerate(events):
            kind = event.event_type
            if (
                event.event_id > self.previous_started_id
                and kind != TASK_COMPLETED
                and kind not in COMMAND_EVENTS
            ):
                self._later = events[index:]
                return events[:index]
        return events

    def _append_end(self) -> None:
        """All pages are in: what was kept counts if it is the end of the run."""
        if self._later and self._later[-1].event_type in FINAL_EVENTS:
            self._queue.extend(self._later)
        self._later = []

    def _is_complete(self) -> bool:
        """The last page is in, or the event that began this very task, after which nothing is.

        (A task that has nothing new, as in a replay, starts with the event of the one before.)
        """
        return self._exhausted or self.previous_started_id < self.started_id == self._last_event_id

    def _may_have_grown(self) -> bool:
        """False if nothing that came since the last cut can end a sequence: where one ends is seen
        at the start of a task and the two events after it."""
        if not self._cut_in_vain:
            return True
        new = self._queue[max(0, self._cut_in_vain - 2) :]
        return any(e.event_type == TASK_STARTED or e.event_type in FINAL_EVENTS for e in new)

    def _update(
        self,
        events: list[HistoryEvent],
        *,
        complete: bool,
        limit: int | None = None,
        ends: dict[int, int] | None = None,
    ) -> HistoryUpdate:
        return HistoryUpdate(
            events,
            previous_started_id=self.previous_started_id,
            started_id=self.started_id,
            complete=complete,
            limit=limit,
            ends=ends,
            update_after=self._update_after,
        )
