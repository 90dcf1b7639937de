"""All runs of one worker: the single place where workflow state changes.

`handle` takes one input and returns the actions that follow from it (`inputs`, `actions`). The
stream owns the cache of runs (least recently used first), the fetches of history under way, the
tasks that wait for room in the cache, and the decision that a shutdown is complete.

A run leaves the cache only by a dialogue: lang is told and answers. So a full cache does not drop
a run when a task for another one arrives; the task waits, and as many runs are asked to leave as
tasks wait. Places are given in the order of waiting: a run that has been given one keeps it while
its history is fetched, and a run that has left, with tasks of its own, waits behind the others.
So runs that share too few places take turns, and none takes the place of another again and again.

Runs do not share fate: an error in one of them, foreseen or not, ends the work on that one only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.api.workflowservice.v1.request_response_pb2 import PollWorkflowTaskQueueResponse
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import RemoveFromCache

from perdure.core.actions import (
    Action,
    Counted,
    FailTask,
    FetchPage,
    Finished,
    ForgetLocalActivities,
    ReleasePermit,
    RunRemoved,
)
from perdure.core.history.paginator import BrokenPages, EmptyTask, HistoryPaginator
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.inputs import (
    Completed,
    EvictionRequested,
    HeartbeatDue,
    Input,
    LocalCancelsDelivered,
    LocalResolved,
    NewTask,
    PageFetched,
    PageFetchFailed,
    PollersStopped,
    Reported,
    ShutdownRequested,
)
from perdure.core.run.managed_run import ManagedRun
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.run_info import RunInfo
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_tasks.completion import MalformedCompletion, validate
from perdure.core.workflow_tasks.reports import Reports
from perdure.core.workflow_tasks.task import (
    HeldTask,
    MalformedTask,
    PreparedTask,
    TaskBuffer,
    prepare,
)
from perdure.core.workflow_tasks.verdicts import CACHE_FULL, Eviction, Verdict, history_missing

__all__ = ["WorkflowStream"]


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


class _Unread(NamedTuple):
    """A task whose history cannot be had."""

    work: PreparedTask
    permit: object
    verdict: Verdict


class WorkflowStream:
    """See the module."""

    __slots__ = (
        "_capacity",
        "_fetches",
        "_handlers",
        "_last_fetch",
        "_out",
        "_pollers_stopped",
        "_runs",
        "_shutting_down",
        "_unread",
        "_without_room",
        "finished",
        "reports",
        "settings",
    )

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.reports = Reports(settings)
        self.finished = False
        self._capacity = max(1, settings.max_cached_workflows)
        self._runs: OrderedDict[str, ManagedRun] = OrderedDict()
        self._without_room: OrderedDict[str, TaskBuffer] = OrderedDict()
        self._unread: dict[str, list[_Unread]] = {}
        self._fetches: dict[int, _Reading | ManagedRun] = {}
        self._last_fetch = 0
        self._shutting_down = False
        self._pollers_stopped = False
        self._out: list[Action] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            NewTask: self._on_new_task,
            PageFetched: self._on_page_fetched,
            PageFetchFailed: self._on_page_fetch_failed,
            Completed: self._on_completed,
            Reported: self._on_reported,
            LocalResolved: self._on_local_resolved,
            LocalCancelsDelivered: self._on_local_cancels_delivered,
            HeartbeatDue: self._on_heartbeat_due,
            EvictionRequested: self._on_eviction_requested,
            ShutdownRequested: self._on_shutdown_requested,
            PollersStopped: self._on_pollers_stopped,
        }

    def handle(self, given: Input) -> list[Action]:
        """Take in what happened; do what is returned, in order.

        Raises `MalformedCompletion` and `MalformedTask`; the stream is as before then. Once the
        stream has finished, nothing has any effect.
        """
        if self.finished:
            return []
        self._handlers[type(given)](given)
        self._give_places()
        self._make_room()
        self._finish_if_done()
        out, self._out = self._out, []
        return out

    @property
    def cached_runs(self) -> int:
        """How many runs are in the cache."""
        return len(self._runs)

    def pending_runs(self) -> list[str]:
        """What a shutdown waits for."""
        ignore = self.settings.ignore_evictions_on_shutdown
        busy = [
            run.run_id
            for run in self._runs.values()
            if run.has_pending_work(ignore_evictions=ignore)
        ]
        reading = [r.work.run_id for r in self._fetches.values() if isinstance(r, _Reading)]
        return list(dict.fromkeys([*busy, *self._without_room, *reading]))

    # --- What runs ask for (`Desk`) -------------------------------------------------------------

    def emit(self, action: Action) -> None:
        self._out.append(action)

    def fetch_page(self, run_id: str, token: bytes) -> None:
        run = self._runs[run_id]
        self._fetch(run, run.workflow_id, run_id, token)

    # --- Tasks ----------------------------------------------------------------------------------

    def _on_new_task(self, given: NewTask) -> None:
        self._read(prepare(given.task), given.permit, given.received_at)

    def _read(self, work: PreparedTask, permit: object, received_at: float) -> None:
        """Have enough of the task's history to begin with it."""
        try:
            pages = HistoryPaginator.from_poll(
                work.events,
                next_page_token=work.next_page_token,
                previous_started_id=work.previous_started_event_id,
                started_id=work.started_event_id,
                has_queries=work.legacy_query is not None or bool(work.queries),
                query_only=work.is_query_only,
            )
        except EmptyTask as error:
            self._cannot_read(work, permit, error.message)
            return
        self._read_on(_Reading(work, permit, received_at, pages, has_place=False))

    def _read_on(self, reading: _Reading) -> None:
        work = reading.work
        try:
            following = reading.pages.next_update()
        except BrokenPages as error:
            self._cannot_read(work, reading.permit, error.message)
            return
        if isinstance(following, HistoryUpdate):
            self._offer(
                HeldTask(work, reading.permit, reading.received_at, reading.pages, following)
            )
        else:
            self._fetch(reading, work.workflow_id, work.run_id, following.token)

    def _offer(self, task: HeldTask) -> None:
        """Give the task to its run, which may have to be made first."""
        work = task.work
        run = self._runs.get(work.run_id)
        if run is None:
            if not self._has_place(work.run_id):
                self._keep_without_room(task)
                return
            if task.history.first_event_id != 1:
                self._read_from_start(task)
                return
            run = self._new_run(work)
        elif task.history.first_event_id != 1:
            self.emit(Counted("sticky_cache_hit", work.workflow_type))
        self._runs.move_to_end(work.run_id)
        run.accept(task)
        self._go_on(run)

    def _read_from_start(self, task: HeldTask) -> None:
        """The server believes that the run is cached here, and it is not."""
        work = task.work
        self.emit(Counted("sticky_cache_miss"))
        pages = HistoryPaginator.full_fetch(
            previous_started_id=work.previous_started_event_id,
            started_id=work.started_event_id,
            own_events=work.events,
            query_only=work.is_query_only,
        )
        self._read_on(_Reading(work, task.permit, task.received_at, pages, has_place=True))

    def _keep_without_room(self, task: HeldTask) -> None:
        buffer = self._without_room.setdefault(task.work.run_id, TaskBuffer())
        for obsolete in buffer.put(task):
            self.emit(ReleasePermit(obsolete.permit))

    def _new_run(self, work: PreparedTask) -> ManagedRun:
        settings = self.settings
        machines = WorkflowMachines(
            RunInfo(
                namespace=settings.namespace,
                workflow_id=work.workflow_id,
                run_id=work.run_id,
                workflow_type=work.workflow_type,
                task_queue=settings.task_queue,
                versioning=settings.versioning,
                has_sdk_metadata=settings.has_sdk_metadata,
                sdk_name=settings.sdk_name,
                sdk_version=settings.sdk_version,
            )
        )
        run = ManagedRun(
            self,
            machines,
            workflow_id=work.workflow_id,
            run_id=work.run_id,
            workflow_type=work.workflow_type,
        )
        self._runs[work.run_id] = run
        return run

    # --- Pages ----------------------------------------------------------------------------------

    def _fetch(
        self, reader: _Reading | ManagedRun, workflow_id: str, run_id: str, token: bytes
    ) -> None:
        self._last_fetch += 1
        self._fetches[self._last_fetch] = reader
        self.emit(FetchPage(self._last_fetch, workflow_id, run_id, token))

    def _on_page_fetched(self, given: PageFetched) -> None:
        reader = self._fetches.pop(given.fetch)
        events: Sequence[HistoryEvent] = given.history.events
        if isinstance(reader, ManagedRun):
            self._do(reader, reader.page_fetched, events, given.next_page_token)
            self._go_on(reader)
        else:
            reader.pages.feed(events, given.next_page_token)
            self._read_on(reader)

    def _on_page_fetch_failed(self, given: PageFetchFailed) -> None:
        reader = self._fetches.pop(given.fetch)
        if isinstance(reader, ManagedRun):
            reader.fetch_failed(given.text)
            self._go_on(reader)
        else:
            self._cannot_read(reader.work, reader.permit, given.text)

    def _cannot_read(self, work: PreparedTask, permit: object, text: str) -> None:
        """Without its history a task can only fail; a cached run of it is stale, and leaves.

        Then the task fails when the run has left, so that the server does not give it back before.
        """
        unread = _Unread(work, permit, history_missing(text))
        run = self._runs.get(work.run_id)
        if run is None:
            self._fail_unread(unread)
        else:
            self._unread.setdefault(work.run_id, []).append(unread)
            run.request_eviction(unread.verdict.eviction)
            self._go_on(run)

    def _fail_unread(self, unread: _Unread) -> None:
        work, verdict = unread.work, unread.verdict
        if not work.is_query_only and work.attempt <= 1:
            request = self.reports.fail(work.token, verdict.cause, verdict.failure)
            self.emit(FailTask(work.run_id, request, unstored=True))
        self.emit(ReleasePermit(unread.permit))

    # --- Answers --------------------------------------------------------------------------------

    def _on_completed(self, given: Completed) -> None:
        done = validate(given.completion, given.sites)
        run = self._runs.get(done.run_id)
        if run is not None:
            self._do(run, run.completed, done)
            self._runs.move_to_end(done.run_id)
            self._go_on(run)

    def _on_reported(self, given: Reported) -> None:
        run = self._runs.get(given.run_id)
        if run is None:
            return
        permit = run.reported(given)
        response = given.response
        if response is not None and response.workflow_task.task_token:
            self._read_following(run, response.workflow_task, permit, given.received_at)
        self._go_on(run)

    def _read_following(
        self,
        run: ManagedRun,
        task: PollWorkflowTaskQueueResponse,
        permit: object,
        received_at: float,
    ) -> None:
        """The task that came with the server's reply; it takes over the slot of the last one."""
        try:
            work = prepare(task)
        except MalformedTask as error:
            run.request_eviction(Eviction(error.message, RemoveFromCache.EvictionReason.FATAL))
            self.emit(ReleasePermit(permit))
            return
        self._read(work, permit, received_at)

    # --- The rest of the inputs -----------------------------------------------------------------

    def _on_local_resolved(self, given: LocalResolved) -> None:
        run = self._runs.get(given.run_id)
        if run is not None:
            run.locals.resolved(given.seq, given.result)
            self._go_on(run)

    def _on_local_cancels_delivered(self, given: LocalCancelsDelivered) -> None:
        run = self._runs.get(given.run_id)
        if run is not None:
            run.locals.cancels_delivered()
            self._go_on(run)

    def _on_heartbeat_due(self, given: HeartbeatDue) -> None:
        run = self._runs.get(given.run_id)
        if run is not None:
            run.heartbeat_due(given.task_token)
            self._go_on(run)

    def _on_eviction_requested(self, given: EvictionRequested) -> None:
        run = self._runs.get(given.run_id)
        if run is not None:
            run.request_eviction(Eviction(given.message, given.reason))
            self._go_on(run)

    def _on_shutdown_requested(self, _given: ShutdownRequested) -> None:
        self._shutting_down = True

    def _on_pollers_stopped(self, _given: PollersStopped) -> None:
        self._pollers_stopped = True

    # --- The cache ------------------------------------------------------------------------------

    def _do(self, run: ManagedRun, step: Callable[..., object], *given: object) -> object:
        """One step of a run. Raises `MalformedCompletion`, which is lang's fault, not the run's."""
        try:
            return step(*given)
        except MalformedCompletion:
            raise
        except Exception as error:
            run.crashed(error)
            run.advance()
            return None

    def _go_on(self, run: ManagedRun) -> None:
        self._do(run, run.advance)
        if run.removed and self._runs.get(run.run_id) is run:
            self._remove(run)

    def _remove(self, run: ManagedRun) -> None:
        del self._runs[run.run_id]
        if run.locals.had_any:
            self.emit(ForgetLocalActivities(run.run_id))
        self.emit(RunRemoved(run.run_id))
        for unread in self._unread.pop(run.run_id, ()):
            self._fail_unread(unread)
        self._give_places()
        for task in run.buffer.drain():
            self._offer(task)

    def _has_place(self, run_id: str) -> bool:
        """Whether the run, which is not in the cache, may come in."""
        kept = {
            reading.work.run_id
            for reading in self._fetches.values()
            if isinstance(reading, _Reading) and reading.has_place
        } - self._runs.keys()
        return run_id in kept or len(self._runs) + len(kept) < self._capacity

    def _give_places(self) -> None:
        """Let in who waits longest, as long as there is room."""
        while self._without_room:
            run_id, buffer = next(iter(self._without_room.items()))
            if not self._has_place(run_id):
                return
            del self._without_room[run_id]
            for task in buffer.drain():
                self._offer(task)

    def _make_room(self) -> None:
        """Ask as many runs to leave as others wait for a place."""
        if not self._without_room and self.settings.max_cached_workflows > 0:
            return
        wanted = len(self._without_room)
        leaving = sum(run.eviction is not None for run in self._runs.values())
        if leaving >= wanted and self.settings.max_cached_workflows > 0:
            return
        for run in sorted(self._runs.values(), key=_holds_local_activities):
            if run.eviction is not None or run.buffer.has_real_task:
                continue
            if leaving < wanted or (self.settings.max_cached_workflows == 0 and not run.is_busy):
                leaving += 1
                run.request_eviction(CACHE_FULL)
                self._go_on(run)

    def _finish_if_done(self) -> None:
        if not (self._shutting_down and self._pollers_stopped) or self._fetches:
            return
        if not self.pending_runs():
            self.finished = True
            self.emit(Finished())


def _holds_local_activities(run: ManagedRun) -> bool:
    """Runs that cannot leave soon are asked last; otherwise the order of use decides."""
    return run.locals.are_outstanding
