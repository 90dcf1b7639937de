"""Workflow tasks on their way to a run: as much of their history is read as is needed to begin.

A task comes with the first page of its history, or with the newest events only, if the server
takes the run for cached; then the history is read from its start. Owns what is read at the moment,
and the numbers of all fetches of the stream.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.actions import Action, Counted, FetchPage
from perdure.core.history.paginator import BrokenPages, EmptyTask, HistoryPaginator
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.inputs import PageFetched, PageFetchFailed
from perdure.core.workflow_tasks.task import HeldTask, PreparedTask

__all__ = ["TaskReader"]


class _Reading:
    """A task of which not enough history is here yet to begin with it.

    `has_place` says that a place in the cache is kept for its run meanwhile.
    """

    __slots__ = ("has_place", "pages", "permit", "received_at", "work")

    def __init__(
        self,
        work: PreparedTask,
        permit: object,
        received_at: float,
        pages: HistoryPaginator,
        *,
        has_place: bool,
    ) -> None:
        self.work = work
        self.permit = permit
        self.received_at = received_at
        self.pages = pages
        self.has_place = has_place


class TaskReader:
    """See the module.

    `ready` gets each task that can begin, `unreadable` each one without its history: the task, its
    permit and what is wrong.
    """

    __slots__ = ("_emit", "_last_fetch", "_readings", "_ready", "_unreadable")

    def __init__(
        self,
        emit: Callable[[Action], None],
        ready: Callable[[HeldTask], None],
        unreadable: Callable[[PreparedTask, object, str], None],
    ) -> None:
        self._emit = emit
        self._ready = ready
        self._unreadable = unreadable
        self._readings: dict[int, _Reading] = {}
        self._last_fetch = 0

    @property
    def run_ids(self) -> list[str]:
        """The runs of the tasks that are read at the moment."""
        return [reading.work.run_id for reading in self._readings.values()]

    @property
    def kept_places(self) -> set[str]:
        """The runs for which a place in the cache is kept."""
        return {r.work.run_id for r in self._readings.values() if r.has_place}

    def read(self, work: PreparedTask, permit: object, received_at: float) -> None:
        """Have enough of the history of a new task to begin with it."""
        try:
            pages = HistoryPaginator.from_poll(
                work.events,
                next_page_token=work.next_page_token,
                previous_started_id=work.previous_started_event_id,
                started_id=work.started_event_id,
                has_queries=work.legacy_query is not None or bool(work.queries),
                query_only=work.is_query_only,
                update_after=work.update_after,
            )
        except EmptyTask as error:
            self._unreadable(work, permit, error.message)
            return
        self._read_on(_Reading(work, permit, received_at, pages, has_place=False))

    def read_from_start(self, task: HeldTask) -> None:
        """The server believes that the run is cached here, and it is not."""
        work = task.work
        self._emit(Counted("sticky_cache_miss"))
        pages = HistoryPaginator.full_fetch(
            previous_started_id=work.previous_started_event_id,
            started_id=work.started_event_id,
            own_events=work.events,
            query_only=work.is_query_only,
            update_after=work.update_after,
        )
        self._read_on(_Reading(work, task.permit, task.received_at, pages, has_place=True))

    def fetch(self, workflow_id: str, run_id: str, token: bytes) -> int:
        """Have a page fetched; the answer carries the number that is returned."""
        self._last_fetch += 1
        self._emit(FetchPage(self._last_fetch, workflow_id, run_id, token))
        return self._last_fetch

    def page_fetched(self, given: PageFetched) -> None:
        """The answer to a fetch of a task."""
        reading = self._readings.pop(given.fetch)
        reading.pages.feed(given.history.events, given.next_page_token)
        self._read_on(reading)

    def fetch_failed(self, given: PageFetchFailed) -> None:
        """The other answer."""
        reading = self._readings.pop(given.fetch)
        self._unreadable(reading.work, reading.permit, given.text)

    def _read_on(self, reading: _Reading) -> None:
        work = reading.work
        try:
            following = reading.pages.next_update()
        except BrokenPages as error:
            self._unreadable(work, reading.permit, error.message)
            return
        if isinstance(following, HistoryUpdate):
            self._ready(
                HeldTask(work, reading.permit, reading.received_at, reading.pages, following)
            )
        else:
            fetch = self.fetch(work.workflow_id, work.run_id, following.token)
            self._readings[fetch] = reading
