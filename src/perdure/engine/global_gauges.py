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

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from perdure.clock import Clock

__all__ = ["GaugeSnapshot", "GlobalGauges"]

_WORKFLOW_GAUGES = {
    "running": ("perdure_workflow_active", "Workflows that a worker runs now."),
    "sleeping": ("perdure_workflow_sleeping", "Workflows that wait for a wake condition."),
    "dead": ("perdure_workflow_dead", "Workflows that failed and can be revived."),
    "complete": ("perdure_workflow_complete", "Workflows that returned a result."),
    "cancelled": ("perdure_workflow_cancelled", "Workflows that ended because of a cancel."),
    "terminated": ("perdure_workflow_terminated", "Workflows that were terminated."),
}


class GaugeSnapshot(msgspec.Struct, frozen=True):
    """The store's counters at one moment.

    `workflows` maps a workflow name to counts by phase word (`running`, `sleeping`, `dead`,
    `complete`, `cancelled`, `terminated`); `signals` maps a signal name to its pending count.
    """

    workflows: Mapping[str, Mapping[str, int]]
    signals: Mapping[str, int]


class GlobalGauges:
    """A Prometheus collector over the last exposed `GaugeSnapshot`. Thread-safe by replacement."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exposed: tuple[GaugeSnapshot, float] | None = None
        self._workflow_names: set[str] = set()
        self._signal_names: set[str] = set()

    def expose(self, snapshot: GaugeSnapshot, seconds: float) -> None:
        """Export `snapshot` for `seconds` from now. Only for the holder of the metrics chore."""
        self._workflow_names = self._workflow_names | snapshot.workflows.keys()
        self._signal_names = self._signal_names | snapshot.signals.keys()
        self._exposed = (snapshot, self._clock.monotonic() + seconds)

    def hide(self) -> None:
        """Export nothing from now on: another process holds the chore, or nobody."""
        self._exposed = None
        self._workflow_names = set()
        self._signal_names = set()

    def describe(self) -> Iterable[Metric]:
        """Names for the registry's check for duplicates; does not touch the numbers."""
        return self._families(GaugeSnapshot({}, {}), (), ())

    def collect(self) -> Iterable[Metric]:
        """The families to export now; none unless something is exposed and not expired."""
        exposed = self._exposed
        if exposed is None or self._clock.monotonic() >= exposed[1]:
            return ()
        return self._families(exposed[0], sorted(self._workflow_names), sorted(self._signal_names))

    def _families(
        self, snapshot: GaugeSnapshot, workflow_names: Iterable[str], signal_names: Iterable[str]
    ) -> Iterator[Metric]:
        workflow_names = list(workflow_names)
        total = GaugeMetricFamily(
            "perdure_workflow_total", "All stored workflows.", labels=["workflow_name"]
        )
        for name in workflow_names:
            total.add_metric([name], sum(map(_clamped, snapshot.workflows.get(name, {}).values())))
        yield total
        for phase, (family_name, text) in _WORKFLOW_GAUGES.items():
            family = GaugeMetricFamily(family_name, text, labels=["workflow_name"])
            for name in workflow_names:
                family.add_metric([name], _clamped(snapshot.workflows.get(name, {}).get(phase, 0)))
            yield family
        pending = GaugeMetricFamily(
            "perdure_signal_pending", "Signals sent and not received yet.", labels=["signal_name"]
        )
        for name in signal_names:
            pending.add_metric([name], _clamped(snapshot.signals.get(name, 0)))
        yield pending


def _clamped(count: int) -> int:
    return max(count, 0)
