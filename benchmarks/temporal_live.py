"""Workflows on one dev server, started and worked by one process, on both cores."""

from __future__ import annotations

from benchmarks.figures import Section, emit, note, percentile, section_note
from benchmarks.plan import Plan
from benchmarks.temporal_cores import CORES, dev_server, run_case

__all__ = ["measure"]

_WORKFLOWS = {"OneActivity": "one activity", "OneLocalActivity": "one local activity"}


def measure(plan: Plan) -> None:
    """Report workflows per second, latencies and the CPU time of client and worker."""
    section_note(
        Section.LIVE,
        "The dev server in memory, client and worker in one process beside it. On two CPUs the "
        "server takes one of them, so the rate is mostly its rate; CPU is that of client, SDK and "
        "core together.",
    )
    with dev_server() as address:
        for workflow, title in _WORKFLOWS.items():
            for concurrency in (1, 50):
                row = f"{title}, {concurrency} at once"
                note(row)
                for core in CORES:
                    found = run_case(
                        core, "live", workflow, concurrency, plan.seconds, address, plan.folder
                    )
                    latencies = found["latencies"]
                    rate = len(latencies) / found["elapsed"]
                    emit(Section.LIVE, row, f"{core} workflows/s", rate, "/s")
                    p50 = percentile(latencies, 0.50) * 1000
                    emit(Section.LIVE, row, f"{core} p50", p50, "ms")
                    cpu = found["cpu"] / len(latencies) * 1000
                    emit(Section.LIVE, row, f"{core} CPU", cpu, "ms")
