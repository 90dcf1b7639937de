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

How a task is worked on is in `work`.
"""

from __future__ import annotations

from typing import Final

from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    RemoveFromCache,
    WorkflowActivation,
    WorkflowActivationJob,
)

from perdure.core.actions import (
    Counted,
    LangActivation,
    Measured,
    ReleasePermit,
)
from perdure.core.durations import seconds
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.inputs import Reported
from perdure.core.local_activities.requests import LocalResult
from perdure.core.run.answers import Answer
from perdure.core.run.work import Desk, RunWork, Waiting
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.workflow_tasks.completion import Failed, MalformedCompletion, Succeeded
from perdure.core.workflow_tasks.reports import TOO_LARGE
from perdure.core.workflow_tasks.task import HeldTask, OutstandingTask, TaskBuffer
from perdure.core.workflow_tasks.verdicts import CACHE_FULL, Eviction, lang_failed, refused

__all__ = ["ManagedRun"]

_COMPLETED: Final = Eviction(
    "Workflow completed", RemoveFromCache.EvictionReason.WORKFLOW_EXECUTION_ENDING
)


class ManagedRun(RunWork):
    """See the module. The stream calls `advance` after every call of another method."""

    __slots__ = ("buffer", "ended")

    def __init__(
        self,
        desk: Desk,
        machines: WorkflowMachines,
        *,
        workflow_id: str,
        run_id: str,
        workflow_type: str,
    ) -> None:
        super().__init__(
            desk, machines, workflow_id=workflow_id, run_id=run_id, workflow_type=workflow_type
        )
        self.buffer = TaskBuffer()
        self.ended = False

    # What the stream asks

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

    # What happens to it

    def accept(self, task: HeldTask) -> None:
        """A new task: it waits until the run is free, which may be at once."""
        for obsolete in self.buffer.put(task):
            self._desk.emit(ReleasePermit(obsolete.permit))

    def heartbeat_due(self, task_token: bytes) -> None:
        """The task would soon time out."""
        if self.task is not None and self.task.token == task_token:
            self.locals.heartbeat_due = True

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
        since = seconds(started_at)
        name = "workflow_endtoend_latency"
        self._desk.emit(Measured(name, self.workflow_type, since, by_wall_clock=True))

    # What comes next

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

    def _resolve_local(self, seq: int, result: LocalResult) -> None:
        try:
            self.machines.local_resolution(seq, result)
        except (FatalError, NondeterminismError) as error:
            self._break(error, in_completion=False)

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
