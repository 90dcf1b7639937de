"""What one worker has done so far, in numbers, for its heartbeats.

The facts are those of `WorkerMetrics`, and come the same way: whoever tells the metrics tells the
tally. It counts whether or not the runtime has metrics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from perdure.core.actions import Counted
from perdure.core.activities.events import ActivityOver
from perdure.core.activities.reports import ActivityOutcome
from perdure.core.local_activities.requests import AttemptOver, LocalOutcome
from perdure.temporal.telemetry.core_metrics import CoreMetrics
from perdure.temporal.worker.diagnostics.metrics import PollMetrics, WorkerMetrics

__all__ = ["PollTally", "SlotTally", "TalliedMetrics", "Tally"]


@dataclass(slots=True)
class SlotTally:
    """Tasks of one kind: `available` is 0 where the slots have no bound."""

    used: int = 0
    available: int = 0
    processed: int = 0
    failed: int = 0


@dataclass(slots=True)
class PollTally:
    """Polls of one type; the time in nanoseconds since 1970, 0 for never."""

    under_way: int = 0
    last_task_at: int = 0


@dataclass(slots=True)
class Tally:
    """Slots by the kinds of `SlotReserveCtx`, polls by their type."""

    slots: dict[str, SlotTally] = field(
        default_factory=lambda: {
            kind: SlotTally() for kind in ("workflow", "activity", "nexus", "local-activity")
        }
    )
    polls: dict[str, PollTally] = field(
        default_factory=lambda: {
            kind: PollTally()
            for kind in ("workflow_task", "sticky_workflow_task", "activity_task", "nexus_task")
        }
    )
    cache_hits: int = 0
    cache_misses: int = 0
    cached_runs: int = 0


class TalliedMetrics(WorkerMetrics):
    """The metrics of one worker that keep a tally as well."""

    def __init__(self, worker: CoreMetrics) -> None:
        super().__init__(worker)
        self.tally = Tally()

    def polls(self, poller_type: str) -> PollMetrics:
        return _TalliedPolls(self._worker, poller_type, self.tally.polls[poller_type])

    def slots(self, kind: str, used: int, available: int | None) -> None:
        """A task is processed when its slot is free again."""
        super().slots(kind, used, available)
        slots = self.tally.slots[kind]
        slots.processed += max(0, slots.used - used)
        slots.used, slots.available = used, available or 0

    def workflow_counted(self, counted: Counted) -> None:
        super().workflow_counted(counted)
        if counted.name == "sticky_cache_hit":
            self.tally.cache_hits += 1
        elif counted.name == "sticky_cache_miss":
            self.tally.cache_misses += 1
        elif counted.name == "workflow_task_execution_failed":
            self.tally.slots["workflow"].failed += 1

    def cache_size(self, runs: int) -> None:
        super().cache_size(runs)
        self.tally.cached_runs = runs

    def activity_ended(self, over: ActivityOver, since_scheduled: float) -> None:
        super().activity_ended(over, since_scheduled)
        if over.outcome is ActivityOutcome.FAILED:
            self.tally.slots["activity"].failed += 1

    def local_activity_ended(self, over: AttemptOver) -> None:
        super().local_activity_ended(over)
        if over.outcome not in (LocalOutcome.COMPLETED, LocalOutcome.CANCELLED):
            self.tally.slots["local-activity"].failed += 1

    def nexus_task_ended(self, execution: float, *, failure_reason: str = "") -> None:
        super().nexus_task_ended(execution, failure_reason=failure_reason)
        if failure_reason:
            self.tally.slots["nexus"].failed += 1


class _TalliedPolls(PollMetrics):
    __slots__ = ("_tally",)

    def __init__(self, worker: CoreMetrics, poller_type: str, tally: PollTally) -> None:
        super().__init__(worker, poller_type)
        self._tally = tally

    def began(self) -> None:
        super().began()
        self._tally.under_way += 1

    def ended(self) -> None:
        super().ended()
        self._tally.under_way -= 1

    def answered(self, *, with_task: bool) -> None:
        super().answered(with_task=with_task)
        if with_task:
            self._tally.last_task_at = time.time_ns()
