"""One workflow run in the cache: what it works on, and what comes next for it.

A run has at most one workflow task, at most one activation at lang, and at most one answer under
way to the server. Whatever else arrives for it waits: tasks in `buffer`, results of local
activities in `locals`. `advance` is the one place that decides what comes next, so every event
is handled by changing the state and advancing:

1. nothing, while lang, the server or a page of history is awaited;
2. jobs that the machines have for lang; else the next result of a local activity;
3. an empty answer by core itself, when a task brought nothing for lang or the last local activity
   of the task is done;
4. queries, which never mix with anything else;
5. an eviction, if one is wanted; for want of room only when no local activities run, as their
   work would be lost and done again, and the task would have to time out first;
6. an empty answer because the task would time out while local activities run;
7. without a task: the next one from the buffer.

Errors of the machines stay inside the run: it is broken from then on, its task fails, and it
leaves the cache.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    RemoveFromCache,
    WorkflowActivation,
    WorkflowActivationJob,
)

from perdure.core.completion import Failed, MalformedCompletion, Succeeded
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.paginator import BrokenPages
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.local_requests import LocalResult
from perdure.core.outcomes import (
    Counted,
    LangActivation,
    Measured,
    ReleasePermit,
    Reported,
)
from perdure.core.reports import TOO_LARGE
from perdure.core.run_answers import Answer, Outbox, RunAnswers
from perdure.core.run_history import RunHistory
from perdure.core.run_locals import RunLocals
from perdure.core.task import HeldTask, OutstandingTask, TaskBuffer
from perdure.core.verdicts import (
    CACHE_FULL,
    QUERY_EXPIRED,
    Eviction,
    Verdict,
    history_missing,
    lang_failed,
    machines_failed,
    refused,
)
from perdure.core.workflow_machines import WorkflowMachines

__all__ = ["Desk", "ManagedRun", "Waiting"]

_log = logging.getLogger(__name__)

_NO_MORE_QUERIES: Final = frozenset(RemoveFromCache.EvictionReason.values()) - {
    RemoveFromCache.EvictionReason.CACHE_FULL,
    RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING,
}
"""Reasons after which nobody can answer the queries that wait: the run is not to be trusted."""

_COMPLETED: Final = Eviction(
    "Workflow completed", RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING
)
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

    def fetch_page(self, run: ManagedRun, token: bytes) -> None:
        """Have a page fetched; `page_fetched` or `fetch_failed` of the run follows."""


class ManagedRun:
    """See the module. The stream calls `advance` after every call of another method."""

    __slots__ = (
        "_answers",
        "_desk",
        "_fresh",
        "_history",
        "_parked",
        "_slot_goes_on",
        "broken",
        "buffer",
        "ended",
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
        self.buffer = TaskBuffer()
        self.broken = False
        self.ended = False
        self.removed = False
        self._parked: _Parked | None = None
        self.locals = RunLocals(desk, run_id, machines)
        self._history = RunHistory(machines)
        self._answers = RunAnswers(desk, run_id, workflow_type)
        self._fresh = False
        self._slot_goes_on = False

    # --- What the stream asks -------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """True if there is something that it works on or waits for."""
        return (
            self.task is not None
            or self.waiting is not None
            or self.eviction is not None
            or self._parked is not None
            or self.locals.are_outstanding
        )

    def has_pending_work(self, *, ignore_evictions: bool) -> bool:
        """True as long as a shutdown must not end without this run."""
        if self.task is not None or len(self.buffer) or self._parked is not None:
            return True
        if ignore_evictions:
            return self.waiting is not None and self.waiting is not Waiting.LANG_EVICTION
        return self.waiting is not None or self.eviction is not None

    # --- What happens to it ---------------------------------------------------------------------

    def accept(self, task: HeldTask) -> None:
        """A new task: it waits until the run is free, which may be at once."""
        for obsolete in self.buffer.put(task):
            self._desk.emit(ReleasePermit(obsolete.permit))

    def heartbeat_due(self, task_token: bytes) -> None:
        """The task would soon time out."""
        if self.task is not None and self.task.token == task_token:
            self.locals.heartbeat_due = True

    def request_eviction(self, eviction: Eviction) -> None:
        """Have the run leave the cache as soon as it may; a later reason replaces an earlier."""
        if self.waiting is Waiting.LANG_EVICTION:
            return
        self.eviction = eviction
        task = self.task
        if task is not None and eviction.reason in _NO_MORE_QUERIES and not task.has_legacy_query:
            task.pending_queries.clear()

    def page_fetched(self, events: Sequence[HistoryEvent], next_page_token: bytes) -> None:
        """The page that was asked for is there."""
        self._history.feed(events, next_page_token)
        self._read_on()

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

    def fetch_failed(self, text: str) -> None:
        """The history that was missing will not come: what waited for it fails."""
        self._parked = None
        if self.waiting is None:
            self.waiting = Waiting.CORE
        self._fail(history_missing(text))

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

    def completed(self, done: Succeeded | Failed) -> None:
        """Lang has answered. Raises `MalformedCompletion`, changing nothing."""
        if self.waiting in (None, Waiting.CORE) or self._answers.under_way or self._parked:
            raise MalformedCompletion(self.run_id, "no activation of this run is outstanding")
        if self.waiting is Waiting.LANG_EVICTION:
            if isinstance(done, Succeeded) and not done.is_empty:
                raise MalformedCompletion(self.run_id, "an eviction is answered with no commands")
            self._eviction_answered()
        elif isinstance(done, Failed):
            self._fail(lang_failed(done))
        else:
            self._succeed(done)

    def reported(self, outcome: Reported) -> object:
        """The server has the answer, or has refused it.

        When the answer brought another task, the slot of the one that is over is returned for it.
        """
        answer = self._answers.replied()
        assert answer is not None, "the server replied to an answer that was never given"
        task, problem = self.task, outcome.problem
        if answer is Answer.COMPLETE:
            if problem is None:
                self._accepted(outcome)
            else:
                self.request_eviction(refused(problem))
                if problem.kind in TOO_LARGE and task is not None and task.attempt <= 1:
                    self._answers.fail_too_large(task, problem)
                    return None
        elif answer is not Answer.FAIL and task is not None:
            if answer is Answer.QUERY and problem is not None and problem.kind in TOO_LARGE:
                self._answers.query_too_large(task, problem)
                return None
            task.pending_queries.clear()
        response = outcome.response
        if task is not None and response is not None and response.workflow_task.task_token:
            self._slot_goes_on = True
            self._settle(task_is_over=True)
            self._slot_goes_on = False
            return task.permit
        self._settle(task_is_over=True)
        return None

    # --- What comes next ------------------------------------------------------------------------

    def advance(self) -> None:
        """Do whatever can be done; see the module for the order."""
        while not self.removed and self.waiting is None and self._parked is None:
            if self.task is None:
                if not self._next_task():
                    return
            elif not self._next_step(self.task):
                return

    def _next_task(self) -> bool:
        if self.eviction is not None:
            self._evict()
            return False
        task = self.buffer.pop()
        if task is not None:
            self._start(task)
            return True
        if self.ended or self.machines.have_seen_terminal_event:
            self.request_eviction(_COMPLETED)
            return True
        return False

    def _next_step(self, task: OutstandingTask) -> bool:
        """The next thing for the task; False when something outside must happen first."""
        machines = self.machines
        if task.is_replay and not machines.replaying and not self.broken:
            task.is_replay = False
            self._measure("workflow_task_replay_latency", task.received_at)
        if machines.has_jobs and not self.broken:
            self._activate(Waiting.LANG, machines.activation())
            machines.completed_activation_dispatched()
            return False
        has_locals = self.locals.are_outstanding
        evicts = self.eviction is not None and not (has_locals and self.eviction is CACHE_FULL)
        result = None if evicts else self.locals.next_result()
        if result is not None:
            self._resolve_local(*result)
            return True
        if not has_locals and (self.locals.hold_task or (self._fresh and not task.pending_queries)):
            self.locals.hold_task = False
            self._answer_by_core()
            return True
        if task.pending_queries:
            activation = machines.query_activation(task.pending_queries)
            self._activate(Waiting.LANG_QUERIES, activation)
            return False
        if evicts:
            self._evict()
            return False
        if self.locals.heartbeat_due:
            self._answer_by_core()
            return True
        if has_locals:
            self._fresh = False
            self.locals.wait(task)
        return False

    def _activate(self, waiting: Waiting, activation: WorkflowActivation) -> None:
        self._fresh = False
        self.waiting = waiting
        self._desk.emit(LangActivation(activation))

    def _answer_by_core(self) -> None:
        self._fresh = False
        self.waiting = Waiting.CORE
        self._succeed(Succeeded(self.run_id))

    def _evict(self) -> None:
        """Ask lang to drop the run, once nothing local of it can surface any more."""
        if not self.locals.may_leave():
            return
        eviction = self.eviction
        assert eviction is not None
        if eviction.reason != RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING:
            self._desk.emit(Counted("sticky_cache_total_forced_eviction"))
        job = WorkflowActivationJob(
            remove_from_cache=RemoveFromCache(message=eviction.message, reason=eviction.reason)
        )
        activation = WorkflowActivation(
            run_id=self.run_id, history_length=self.machines.last_processed_event, jobs=[job]
        )
        self._activate(Waiting.LANG_EVICTION, activation)

    # --- Tasks ----------------------------------------------------------------------------------

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
            self._desk.fetch_page(self, following.token)

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
            self._measure("workflow_task_execution_latency", task.received_at)
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

    def _resolve_local(self, seq: int, result: LocalResult) -> None:
        try:
            self.machines.local_resolution(seq, result)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=False)

    # --- Completions ----------------------------------------------------------------------------

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
        elif self.waiting is Waiting.LANG_QUERIES:
            task.pending_queries.clear()
            self._conclude(done)
        elif self.machines.needs_fetch_for_completion():
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

    def _accepted(self, outcome: Reported) -> None:
        response = outcome.response
        if response is not None and response.reset_history_event_id > 0:
            self.machines.reset_last_started(response.reset_history_event_id)
        if self._answers.count_ending():
            self.ended = True
            self._measure_lifetime()

    def _measure_lifetime(self) -> None:
        started_at = self.machines.started_at
        assert started_at is not None, "a workflow that ends has begun"
        since = started_at.ToNanoseconds() / 1e9
        name = "workflow_endtoend_latency"
        self._desk.emit(Measured(name, self.workflow_type, since, by_wall_clock=True))

    def _eviction_answered(self) -> None:
        """Lang has dropped the run. What it had already decided is not lost: it is sent now."""
        task, machines = self.task, self.machines
        if (
            task is not None
            and not self.broken
            and not machines.replaying
            and not machines.have_seen_terminal_event
            and (machines.outgoing_commands() or machines.has_messages)
        ):
            done = Succeeded(self.run_id)
            has_locals = self.locals.are_outstanding
            self._answers.complete(task, machines, done, force_new_task=has_locals)
        else:
            self._settle(task_is_over=True)

    # --- Failures -------------------------------------------------------------------------------

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
            self._settle(task_is_over=True)
