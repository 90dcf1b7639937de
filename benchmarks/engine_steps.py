"""The engine under load: durable steps and workflows per second, and their latencies.

One process holds the client, the worker and the store, every commit is synced to disk before it
counts, and every cell gets an engine and a data folder of its own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.engine_workflows import count_to, step_latencies
from benchmarks.figures import Section, note, section_note
from benchmarks.load import Load, Outcome, closed_loop, emit_outcome
from benchmarks.plan import Plan
from perdure import Engine

__all__ = ["count", "measure"]


def measure(plan: Plan) -> None:
    """Report one row per number of concurrent workflows and of activities in each."""
    section_note(Section.STEPS, "RocksDB: the write-ahead log is synced before a commit counts.")
    for concurrency in plan.concurrencies:
        for activities in plan.activities:
            note(f"{concurrency} workflows x {activities} activities")
            load = Load(concurrency, activities, plan.seconds)
            folder = plan.folder / f"{concurrency}-{activities}"
            emit_outcome(Section.STEPS, asyncio.run(_cell(load, folder)))


async def count(engine: Engine, target: int) -> None:
    """Run one `count_to` from dispatch to result. Raises RuntimeError on a wrong result."""
    handle = await engine.dispatch(count_to, target)
    result = await handle.result()
    if result != target:
        raise RuntimeError(f"workflow {handle.id} counted to {result}, not to {target}")


async def _cell(load: Load, folder: Path) -> Outcome:
    async with Engine(f"rocksdb:{folder}", workflows=[count_to]) as engine:
        await count(engine, load.activities)
        step_latencies.clear()
        outcome = await closed_loop(
            load, lambda: count(engine, load.activities), disk=folder.parent
        )
    if len(step_latencies) != outcome.steps:
        raise RuntimeError(
            f"{outcome.steps} steps were finished but {len(step_latencies)} were timed: "
            "some run was replayed, so the latencies mean nothing"
        )
    outcome.step_latencies = list(step_latencies)
    return outcome
