"""Remembered gaps change the speed of a read, never its result."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.clock import VirtualClock
from perdure.kv import Database, conflicts, gaps
from perdure.kv.conflicts import WINDOW
from perdure.kv.rocksdb import RocksDriver


@pytest.fixture(autouse=True)
def remember_every_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "_SLOW", -1.0)
    monkeypatch.setattr(conflicts, "_TRIM_AT_LEAST", 1)


@pytest.mark.parametrize("seed", range(6))
async def test_reads_of_a_consumed_queue_agree_with_a_model(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    clock = VirtualClock()
    db = Database(await RocksDriver.open(tmp_path / "store", clock=clock), clock=clock)
    model: dict[bytes, bytes] = {}
    older = [(db.transaction(), dict(model))]
    for step in range(300):
        tx = db.transaction()
        for _ in range(rng.randrange(4)):
            key = b"q%03d" % rng.randrange(100)
            if rng.random() < 0.6 and model:
                tx.clear(key := min(model))
                model.pop(key, None)
            elif rng.random() < 0.1:
                tx.clear_range(b"q", key)
                model = {kept: value for kept, value in model.items() if kept >= key}
            else:
                tx.set(key, b"%d" % step)
                model[key] = b"%d" % step
        await tx.commit()
        if rng.random() < 0.1:
            clock.advance(1000 * rng.choice((0.1, 1, 2 * WINDOW)))
            older.clear()
        older.append((db.transaction(), dict(model)))
        for reader, expected in rng.sample(older, min(3, len(older))):
            begin = rng.choice((b"", b"q", b"q050"))
            end = rng.choice((b"q050\0", b"q1", b"r"))
            limit = rng.choice((0, 1, 5))
            rows = await reader.get_range(begin, end, limit=limit)
            inside = sorted(row for row in expected.items() if begin <= row[0] < end)
            assert rows == (inside[:limit] if limit else inside)
            point = b"q%03d" % rng.randrange(100)
            assert await reader.get(point) == expected.get(point)
    await db.close()


async def test_a_gap_is_entered_at_what_was_written_in_it_since(tmp_path: Path) -> None:
    driver = await RocksDriver.open(tmp_path / "store")
    db = Database(driver)

    async def first() -> bytes:
        return (await db.transaction().get_range(b"q", b"r", limit=1))[0][0]

    for key in (b"q9", b"q5", b"q7"):
        tx = db.transaction()
        tx.set(key, b"")
        await tx.commit()
        assert await first() == min(key, b"q5" if key != b"q9" else b"q9")
    assert driver._gaps._known[b"q"][1] == b"q5"
    await db.close()


async def test_only_so_many_gaps_are_remembered(tmp_path: Path) -> None:
    driver = await RocksDriver.open(tmp_path / "store")
    db = Database(driver)
    tx = db.transaction()
    tx.set(b"z", b"")
    await tx.commit()
    tx = db.transaction()
    for number in range(2 * gaps._REMEMBERED):
        await tx.get_range(b"%05d" % number, b"z")
    assert len(driver._gaps._known) == gaps._REMEMBERED
    await db.close()
