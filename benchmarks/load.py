"""The work both engines are given: a closed loop of workflows that call activities in sequence.

`concurrency` callers each start a workflow, wait for its result and start the next one, until the
time is up; the ones under way then finish and count. A step is one completed activity. Nothing here
knows an engine, so the peer is loaded by the same code. Standard library only, as `figures` is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Section, emit, percentile
from benchmarks.probe import probe_disk

__all__ = ["Load", "Outcome", "closed_loop", "emit_outcome"]


@dataclass(frozen=True, slots=True)
class Load:
    """How hard one cell is pushed."""

    concurrency: int
    activities: int
    seconds: float

    @property
    def row(self) -> str:
        """The name of the row, shared by all engines so that ratios find their other half."""
        return f"{self.concurrency} x {self.activities}"


@dataclass(slots=True)
class Outcome:
    """What the loop saw. Latencies are in seconds; `fdatasync` is a probe around it."""

    load: Load
    elapsed: float = 0.0
    fdatasync: float = 0.0
    workflow_latencies: list[float] = field(default_factory=list)
    step_latencies: list[float] = field(default_factory=list)

    @property
    def workflows(self) -> int:
        return len(self.workflow_latencies)

    @property
    def steps(self) -> int:
        return self.workflows * self.load.activities


async def closed_loop(
    load: Load, run_one: Callable[[], Awaitable[object]], *, disk: Path
) -> Outcome:
    """Keep `load.concurrency` workflows under way; `run_one` runs one to its end.

    The disk is probed in the folder `disk` before and after, while nothing runs.
    """
    outcome = Outcome(load)
    probe_before = probe_disk(disk)
    started = perf_counter()
    end = started + load.seconds

    async def caller() -> None:
        while True:
            before = perf_counter()
            if before >= end:
                return
            await run_one()
            outcome.workflow_latencies.append(perf_counter() - before)

    await asyncio.gather(*(caller() for _ in range(load.concurrency)))
    outcome.elapsed = perf_counter() - started
    outcome.fdatasync = (probe_before + probe_disk(disk)) / 2
    return outcome


def emit_outcome(section: Section, outcome: Outcome) -> None:
    """Report throughput and latencies of one cell."""
    row = outcome.load.row
    emit(section, row, "workflows/s", outcome.workflows / outcome.elapsed, "/s")
    emit(section, row, "steps/s", outcome.steps / outcome.elapsed, "/s")
    for name, samples in (
        ("step", outcome.step_latencies),
        ("workflow", outcome.workflow_latencies),
    ):
        emit(section, row, f"{name} p50", percentile(samples, 0.50) * 1000, "ms")
        emit(section, row, f"{name} p99", percentile(samples, 0.99) * 1000, "ms")
    emit(section, row, "fdatasync", outcome.fdatasync * 1000, "ms")
