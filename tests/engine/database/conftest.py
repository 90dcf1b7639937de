"""Stores for the tests of the engine's operations: each test runs on every driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.database.world import World

from perdure.kv import open_database


@pytest.fixture(params=["memory", "rocksdb"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world on each driver."""
    url = "memory:" if request.param == "memory" else f"rocksdb:{tmp_path / 'store'}"
    database = await open_database(url)
    yield World(database)
    await database.close()
