"""All runs of one worker: the single place where workflow state changes.

`handle` takes one input and returns the actions that follow from it (`inputs`, `actions`). What it
needs for that has modules of its own: `task_reader` reads enough of a task's history, `run_cache`
knows which runs are in, `run` is one of them. The stream brings them together and decides that a
shutdown is complete.

Runs do not share fate: an error in one of them, foreseen or not, ends the work on that one only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from temporalio.api.workflowservice.v1.request_response_pb2 import PollWorkflowTaskQueueResponse
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import RemoveFromCache

from perdure.core.actions import (
    Action,
    Counted,
    FailTask,
    Finished,
    ForgetLocalActivities,
    ReleasePermit,
    RunRemoved,
)
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
from perdure.core.run_cache import RunCache
from perdure.core.run_info import RunInfo
from perdure.core.stream_settings import StreamSettings
from perdure.core.task_reader import TaskReader
from perdure.core.workflow_tasks.completion import MalformedCompletion, validate
from perdure.core.workflow_tasks.reports import Reports
from perdure.core.workflow_tasks.task import (
    HeldTask,
    MalformedTask,
    PreparedTask,
    prepare,
)
from perdure.core.workflow_tasks.verdicts import CACHE_FULL, Eviction, Verdict, history_missing

__all__ = ["WorkflowStream"]


class _Unread(NamedTuple):
    """A task whose history cannot be had."""

    work: PreparedTask
    permit: object
    verdict: Verdict


class WorkflowStream:
    """See the module."""

    __slots__ = (
        "_cache",
        "_fetches",
        "_handlers",
        "_out",
        "_pollers_stopped",
        "_reader",
        "_shutting_down",
        "_unread",
        "finished",
        "reports",
        "settings",
    )

    def __init__(self, settings: StreamSettings) -> None:
        self.settings = settings
        self.reports = Reports(settings)
        self.finished = False
        self._cache = RunCache(settings.max_cached_workflows)
        self._reader = TaskReader(self.emit, self._offer, self._cannot_read)
        self._unread: dict[str, list[_Unread]] = {}
        self._fetches: dict[int, ManagedRun] = {}
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
        for run in self._cache.chosen_to_leave():
            run.request_eviction(CACHE_FULL)
            self._go_on(run)
        self._finish_if_done()
        out, self._out = self._out, []
        return out

    @property
    def cached_runs(self) -> int:
        """How many runs are in the cache."""
        return len(self._cache)

    def pending_runs(self) -> list[str]:
        """What a shutdown waits for."""
        ignore = self.settings.ignore_evictions_on_shutdown
        busy = [run.run_id for run in self._cache if run.has_pending_work(ignore_evictions=ignore)]
        return list(dict.fromkeys([*busy, *self._cache.waiting, *self._reader.run_ids]))

    # What runs ask for

    def emit(self, action: Action) -> None:
        self._out.append(action)

    def fetch_page(self, run_id: str, token: bytes) -> None:
        run = self._cache[run_id]
        self._fetches[self._reader.fetch(run.workflow_id, run_id, token)] = run

    # Tasks

    def _on_new_task(self, given: NewTask) -> None:
        self._reader.read(prepare(given.task), given.permit, given.received_at)

    def _offer(self, task: HeldTask) -> None:
        """Give the task to its run, which may have to be made first."""
        work = task.work
        run = self._cache.get(work.run_id)
        if run is None:
            if not self._cache.has_place(work.run_id, self._reader.kept_places):
                for obsolete in self._cache.wait(task):
                    self.emit(ReleasePermit(obsolete.permit))
                return
            if task.history.first_event_id != 1:
                self._reader.read_from_start(task)
                return
            run = self._new_run(work)
        elif task.history.first_event_id != 1:
            self.emit(Counted("sticky_cache_hit", work.workflow_type))
        self._cache.use(work.run_id)
        run.accept(task)
        self._go_on(run)

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
        self._cache.add(run)
        return run

    # Pages

    def _on_page_fetched(self, given: PageFetched) -> None:
        run = self._fetches.pop(given.fetch, None)
        if run is None:
            self._reader.page_fetched(given)
        else:
            self._do(run, run.page_fetched, given.history.events, given.next_page_token)
            self._go_on(run)

    def _on_page_fetch_failed(self, given: PageFetchFailed) -> None:
        run = self._fetches.pop(given.fetch, None)
        if run is None:
            self._reader.fetch_failed(given)
        else:
            run.fetch_failed(given.text)
            self._go_on(run)

    def _cannot_read(self, work: PreparedTask, permit: object, text: str) -> None:
        """Without its history a task can only fail; a cached run of it is stale, and leaves.

        Then the task fails when the run has left, so that the server does not give it back before.
        """
        unread = _Unread(work, permit, history_missing(text))
        run = self._cache.get(work.run_id)
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

    # Answers

    def _on_completed(self, given: Completed) -> None:
        done = validate(given.completion, given.sites)
        run = self._cache.get(done.run_id)
        if run is not None:
            self._do(run, run.completed, done)
            self._cache.use(done.run_id)
            self._go_on(run)

    def _on_reported(self, given: Reported) -> None:
        run = self._cache.get(given.run_id)
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
        self._reader.read(work, permit, received_at)

    # The rest of the inputs

    def _on_local_resolved(self, given: LocalResolved) -> None:
        run = self._cache.get(given.run_id)
        if run is not None:
            run.locals.resolved(given.seq, given.result)
            self._go_on(run)

    def _on_local_cancels_delivered(self, given: LocalCancelsDelivered) -> None:
        run = self._cache.get(given.run_id)
        if run is not None:
            run.locals.cancels_delivered()
            self._go_on(run)

    def _on_heartbeat_due(self, given: HeartbeatDue) -> None:
        run = self._cache.get(given.run_id)
        if run is not None:
            run.heartbeat_due(given.task_token)
            self._go_on(run)

    def _on_eviction_requested(self, given: EvictionRequested) -> None:
        run = self._cache.get(given.run_id)
        if run is not None:
            run.request_eviction(Eviction(given.message, given.reason))
            self._go_on(run)

    def _on_shutdown_requested(self, _given: ShutdownRequested) -> None:
        self._shutting_down = True

    def _on_pollers_stopped(self, _given: PollersStopped) -> None:
        self._pollers_stopped = True

    # The cache

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
        if run.removed and self._cache.get(run.run_id) is run:
            self._remove(run)

    def _remove(self, run: ManagedRun) -> None:
        self._cache.remove(run)
        if run.locals.had_any:
            self.emit(ForgetLocalActivities(run.run_id))
        self.emit(RunRemoved(run.run_id))
        for unread in self._unread.pop(run.run_id, ()):
            self._fail_unread(unread)
        self._give_places()
        for task in run.buffer.drain():
            self._offer(task)

    def _give_places(self) -> None:
        """Let in who waits longest, as long as there is room."""
        while tasks := self._cache.next_admitted(self._reader.kept_places):
            for task in tasks:
                self._offer(task)

    def _finish_if_done(self) -> None:
        if not (self._shutting_down and self._pollers_stopped) or self._fetches:
            return
        if not self.pending_runs():
            self.finished = True
            self.emit(Finished())
