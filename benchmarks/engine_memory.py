# mypy: disable-error-code="import-untyped"
"""Memory per running and per sleeping workflow.

Two instruments, because they answer different questions. `tracemalloc` counts the bytes that Python
objects hold: that is what a workflow costs. The resident size of the process also holds RocksDB's
write buffer and whatever the allocators keep: that is what the operator sees. Each pair of
workflow kind and instrument gets a process of its own, as memory once taken is never given back.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil

from benchmarks.engine_workflows import activity_gate, hibernate, hold, until_asleep
from benchmarks.figures import Section, emit, note, section_note
from benchmarks.plan import Plan
from perdure import Engine, EngineOptions, Workflow

__all__ = ["measure"]

_DISPATCHERS = 50
_WARM_UP = 10
_SETTLE_SECONDS = 6.0
"""The store remembers recent writes for five seconds to find conflicts: that is no leak."""


def measure(plan: Plan) -> None:
    """Report bytes per workflow."""
    workflows = plan.memory_workflows
    note(f"{workflows:,} running and {workflows:,} sleeping workflows")
    section_note(
        Section.MEMORY,
        f"Growth per workflow with {workflows:,} of them, each with a small input; resident memory "
        "includes the write buffer of RocksDB, which does not grow without bound.",
    )
    cases = [(kind, instrument) for kind in _KINDS for instrument in _INSTRUMENTS]
    with ProcessPoolExecutor(
        max_workers=len(cases),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    ) as processes:
        futures = [
            processes.submit(_grown_bytes, kind, instrument, workflows, plan.folder)
            for kind, instrument in cases
        ]
        for (kind, instrument), future in zip(cases, futures, strict=True):
            per_workflow = future.result() / workflows / 1024
            emit(Section.MEMORY, f"per {kind} workflow", instrument, per_workflow, "KiB")


def _grown_bytes(kind: str, instrument: str, workflows: int, folder: Path) -> int:
    if instrument == "python objects":
        tracemalloc.start()
    used = _INSTRUMENTS[instrument]
    url = f"rocksdb:{folder / kind / instrument}"
    return asyncio.run(_growth(kind, used, workflows, url))


def _python_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


_KINDS = ("running", "sleeping")
_INSTRUMENTS = {"python objects": _python_bytes, "resident": _resident_bytes}


async def _growth(kind: str, used: Callable[[], int], workflows: int, url: str) -> int:
    options = EngineOptions(linger=0.0, max_running=workflows + 2 * _WARM_UP, shed_load=False)
    async with Engine(url, workflows=[hold, hibernate], options=options) as engine:
        definition = hold if kind == "running" else hibernate
        await _start(engine, hibernate, range(_WARM_UP))
        await until_asleep(engine, _WARM_UP)
        before = await _settled(used)
        await _start(engine, definition, range(_WARM_UP, _WARM_UP + workflows))
        if kind == "running":
            await activity_gate.reached(workflows)
        else:
            await until_asleep(engine, workflows + _WARM_UP)
        await asyncio.sleep(_SETTLE_SECONDS)
        await _start(engine, hibernate, [-1])
        after = await _settled(used)
        grown = after - before
        if kind == "running":
            activity_gate.open()
    return grown


async def _settled(used: Callable[[], int]) -> int:
    await asyncio.sleep(0.5)
    gc.collect()
    return used()


async def _start(engine: Engine, definition: Workflow[int, int], inputs: Iterable[int]) -> None:
    numbers = iter(inputs)

    async def dispatcher() -> None:
        for number in numbers:
            await engine.dispatch(definition, number)

    await asyncio.gather(*(dispatcher() for _ in range(_DISPATCHERS)))
