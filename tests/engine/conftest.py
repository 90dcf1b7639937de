"""The labs of the tests of the programming model; each exists with and without a working bus."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.lab import Lab, real, virtual

buses = pytest.fixture(params=[False, True], ids=["bus", "deaf"])


@buses
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A store in memory and a clock that moves by itself."""
    lab = virtual(deaf=request.param)
    await lab.open()
    yield lab
    await lab.close()


@buses
async def slow_lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A store in memory and real time, for code that runs in threads and processes."""
    lab = real(deaf=request.param)
    await lab.open()
    yield lab
    await lab.close()


@buses
async def disk_lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    """A RocksDB store and real time."""
    lab = real(deaf=request.param, store=str(tmp_path / "store"))
    await lab.open()
    yield lab
    await lab.close()
