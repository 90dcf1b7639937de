"""Whether stored sleeping workflows slow down the others: they must not.

A million workflows are not made one by one. One real workflow goes to sleep in a real engine; then
every row that names it is copied under fresh ids. That works on any layout of the store, as ids are
stored as their plain bytes, and the copies are what a million dispatches would have left.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks.engine_steps import count
from benchmarks.engine_workflows import count_to, hibernate, until_asleep
from benchmarks.figures import Section, emit, note, percentile, section_note
from benchmarks.load import Load, closed_loop
from benchmarks.plan import Plan
from perdure import Engine
from perdure.clock import SYSTEM_CLOCK
from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import due
from perdure.ids import Id
from perdure.kv import Database, Transaction, open_database

__all__ = ["measure"]

_COPIES_PER_TRANSACTION = 1_000
_PULLS = 2_000
_PULL_LIMIT = 100
_THROUGHPUT_CONCURRENCY = 50

Rows = list[tuple[bytes, bytes]]


def measure(plan: Plan) -> None:
    """Report pulls and one-activity workflows beside each number of sleepers."""
    section_note(
        Section.SLEEPERS,
        "A pull asks the store for due workflows of the sleepers' own name and finds none. "
        "Latencies are of workflows with one activity, one at a time; workflows/s is with "
        f"{_THROUGHPUT_CONCURRENCY} at once.",
    )
    asyncio.run(_measure(plan, f"rocksdb:{plan.folder / 'store'}"))


async def _measure(plan: Plan, url: str) -> None:
    template = await _sleeping_workflow(url)
    stored = 0
    for sleepers in plan.sleepers:
        database = await open_database(url)
        try:
            if stored == 0:
                await _remove(database, template[1])
            if sleepers > stored:
                note(f"storing {sleepers - stored:,} sleeping workflows")
                await _copy(database, *template, sleepers - stored)
                stored = sleepers
            note(f"pulls and workflows beside {sleepers:,} sleeping workflows")
            await _measure_pulls(database, f"{sleepers:,}")
        finally:
            await database.close()
        await _measure_workflows(plan, url, f"{sleepers:,}")


async def _sleeping_workflow(url: str) -> tuple[Id, Rows]:
    """One real sleeping workflow: its id and all rows that name it."""
    async with Engine(url, workflows=[hibernate]) as engine:
        handle = await engine.dispatch(hibernate, 0)
        await until_asleep(engine, 1)
    database = await open_database(url)
    try:
        rows = await database.transaction().get_range(b"", b"\xff")
    finally:
        await database.close()
    name = bytes(handle.id)
    return handle.id, [row for row in rows if name in row[0] or name in row[1]]


async def _remove(database: Database, rows: Rows) -> None:
    async def body(transaction: Transaction) -> None:
        for key, _ in rows:
            transaction.clear(key)

    await database.run(body, name="remove_template")


async def _copy(database: Database, original: Id, rows: Rows, copies: int) -> None:
    async def store(ids: list[Id]) -> None:
        async def body(transaction: Transaction) -> None:
            for copy in ids:
                for key, value in rows:
                    transaction.set(key.replace(original, copy), value.replace(original, copy))

        await database.run(body, name="copy_sleepers")

    for done in range(0, copies, _COPIES_PER_TRANSACTION):
        await store([Id.new() for _ in range(min(_COPIES_PER_TRANSACTION, copies - done))])


async def _measure_pulls(database: Database, row: str) -> None:
    keys = Keys()
    latencies = []
    for _ in range(_PULLS):
        before = perf_counter()
        found = await due(database, keys, hibernate.name, SYSTEM_CLOCK.now(), _PULL_LIMIT)
        latencies.append(perf_counter() - before)
        if found:
            raise RuntimeError(f"{len(found)} workflows that sleep for a year are due now")
    emit(Section.SLEEPERS, row, "pull p50", percentile(latencies, 0.50) * 1000, "ms")
    emit(Section.SLEEPERS, row, "pull p99", percentile(latencies, 0.99) * 1000, "ms")


async def _measure_workflows(plan: Plan, url: str, row: str) -> None:
    async with Engine(url, workflows=[count_to, hibernate]) as engine:
        await count(engine, 1)
        load = Load(1, 1, plan.seconds)
        alone = await closed_loop(load, lambda: count(engine, 1), disk=plan.folder)
        load = Load(_THROUGHPUT_CONCURRENCY, 1, plan.seconds)
        together = await closed_loop(load, lambda: count(engine, 1), disk=plan.folder)
    latencies = alone.workflow_latencies
    emit(Section.SLEEPERS, row, "workflow p50", percentile(latencies, 0.50) * 1000, "ms")
    emit(Section.SLEEPERS, row, "workflow p99", percentile(latencies, 0.99) * 1000, "ms")
    emit(Section.SLEEPERS, row, "workflows/s", together.workflows / together.elapsed, "/s")
    emit(Section.SLEEPERS, row, "fdatasync", together.fdatasync * 1000, "ms")
