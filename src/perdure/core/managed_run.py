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
5. an eviction, if one is wanted;
6. an empty answer because the task would time out while local activities run;
7. without a task: the next one from the buffer.

Errors of the machines stay inside the run: it is broken from then on, its task fails, and it
leaves the cache.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, Protocol

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1.command_type_pb2 import CommandType
from temporalio.api.enums.v1.failed_cause_pb2 import WorkflowTaskFailedCause as Cause
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    RemoveFromCache,
    WorkflowActivation,
    WorkflowActivationJob,
)

from perdure.core.completion import Failed, MalformedCompletion, Succeeded, in_order
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.paginator import EmptyHistoryPage, HistoryPaginator
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.local_requests import LocalResult
from perdure.core.outcomes import (
    Action,
    CancelAllLocalActivities,
    ClearHeartbeat,
    CompleteTask,
    Counted,
    FailTask,
    LangActivation,
    ProblemKind,
    ReleasePermit,
    Reported,
    RespondQuery,
    RunLocalActivities,
    SetHeartbeat,
    StreamSettings,
)
from perdure.core.reports import TOO_LARGE, Reports, choose_eager, too_large_failure
from perdure.core.run_locals import HEARTBEAT_FRACTION, RunLocals
from perdure.core.task import HeldTask, OutstandingTask, TaskBuffer
from perdure.core.verdicts import (
    QUERY_EXPIRED,
    Eviction,
    Verdict,
    history_missing,
    lang_failed,
    machines_failed,
    refused,
)
from perdure.core.workflow_machines import Step, WorkflowMachines

__all__ = ["Desk", "ManagedRun", "Waiting"]

_TASK_TIMEOUT: Final = 10.0
"""Seconds that a task may take when its history does not say: the server's default."""

_NO_MORE_QUERIES: Final = frozenset(RemoveFromCache.EvictionReason.values()) - {
    RemoveFromCache.EvictionReason.CACHE_FULL,
    RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING,
}
"""Reasons after which nobody can answer the queries that wait: the run is not to be trusted."""

_ENDINGS: Final[dict[int, str]] = {
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION: "workflow_completed",
    CommandType.COMMAND_TYPE_CANCEL_WORKFLOW_EXECUTION: "workflow_canceled",
    CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION: "workflow_failed",
    CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION: "workflow_continue_as_new",
}
"""Commands that end a workflow, and the metric that counts each."""


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


class _Report(enum.Enum):
    COMPLETE = "complete"
    FAIL = "fail"
    QUERY = "query"
    QUERY_TOO_LARGE = "query too large"


class _Parked:
    """What goes on when the next page of history is there.

    `done` is lang's completion, None when a new task was being applied; `carried_out` says whether
    its commands have already gone through the machines.
    """

    __slots__ = ("carried_out", "done")

    def __init__(self, done: Succeeded | None, *, carried_out: bool) -> None:
        self.done = done
        self.carried_out = carried_out


class Desk(Protocol):
    """Where a run puts what it wants from outside."""

    settings: StreamSettings
    reports: Reports

    def emit(self, action: Action) -> None:
        """Have the action carried out."""

    def fetch_page(self, run: ManagedRun, token: bytes) -> None:
        """Have a page fetched; `page_fetched` or `fetch_failed` of the run follows."""


