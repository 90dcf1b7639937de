"""The local activities of one run, as far as its workflow tasks are concerned.

Three things are decided here and nowhere else:

* results wait until the run can give them to lang, one activation each, so that a replay of the
  history sees them in the same order;
* a task that is kept only because local activities run has to be renewed before it times out;
* a run that leaves the cache first has everything local cancelled, and its eviction is withheld
  until lang has heard of every cancellation. What ends in the meantime is of no interest.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from perdure.core.actions import (
    CancelAllLocalActivities,
    ClearHeartbeat,
    RunLocalActivities,
    SetHeartbeat,
)
from perdure.core.durations import seconds
from perdure.core.local_activities.requests import LocalResult
from perdure.core.run.answers import Outbox
from perdure.core.run.workflow_machines import WorkflowMachines
from perdure.core.workflow_tasks.task import OutstandingTask

__all__ = ["RunLocals"]

_HEARTBEAT_FRACTION: Final = 0.8
"""Part of the task's time-out after which the server is told that local activities still run."""

_TASK_TIMEOUT: Final = 10.0
"""Seconds that a task may take when its history does not say: the server's default."""


class _Leaving(enum.Enum):
    NO = "no"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


class RunLocals:
    """See the module. `hold_task` says that the task is kept only for local activities."""

    __slots__ = (
        "_heartbeat_set",
        "_leaving",
        "_machines",
        "_outbox",
        "_results",
        "_run_id",
        "had_any",
        "heartbeat_due",
        "hold_task",
    )

    def __init__(self, outbox: Outbox, run_id: str, machines: WorkflowMachines) -> None:
        self._outbox = outbox
        self._run_id = run_id
        self._machines = machines
        self._results: deque[tuple[int, LocalResult]] = deque()
        self._leaving = _Leaving.NO
        self._heartbeat_set = False
        self.had_any = False
        self.hold_task = False
        self.heartbeat_due = False

    @property
    def are_outstanding(self) -> bool:
        """True if the task at hand waits for results."""
        return self._machines.outstanding_local_activities > 0

    # The task

    def task_began(self) -> None:
        """Every new task starts the time for its own renewal."""
        self.hold_task = self._heartbeat_set = self.heartbeat_due = False

    def task_ended(self) -> None:
        """There is no task that would have to be renewed."""
        if self._heartbeat_set:
            self._heartbeat_set = False
            self._outbox.emit(ClearHeartbeat(self._run_id))

    def wait(self, task: OutstandingTask) -> None:
        """Keep the task, and have it renewed in time."""
        self.hold_task = True
        if not self._heartbeat_set:
            self._heartbeat_set = True
            timeout = self._machines.workflow_task_timeout
            limit = seconds(timeout) if timeout is not None else 0.0
            if limit <= 0:
                limit = _TASK_TIMEOUT
            at = task.received_at + _HEARTBEAT_FRACTION * limit
            self._outbox.emit(SetHeartbeat(self._run_id, task.token, at))

    # Requests and results

    def request(self) -> None:
        """Hand on what the machines ask for."""
        requests = self._machines.drain_local_activities()
        if requests:
            self.had_any = True
            self._outbox.emit(RunLocalActivities(self._run_id, tuple(requests)))

    def resolved(self, seq: int, result: LocalResult) -> None:
        """One is over."""
        if self._leaving is _Leaving.NO:
            self._results.append((seq, result))

    def next_result(self) -> tuple[int, LocalResult] | None:
        """The result that lang hears of next; it is gone afterwards."""
        return self._results.popleft() if self._results else None

    # Leaving the cache

    def may_leave(self) -> bool:
        """True if nothing local of the run can surface any more; else it is seen to that."""
        if not self.had_any or self._leaving is _Leaving.CANCELLED:
            return True
        if self._leaving is _Leaving.NO:
            self._leaving = _Leaving.CANCELLING
            self._results.clear()
            self._outbox.emit(CancelAllLocalActivities(self._run_id))
        return False

    def cancels_delivered(self) -> None:
        """Lang has heard of every cancellation."""
        self._leaving = _Leaving.CANCELLED
