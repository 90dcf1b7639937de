"""Cancellations of local activities on their way to lang, and runs that leave when lang has them.

A cancellation is taken by lang's poll, or dropped because its attempt ended before; lang has heard
all that it needs either way. A run that is to leave the cache waits until none of its cancellations
is left.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from temporalio.bridge.proto.activity_task.activity_task_pb2 import (
    ActivityCancellationDetails,
    ActivityCancelReason,
    ActivityTask,
    Cancel,
)

from perdure.core.local_activities.entry import Entry

__all__ = ["Cancellations"]


class Cancellations:
    """See the module; `delivered` hears of each run that need not wait any more."""

    __slots__ = ("_delivered", "_queue", "_withheld")

    def __init__(self, delivered: Callable[[str], None]) -> None:
        self._delivered = delivered
        self._queue: OrderedDict[bytes, tuple[str, ActivityTask]] = OrderedDict()
        self._withheld: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._queue)

    def cancel(self, entry: Entry) -> None:
        """The workflow does not want the attempt under way any more."""
        details = ActivityCancellationDetails(is_cancelled=True)
        self._add(entry, ActivityCancelReason.CANCELLED, details)

    def time_out(self, entry: Entry) -> None:
        """The time of the attempt under way is up."""
        details = ActivityCancellationDetails(is_timed_out=True)
        self._add(entry, ActivityCancelReason.TIMED_OUT, details)

    def take(self) -> ActivityTask | None:
        """The next one for lang; it counts as delivered from now on."""
        return self._remove(next(iter(self._queue))) if self._queue else None

    def attempt_over(self, token: bytes) -> None:
        """Lang need not hear any more that this attempt is cancelled."""
        if token in self._queue:
            self._remove(token)

    def withhold(self, run_id: str) -> None:
        """The run waits for lang to have what is there of it, which may be nothing."""
        self._withheld[run_id] = sum(of_run == run_id for of_run, _ in self._queue.values())
        self._report(run_id)

    def forget(self, run_id: str) -> None:
        """The run does not wait any more."""
        self._withheld.pop(run_id, None)

    def _add(
        self,
        entry: Entry,
        reason: ActivityCancelReason.ValueType,
        details: ActivityCancellationDetails,
    ) -> None:
        if not entry.lang_was_told:
            entry.lang_was_told = True
            task = ActivityTask(
                task_token=entry.token, cancel=Cancel(reason=reason, details=details)
            )
            self._queue[entry.token] = (entry.run.run_id, task)

    def _remove(self, token: bytes) -> ActivityTask:
        run_id, task = self._queue.pop(token)
        if run_id in self._withheld:
            self._withheld[run_id] -= 1
            self._report(run_id)
        return task

    def _report(self, run_id: str) -> None:
        if self._withheld[run_id] <= 0:
            del self._withheld[run_id]
            self._delivered(run_id)