class ManagedRun:
    """See the module. The stream calls `advance` after every call of another method."""

    __slots__ = (
        "_desk",
        "_fresh",
        "_parked",
        "_report",
        "_slot_goes_on",
        "_with_terminal",
        "broken",
        "buffer",
        "ended",
        "eviction",
        "fails_after_eviction",
        "locals",
        "machines",
        "pages",
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
        self.pages: HistoryPaginator | None = None
        self.broken = False
        self.ended = False
        self.removed = False
        self.fails_after_eviction: OutstandingTask | None = None
        self._report: _Report | None = None
        self._parked: _Parked | None = None
        self.locals = RunLocals()
        self._fresh = False
        self._slot_goes_on = False
        self._with_terminal: int | None = None

    # --- What the stream asks -------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """True if there is something that it works on or waits for."""
        return (
            self.task is not None
            or self.waiting is not None
            or self.eviction is not None
            or self._parked is not None
            or self.machines.outstanding_local_activities > 0
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
            self._release(
                OutstandingTask(obsolete.work, obsolete.permit, obsolete.received_at),
                completed=False,
            )

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
        assert self.pages is not None
        self.pages.feed(events, next_page_token)
        self._read_on()

    def _go_on_with(self, update: HistoryUpdate) -> None:
        parked, self._parked = self._parked, None
        assert parked is not None
        try:
            if parked.done is not None and not parked.carried_out:
                self._carry_out(parked.done, update)
                return
            self.machines.add_fetched(update)
            applied = self._apply(once=True)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=parked.done is not None)
            return
        if not applied:
            self._park(parked.done, carried_out=True)
        elif parked.done is not None:
            self._conclude(parked.done)
        else:
            self._request_locals()

    def fetch_failed(self, text: str) -> None:
        """The history that was missing will not come: what waited for it fails."""
        self._parked = None
        if self.waiting is None:
            self.waiting = Waiting.CORE
        self._fail(history_missing(text))

    def leave_unread(self, task: OutstandingTask, text: str) -> None:
        """The history of a task for this run cannot be had: the run is stale, and leaves.

        The task is failed when it has left, so that the server does not give it back before.
        """
        earlier, self.fails_after_eviction = self.fails_after_eviction, task
        if earlier is not None:
            self._release(earlier, completed=False)
        self.request_eviction(history_missing(text).eviction)

    def completed(self, done: Succeeded | Failed) -> None:
        """Lang has answered. Raises `MalformedCompletion`, changing nothing."""
        if self.waiting in (None, Waiting.CORE) or self._report or self._parked:
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
        report, self._report = self._report, None
        task = self.task
        problem = outcome.problem
        if report is _Report.COMPLETE:
            if problem is None:
                self._accepted(outcome)
            elif problem.kind in TOO_LARGE and self._fail_too_large(problem.kind, problem.text):
                return None
            elif problem.kind not in TOO_LARGE:
                self.request_eviction(refused(problem))
        elif report is _Report.QUERY and task is not None:
            if problem is not None and problem.kind in TOO_LARGE:
                cause, _ = TOO_LARGE[problem.kind]
                failure = too_large_failure(problem.kind, problem.text)
                request = self._desk.reports.fail_query(task.token, failure, cause)
                self._send(_Report.QUERY_TOO_LARGE, RespondQuery(self.run_id, request))
                return None
            task.pending_queries.clear()
        elif report is _Report.QUERY_TOO_LARGE and task is not None:
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
        if self.ended:
            self.request_eviction(_COMPLETED)
            return True
        return False

    def _next_step(self, task: OutstandingTask) -> bool:
        """The next thing for the task; False when something outside must happen first."""
        machines = self.machines
        if machines.has_jobs and not self.broken:
            self._activate(Waiting.LANG, machines.activation())
            machines.completed_activation_dispatched()
            return False
        result = self.locals.next_result() if self.eviction is None else None
        if result is not None:
            self._resolve_local(*result)
            return True
        has_locals = machines.outstanding_local_activities > 0
        if not has_locals and (
            self.locals.holds_task or (self._fresh and not task.pending_queries)
        ):
            self.locals.holds_task = False
            self._answer_by_core()
            return True
        if task.pending_queries:
            activation = machines.query_activation(task.pending_queries)
            self._activate(Waiting.LANG_QUERIES, activation)
            return False
        if self.eviction is not None:
            self._evict()
            return False
        if self.locals.heartbeat_due:
            self._answer_by_core()
            return True
        if has_locals:
            self._wait_for_locals(task)
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
        if not self.locals.may_leave:
            if self.locals.begin_leaving():
                self._desk.emit(CancelAllLocalActivities(self.run_id))
            return
        eviction = self.eviction
        assert eviction is not None
        if eviction.reason != RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING:
            self._count("sticky_cache_total_forced_eviction")
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
        self.pages = task.pages
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
            self.machines.new_history(task.history, work.messages)
            applied = self._apply(once=True)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=False)
            return
        if applied:
            self._request_locals()
        else:
            self._park(None, carried_out=True)

    def _apply(self, *, once: bool) -> bool:
        """Apply history until there is something for lang; False when a page is missing.

        `once` applies one sequence in any case; the others are only replayed.
        """
        machines = self.machines
        while once or (machines.replaying and not machines.has_jobs):
            once = False
            applied = machines.apply_next_sequence()
            if applied is Step.NEED_FETCH:
                return False
            if applied is Step.OVER:
                break
        return True

    def _park(self, done: Succeeded | None, *, carried_out: bool) -> None:
        """Go on when more of the history is there, which may be at once."""
        self._parked = _Parked(done, carried_out=carried_out)
        self._read_on()

    def _read_on(self) -> None:
        assert self.pages is not None
        try:
            following = self.pages.next_update()
        except EmptyHistoryPage as error:
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
            if not self._slot_goes_on:
                self._release(task, completed=not self.broken)
            self.task = None
            if self.locals.heartbeat_set:
                self.locals.heartbeat_set = False
                self._desk.emit(ClearHeartbeat(self.run_id))
        if is_leaving:
            self.removed = True
        elif (
            self._desk.settings.evict_after_replay
            and self.eviction is None
            and not self.machines.replaying
        ):
            self.request_eviction(_REPLAYED)

    def _release(self, task: OutstandingTask, *, completed: bool) -> None:
        self._desk.emit(ReleasePermit(task.permit, self.workflow_type, task.received_at, completed))

    def _count(self, name: str, reason: str = "") -> None:
        self._desk.emit(Counted(name, self.workflow_type, reason))

    # --- Local activities -----------------------------------------------------------------------

    def _request_locals(self) -> None:
        requests = self.machines.drain_local_activities()
        if requests:
            self.locals.had_any = True
            self._desk.emit(RunLocalActivities(self.run_id, tuple(requests)))

    def _resolve_local(self, seq: int, result: LocalResult) -> None:
        try:
            self.machines.local_resolution(seq, result)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=False)

    def _wait_for_locals(self, task: OutstandingTask) -> None:
        self._fresh = False
        self.locals.holds_task = True
        if not self.locals.heartbeat_set:
            self.locals.heartbeat_set = True
            timeout = self.machines.workflow_task_timeout
            seconds = timeout.ToNanoseconds() / 1e9 if timeout is not None else _TASK_TIMEOUT
            at = task.received_at + HEARTBEAT_FRACTION * seconds
            self._desk.emit(SetHeartbeat(self.run_id, task.token, at))

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
            request = self._desk.reports.answer_query(task.token, answer)
            self._send(_Report.QUERY, RespondQuery(self.run_id, request))
        elif self.waiting is Waiting.LANG_QUERIES:
            task.pending_queries.clear()
            self._conclude(done)
        elif self.machines.needs_fetch_for_completion():
            self._park(done, carried_out=False)
        else:
            self._carry_out(done, None)

    def _carry_out(self, done: Succeeded, update: HistoryUpdate | None) -> None:
        machines = self.machines
        try:
            machines.record_lang_flags(done.used_flags)
            machines.iterate(
                in_order(
                    done.commands, keep_after_terminal=machines.keeps_commands_after_terminal()
                )
            )
            if update is not None:
                machines.add_fetched(update)
            applied = self._apply(once=False)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=True)
            return
        if applied:
            self._conclude(done)
        else:
            self._park(done, carried_out=True)

    def _conclude(self, done: Succeeded) -> None:
        """The machines are up to date: answer the task now, or not yet."""
        self._request_locals()
        task, machines = self.task, self.machines
        assert task is not None
        has_locals = machines.outstanding_local_activities > 0
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
            self._complete_task(done, force_new_task=has_locals)
        else:
            self.locals.holds_task = has_locals
            self._settle(task_is_over=False)

    def _complete_task(self, done: Succeeded, *, force_new_task: bool) -> None:
        task, machines = self.task, self.machines
        assert task is not None
        commands = machines.outgoing_commands()
        sdk_metadata, metering = machines.completion_metadata()
        request = self._desk.reports.complete(
            task.token,
            commands,
            messages=machines.drain_messages(),
            answers=done.answers,
            force_new_task=force_new_task,
            sdk_metadata=sdk_metadata,
            metering=metering,
            versioning_behavior=done.versioning_behavior,
        )
        self._with_terminal = next(
            (c.command_type for c in commands if c.command_type in _ENDINGS), None
        )
        self._send(
            _Report.COMPLETE,
            CompleteTask(self.run_id, request, choose_eager(request, self._desk.settings)),
        )

    def _accepted(self, outcome: Reported) -> None:
        response = outcome.response
        if response is not None and response.reset_history_event_id > 0:
            self.machines.reset_last_started(response.reset_history_event_id)
        if self._with_terminal is not None:
            self.ended = True
            self._count(_ENDINGS[self._with_terminal])

    def _eviction_answered(self) -> None:
        """Lang has dropped the run. What it had already decided is not lost: it is sent now."""
        machines = self.machines
        failing = self.fails_after_eviction
        if failing is not None:
            self.fails_after_eviction = None
            self._release(failing, completed=False)
            if failing.attempt <= 1 and not failing.has_legacy_query:
                request = self._desk.reports.fail(
                    failing.token,
                    Cause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
                    Failure(message="Fetching history failed"),
                )
                self._send(_Report.FAIL, FailTask(self.run_id, request))
                return
        can_respond = not (
            self.task is None
            or self.broken
            or machines.replaying
            or machines.have_seen_terminal_event
        )
        if can_respond and (machines.outgoing_commands() or machines.has_messages):
            self._complete_task(
                Succeeded(self.run_id),
                force_new_task=machines.outstanding_local_activities > 0,
            )
        else:
            self._settle(task_is_over=True)

    def _send(self, report: _Report, action: CompleteTask | FailTask | RespondQuery) -> None:
        self._report = report
        self._desk.emit(action)

    # --- Failures -------------------------------------------------------------------------------

    def _break(self, error: FatalError | NondeterminismError, *, in_completion: bool) -> None:
        """The machines cannot go on with this run."""
        self.broken = True
        if self.waiting is None:
            self.waiting = Waiting.CORE
        verdict = machines_failed(error, in_completion=in_completion)
        if verdict.is_nondeterminism and self._fails_workflow():
            self._fail_workflow(verdict)
        else:
            self._fail(verdict)

    def _fails_workflow(self) -> bool:
        """True if nondeterminism ends the workflow instead of waiting for better code."""
        settings, task = self._desk.settings, self.task
        return (
            task is not None
            and task.attempt <= 1
            and not task.has_legacy_query
            and (
                settings.fail_workflow_on_nondeterminism
                or self.workflow_type in settings.fail_workflow_on_nondeterminism_types
            )
        )

    def _fail_workflow(self, verdict: Verdict) -> None:
        task = self.task
        assert task is not None
        self.request_eviction(verdict.eviction)
        command = Command(command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION)
        command.fail_workflow_execution_command_attributes.failure.CopyFrom(verdict.failure)
        self._with_terminal = command.command_type
        request = self._desk.reports.complete(task.token, [command])
        self._send(_Report.COMPLETE, CompleteTask(self.run_id, request))

    def _fail(self, verdict: Verdict) -> None:
        """Fail the task, once, and have the run leave the cache."""
        self.request_eviction(verdict.eviction)
        task, reports = self.task, self._desk.reports
        if task is None:
            self._settle(task_is_over=False)
        elif task.has_legacy_query:
            if verdict.in_completion:
                query = reports.fail_query(task.token, verdict.failure, verdict.cause)
                self._send(_Report.QUERY, RespondQuery(self.run_id, query))
            else:
                task.pending_queries.clear()
                self._settle(task_is_over=True)
        elif task.attempt <= 1:
            self._count("workflow_task_execution_failed", verdict.metric_reason)
            request = reports.fail(task.token, verdict.cause, verdict.failure)
            self._send(_Report.FAIL, FailTask(self.run_id, request))
        else:
            self._settle(task_is_over=True)

    def _fail_too_large(self, kind: ProblemKind, text: str) -> bool:
        """The answer was too large to be sent: fail the task, once."""
        self.request_eviction(Eviction(text, RemoveFromCache.EvictionReason.FATAL))
        task = self.task
        if task is None or task.attempt > 1:
            return False
        cause, name = TOO_LARGE[kind]
        self._count("workflow_task_execution_failed", name)
        request = self._desk.reports.fail(task.token, cause, too_large_failure(kind, text))
        self._send(_Report.FAIL, FailTask(self.run_id, request))
        return True
