"""The store alone: how many durable transactions per second `perdure.kv` does on RocksDB.

Each caller works on keys of its own, so nothing conflicts and the figure is the cost of the path:
snapshot, get, set, conflict check, batch, fsync.
"""

from __future__ import annotations

import asyncio
import os
from time import perf_counter

from benchmarks.figures import Section, emit, note, percentile
from benchmarks.plan import Plan
from perdure.kv import Database, Transaction, open_database

__all__ = ["CONCURRENCIES", "measure"]

CONCURRENCIES = (1, 50, 500)

_VALUE = os.urandom(300)
_KEYS_PER_CALLER = 200


def measure(plan: Plan) -> None:
    """Report transactions per second and their latencies at each concurrency."""
    for concurrency in CONCURRENCIES:
        note(f"{concurrency} concurrent transactions")
        asyncio.run(_load(plan, concurrency))


async def _load(plan: Plan, concurrency: int) -> None:
    database = await open_database(f"rocksdb:{plan.folder / f'kv-{concurrency}'}")
    try:
        latencies: list[float] = []
        started = perf_counter()
        end = started + plan.seconds
        await asyncio.gather(
            *(_caller(database, number, end, latencies) for number in range(concurrency))
        )
        elapsed = perf_counter() - started
    finally:
        await database.close()
    row = f"{concurrency} concurrent"
    emit(Section.KV, row, "transactions/s", len(latencies) / elapsed, "/s")
    emit(Section.KV, row, "transaction p50", percentile(latencies, 0.50) * 1000, "ms")
    emit(Section.KV, row, "transaction p99", percentile(latencies, 0.99) * 1000, "ms")


async def _caller(database: Database, number: int, end: float, latencies: list[float]) -> None:
    keys = [b"%08d/%04d" % (number, index) for index in range(_KEYS_PER_CALLER)]
    turn = 0
    key = keys[0]

    async def get_and_set(transaction: Transaction) -> None:
        await transaction.get(key)
        transaction.set(key, _VALUE)

    before = perf_counter()
    while before < end:
        key = keys[turn % _KEYS_PER_CALLER]
        turn += 1
        await database.run(get_and_set, name="get_and_set")
        after = perf_counter()
        latencies.append(after - before)
        before = after
