"""The cache of runs, least recently used first, and the line of those who wait for a place in it.

A run leaves the cache only by a dialogue: lang is told and answers. So a full cache does not drop
a run when a task for another one arrives; the task waits, and as many runs are asked to leave as
others wait. Places are given in the order of waiting. Nothing here speaks to a run: this is only
who is in, who waits, and who should leave.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Set as AbstractSet

from perdure.core.run.managed_run import ManagedRun
from perdure.core.workflow_tasks.task import HeldTask, TaskBuffer

__all__ = ["RunCache"]


class RunCache:
    """See the module."""

    __slots__ = ("_keeps_runs", "_places", "_runs", "_waiting")

    def __init__(self, size: int) -> None:
        """`size` 0 means that a run has a place only as long as it is busy, one at a time."""
        self._keeps_runs = size > 0
        self._places = max(1, size)
        self._runs: OrderedDict[str, ManagedRun] = OrderedDict()
        self._waiting: OrderedDict[str, TaskBuffer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ManagedRun]:
        return iter(self._runs.values())

    def __getitem__(self, run_id: str) -> ManagedRun:
        return self._runs[run_id]

    def get(self, run_id: str) -> ManagedRun | None:
        """The run, if it is in the cache."""
        return self._runs.get(run_id)

    def add(self, run: ManagedRun) -> None:
        """The run comes in; whether it has a place was asked before."""
        self._runs[run.run_id] = run

    def use(self, run_id: str) -> None:
        """The run was used just now."""
        self._runs.move_to_end(run_id)

    def remove(self, run: ManagedRun) -> None:
        """The run has left."""
        del self._runs[run.run_id]

    # Places

    @property
    def waiting(self) -> list[str]:
        """Runs that wait for a place, in order."""
        return list(self._waiting)

    def has_place(self, run_id: str, kept: AbstractSet[str]) -> bool:
        """Whether the run, which is not in the cache, may come in.

        `kept` are runs whose places are kept for them.
        """
        absent = kept - self._runs.keys()
        return run_id in absent or len(self._runs) + len(absent) < self._places

    def wait(self, task: HeldTask) -> list[HeldTask]:
        """Keep the task until its run has a place; tasks that it makes obsolete are returned."""
        return self._waiting.setdefault(task.work.run_id, TaskBuffer()).put(task)

    def next_admitted(self, kept: AbstractSet[str]) -> list[HeldTask]:
        """The tasks of who waits longest, if there is room; nobody waits with them any more."""
        for run_id in self._waiting:
            if not self.has_place(run_id, kept):
                break
            return self._waiting.pop(run_id).drain()
        return []

    def chosen_to_leave(self) -> list[ManagedRun]:
        """As many runs as others wait for a place, besides those that are leaving already."""
        wanted = len(self._waiting)
        if self._keeps_runs and not wanted:
            return []
        leaving = sum(run.eviction is not None for run in self)
        if self._keeps_runs and leaving >= wanted:
            return []
        chosen = []
        for run in sorted(self, key=_holds_local_activities):
            if run.eviction is not None or run.buffer.has_real_task:
                continue
            if leaving < wanted or not (self._keeps_runs or run.is_busy):
                leaving += 1
                chosen.append(run)
        return chosen


def _holds_local_activities(run: ManagedRun) -> bool:
    """Runs that cannot leave soon are asked last; otherwise the order of use decides."""
    return run.locals.are_outstanding
