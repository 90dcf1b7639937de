"""Gauges of the whole store (how many workflows sleep, run, are dead...), exported on scrape.

The numbers live in the store and are the same for every process, so exactly one process may export
them: the one that holds the elected metrics chore. It reads the counters once per period and calls
`expose`; when it loses the chore it calls `hide`, and every other process exposes nothing. Sums
over all processes are therefore right.

Invariants:
* What was exposed expires by itself: a holder that can no longer renew falls silent.
* A label set that was exported once and vanished from the store is exported as zero, so a graph
  ends at zero and not at its last value.
* Counters are signed. A negative one (which would be a bug) is exported as zero, never as 2**64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from perdure.clock import Clock

if TYPE_CHECKING:
    from perdure.engine.database.gauges import Gauges

__all__ = ["GlobalGauges"]

_WORKFLOW_GAUGES = {
    "running": ("perdure_workflow_active", "Workflows that a worker runs now."),
    "sleeping": ("perdure_workflow_sleeping", "Workflows that wait for a wake condition."),
    "dead": ("perdure_workflow_dead", "Workflows that failed and can be revived."),
    "complete": ("perdure_workflow_complete", "Workflows that returned a result."),
    "cancelled": ("perdure_workflow_cancelled", "Workflows that ended because of a cancel."),
    "terminated": ("perdure_workflow_terminated", "Workflows that were terminated."),
}


class GlobalGauges:
    """A Prometheus collector over the last exposed `Gauges`. Thread-safe by replacement."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exposed: tuple[Gauges, float] | None = None
        self._workflow_names: set[str] = set()
        self._signal_names: set[str] = set()

    def expose(self, gauges: Gauges, seconds: float) -> None:
        """Export `gauges` for `seconds` from now. Only for the holder of the metrics chore."""
        self._workflow_names = self._workflow_names | gauges.workflows.keys()
        self._signal_names = self._signal_names | gauges.signals.keys()
        self._exposed = (gauges, self._clock.monotonic() + seconds)

    def hide(self) -> None:
        """Export nothing from now on: another process holds the chore, or nobody."""
        self._exposed = None
        self._workflow_names = set()
        self._signal_names = set()

    def describe(self) -> Iterable[Metric]:
        """Names for the registry's check for duplicates; does not touch the numbers."""
        return _families({}, {})

    def collect(self) -> Iterable[Metric]:
        """The families to export now; none unless something is exposed and not expired."""
        exposed = self._exposed
        if exposed is None or self._clock.monotonic() >= exposed[1]:
            return ()
        gauges = exposed[0]
        return _families(
            {name: gauges.workflows.get(name, {}) for name in sorted(self._workflow_names)},
            {name: gauges.signals.get(name, 0) for name in sorted(self._signal_names)},
        )


def _families(workflows: dict[str, dict[str, int]], signals: dict[str, int]) -> Iterator[Metric]:
    total = GaugeMetricFamily(
        "perdure_workflow_total", "All stored workflows.", labels=["workflow_name"]
    )
    for name, phases in workflows.items():
        total.add_metric([name], sum(map(_clamped, phases.values())))
    yield total
    for phase, (family_name, text) in _WORKFLOW_GAUGES.items():
        family = GaugeMetricFamily(family_name, text, labels=["workflow_name"])
        for name, phases in workflows.items():
            family.add_metric([name], _clamped(phases.get(phase, 0)))
        yield family
    pending = GaugeMetricFamily(
        "perdure_signal_pending", "Signals sent and not received yet.", labels=["signal_name"]
    )
    for name, count in signals.items():
        pending.add_metric([name], _clamped(count))
    yield pending


def _clamped(count: int) -> int:
    return max(count, 0)
