"""The work of one run on one workflow task: history in, lang's answers in, an answer out.

A task begins with history and ends with an answer to the server: it is completed, or failed, or a
lone query is answered; or with nothing at all. In between the machines may need pages of history
that are not here yet; then what is going on is *parked*, and goes on when the page comes.

Errors of the machines stay inside the run: it is broken from then on, its task fails, and it
leaves the cache.

What is worked on next, and when, is not decided here but in `managed_run`.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import RemoveFromCache

from perdure.core.actions import (
    Measured,
    ReleasePermit,
    TaskOver,
)
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.paginator import BrokenPages
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.run.answers import Outbox, RunAnswers
from perdure.core.run.history import RunHistory
from perdure.core.run.locals import RunLocals
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.workflow_tasks.completion import MalformedCompletion, Succeeded
from perdure.core.workflow_tasks.task import HeldTask, OutstandingTask
from perdure.core.workflow_tasks.verdicts import (
    QUERY_EXPIRED,
    Eviction,
    Verdict,
    history_missing,
    machines_failed,
)

__all__ = ["Desk", "RunWork", "Waiting"]

_log = logging.getLogger(__name__)

_NO_MORE_QUERIES: Final = frozenset(RemoveFromCache.EvictionReason.values()) - {
    RemoveFromCache.EvictionReason.CACHE_FULL,
    RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING,
}
"""Reasons after which nobody can answer the queries that wait: the run is not to be trusted."""

_REPLAYED: Final = Eviction(
    "Always evict workflows after replay", RemoveFromCache.EvictionReason.LANG_REQUESTED
)


class Waiting(enum.Enum):
    """Whose answer the run waits for before anything else may happen with it."""

    LANG = "an activation is at lang"
    LANG_QUERIES = "queries are at lang"
    LANG_EVICTION = "the eviction is at lang"
    CORE = "core answers itself, without asking lang"


class _Parked:
    """What goes on when the next page of history is there.

    `done` is lang's completion, None when a new task was being applied; `carried_out` says whether
    its commands have already gone through the machines.
    """

    __slots__ = ("carried_out", "done")

    def __init__(self, done: Succeeded | None, *, carried_out: bool) -> None:
        self.done = done
        self.carried_out = carried_out


class Desk(Outbox, Protocol):
    """Where a run puts what it wants from outside."""

    def fetch_page(self, run_id: str, token: bytes) -> None:
        """Have a page fetched; `page_fetched` or `fetch_failed` of the run follows."""


class RunWork:
    """See the module."""

    __slots__ = (
        "_answers",
        "_desk",
        "_fresh",
        "_history",
        "_parked",
        "_slot_goes_on",
        "broken",
        "eviction",
        "locals",
        "machines",
        "removed",
        "run_id",
        "task",
        "waiting",
        "workflow_id",
        "workflow_type",
    )

    def __init__(
        self,
        desk: Desk,
        machines: WorkflowMachines,
        *,
        workflow_id: str,
        run_id: str,
        workflow_type: str,
    ) -> None:
        self._desk = desk
        self.machines = machines
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.workflow_type = workflow_type
        self.task: OutstandingTask | None = None
        self.waiting: Waiting | None = None
        self.eviction: Eviction | None = None
        self.broken = False
        self.removed = False
        self._parked: _Parked | None = None
        self.locals = RunLocals(desk, run_id, machines)
        self._history = RunHistory(machines)
        self._answers = RunAnswers(desk, run_id, workflow_type)
        self._fresh = False
        self._slot_goes_on = False

    # Leaving

    def request_eviction(self, eviction: Eviction) -> None:
        """Have the run leave the cache as soon as it may; a later reason replaces an earlier."""
        if self.waiting is Waiting.LANG_EVICTION:
            return
        self.eviction = eviction
        task = self.task
        if task is not None and eviction.reason in _NO_MORE_QUERIES and not task.has_legacy_query:
            task.pending_queries.clear()

    def crashed(self, error: Exception) -> None:
        """Something went wrong that nobody foresaw: the run is given up, and only this run."""
        _log.error("unexpected error in workflow run %s", self.run_id, exc_info=error)
        unexpected = FatalError(f"unexpected {type(error).__name__}: {error}")
        in_completion = self.waiting is Waiting.LANG or self._parked is not None
        self._parked = None
        if self._answers.under_way is not None:
            self.broken = True
            verdict = machines_failed(unexpected, in_completion=in_completion)
            self.request_eviction(verdict.eviction)
        else:
            self._break(unexpected, in_completion=in_completion)

    # A task, from its beginning to its answer

    def _start(self, task: HeldTask) -> None:
        work = task.work
        self.task = OutstandingTask(work, task.permit, task.received_at)
        self._fresh = True
        self.locals.task_began()
        if work.legacy_query is not None and work.queries:
            self._break(
                FatalError("a workflow task carries queries in the old and in the new form"),
                in_completion=False,
            )
            return
        if work.is_query_only and (
            work.previous_started_event_id < self.machines.current_started_event_id
        ):
            self.waiting = Waiting.CORE
            self._fail(QUERY_EXPIRED)
            return
        try:
            applied = self._history.begin(task)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=False)
            return
        if applied:
            self.locals.request()
        else:
            self._park(None, carried_out=True)

    def _succeed(self, done: Succeeded) -> None:
        task = self.task
        assert task is not None
        answer = done.legacy_answer
        if (answer is not None) != (self.waiting is Waiting.LANG_QUERIES and task.has_legacy_query):
            raise MalformedCompletion(
                self.run_id,
                "it does not answer the legacy query that was asked"
                if answer is None
                else "it answers a legacy query that was not asked",
            )
        if answer is not None:
            self._answers.answer_query(task, answer)
            return
        if self.waiting is Waiting.LANG_QUERIES:
            task.pending_queries.clear()
            if not done.commands:
                self._conclude(done)
                return
        elif done.answers:
            raise MalformedCompletion(self.run_id, "it answers queries that were not asked")
        if self.machines.needs_fetch_for_completion():
            self._park(done, carried_out=False)
        else:
            self._carry_out(done, None)

    def _carry_out(self, done: Succeeded, update: HistoryUpdate | None) -> None:
        try:
            applied = self._history.carry_out(done, update)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=True)
            return
        if applied:
            self._conclude(done)
        else:
            self._park(done, carried_out=True)

    def _conclude(self, done: Succeeded) -> None:
        """The machines are up to date: answer the task now, or not yet."""
        self.locals.request()
        task, machines = self.task, self.machines
        assert task is not None
        has_locals = self.locals.are_outstanding
        heartbeat = self.locals.heartbeat_due and self.waiting is Waiting.CORE
        if heartbeat:
            self.locals.heartbeat_due = False
        respond = not (
            machines.has_jobs
            or machines.replaying
            or machines.have_seen_terminal_event
            or (task.pending_queries and not done.answers)
            or (has_locals and not heartbeat)
        )
        if respond or done.answers:
            self._answers.complete(task, machines, done, force_new_task=has_locals)
        else:
            self.locals.hold_task = has_locals
            self._settle(task_is_over=False)

    # Pages

    def page_fetched(self, events: Sequence[HistoryEvent], next_page_token: bytes) -> None:
        """The page that was asked for is there."""
        self._history.feed(events, next_page_token)
        self._read_on()

    def fetch_failed(self, text: str) -> None:
        """The history that was missing will not come: what waited for it fails."""
        self._parked = None
        if self.waiting is None:
            self.waiting = Waiting.CORE
        self._fail(history_missing(text))

    def _park(self, done: Succeeded | None, *, carried_out: bool) -> None:
        """Go on when more of the history is there, which may be at once."""
        self._parked = _Parked(done, carried_out=carried_out)
        self._read_on()

    def _read_on(self) -> None:
        try:
            following = self._history.next_update()
        except BrokenPages as error:
            self.fetch_failed(error.message)
            return
        if isinstance(following, HistoryUpdate):
            self._go_on_with(following)
        else:
            self._desk.fetch_page(self.run_id, following.token)

    def _go_on_with(self, update: HistoryUpdate) -> None:
        parked, self._parked = self._parked, None
        assert parked is not None
        try:
            if parked.done is not None and not parked.carried_out:
                self._carry_out(parked.done, update)
                return
            applied = self._history.go_on(update)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=parked.done is not None)
            return
        if not applied:
            self._park(parked.done, carried_out=True)
        elif parked.done is not None:
            self._conclude(parked.done)
        else:
            self.locals.request()

    # The end of a task

    def _settle(self, *, task_is_over: bool) -> None:
        """What was awaited has come: the task may be over, and the run may be free."""
        waited, self.waiting = self.waiting, None
        task = self.task
        is_leaving = waited is Waiting.LANG_EVICTION
        if task is not None and (
            is_leaving
            or (
                not task.pending_queries
                and (task_is_over or self.machines.have_seen_terminal_event)
            )
        ):
            self._desk.emit(
                TaskOver(
                    self.run_id,
                    self.workflow_type,
                    task.received_at,
                    event_id=self.machines.current_started_event_id + 1,
                    attempt=task.attempt,
                    history_size=self.machines.history_size,
                )
            )
            if not self._slot_goes_on:
                self._desk.emit(ReleasePermit(task.permit))
            self.task = None
            self.locals.task_ended()
        if is_leaving:
            self.removed = True
        elif (
            self._desk.settings.evict_after_replay
            and self.eviction is None
            and not self.machines.replaying
        ):
            self.request_eviction(_REPLAYED)

    def _measure(self, name: str, since: float) -> None:
        self._desk.emit(Measured(name, self.workflow_type, since))

    # Failures

    def _break(self, error: FatalError | NondeterminismError, *, in_completion: bool) -> None:
        """The machines cannot go on with this run."""
        self.broken = True
        if self.waiting is None:
            self.waiting = Waiting.CORE
        verdict = machines_failed(error, in_completion=in_completion)
        task = self.task
        if verdict.is_nondeterminism and task is not None and self._fails_workflow(task):
            self.request_eviction(verdict.eviction)
            self._answers.fail_workflow(task, verdict)
        else:
            self._fail(verdict)

    def _fails_workflow(self, task: OutstandingTask) -> bool:
        """True if nondeterminism ends the workflow instead of waiting for better code."""
        settings = self._desk.settings
        return (
            task.attempt <= 1
            and not task.has_legacy_query
            and (
                settings.fail_workflow_on_nondeterminism
                or self.workflow_type in settings.fail_workflow_on_nondeterminism_types
            )
        )

    def _fail(self, verdict: Verdict) -> None:
        """Fail the task, once, and have the run leave the cache."""
        self.request_eviction(verdict.eviction)
        task = self.task
        if task is None:
            self._settle(task_is_over=False)
        elif task.has_legacy_query:
            if verdict.in_completion:
                self._answers.fail_query(task, verdict)
            else:
                task.pending_queries.clear()
                self._settle(task_is_over=True)
        elif task.attempt <= 1:
            self._answers.fail(task, verdict)
        else:
            self._answers.count_failure(verdict.metric_reason)
            self._settle(task_is_over=True)
