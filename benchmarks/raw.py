"""The raw limits: what the disk, and RocksDB on it, do without any of our code.

Nothing durable can be faster than an append and an fdatasync, and nothing on RocksDB faster than a
bare write batch and a WAL sync. These two loops give the denominators for everything else.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from rocksdict import Options, Rdict, WriteBatch

from benchmarks.figures import Section, emit, note, percentile
from benchmarks.plan import Plan

__all__ = ["GROUPS", "measure"]

GROUPS = (1, 50, 500)
"""Records per flush."""

_RECORD = os.urandom(300)


def measure(plan: Plan) -> None:
    """Report writes per second and flush latencies for each group size."""
    seconds = plan.seconds / 2
    for group in GROUPS:
        note(f"append + fdatasync, groups of {group}")
        _append_loop(plan.folder / f"append-{group}", group, seconds)
    for group in GROUPS:
        note(f"bare RocksDB, groups of {group}")
        _rocksdb_loop(plan.folder / f"rocksdb-{group}", group, seconds)


def _append_loop(path: Path, group: int, seconds: float) -> None:
    record = _RECORD * group
    flushes: list[float] = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        started = perf_counter()
        now = started
        while now - started < seconds:
            os.write(descriptor, record)
            os.fdatasync(descriptor)
            finished = perf_counter()
            flushes.append(finished - now)
            now = finished
    finally:
        os.close(descriptor)
    _report(Section.APPEND, group, flushes, now - started)


def _rocksdb_loop(path: Path, group: int, seconds: float) -> None:
    database = Rdict(str(path), Options(raw_mode=True))
    flushes: list[float] = []
    try:
        number = 0
        started = perf_counter()
        now = started
        while now - started < seconds:
            batch = WriteBatch(raw_mode=True)
            for offset in range(group):
                batch.put((number + offset).to_bytes(16, "big"), _RECORD)
            number += group
            database.write(batch)
            database.flush_wal(True)
            finished = perf_counter()
            flushes.append(finished - now)
            now = finished
    finally:
        database.close()
    _report(Section.ROCKSDB, group, flushes, now - started)


def _report(section: Section, group: int, flushes: list[float], elapsed: float) -> None:
    row = f"groups of {group}"
    emit(section, row, "writes/s", len(flushes) * group / elapsed, "/s")
    emit(section, row, "group p50", percentile(flushes, 0.50) * 1000, "ms")
    emit(section, row, "group p99", percentile(flushes, 0.99) * 1000, "ms")
