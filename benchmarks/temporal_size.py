"""What a worker of each core weighs: memory of cached workflows, time to import."""

from __future__ import annotations

from benchmarks.figures import Section, emit, note, section_note
from benchmarks.plan import Plan
from benchmarks.temporal_cores import CORES, dev_server, run_case

__all__ = ["measure"]

_IMPORTS = 5


def measure(plan: Plan) -> None:
    """Report both."""
    count = plan.cached_workflows
    section_note(
        Section.SIZE,
        f"Growth of resident memory with {count:,} cached workflows that wait for a signal, not "
        f"sandboxed, per 1,000 of them. Import: the best of {_IMPORTS}, "
        "`temporalio.client` and `temporalio.worker`.",
    )
    with dev_server() as address:
        for core in CORES:
            note(f"{count:,} cached workflows, {core}")
            grown = run_case(core, "memory", count, address)["bytes"]
            emit(Section.SIZE, core, "per 1,000 workflows", grown / count * 1000 / 2**20, "MiB")
    best = dict.fromkeys(CORES, float("inf"))
    for _ in range(_IMPORTS):
        for core in CORES:
            best[core] = min(best[core], run_case(core, "importing")["seconds"])
    for core in CORES:
        emit(Section.SIZE, core, "import", best[core] * 1000, "ms")
