"""Several nodes on one store under one virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.clock import VirtualClock
from perdure.ids import Id
from perdure.kv import Database, Subspace
from perdure.kv.memory import MemoryDriver


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    # Conflicts back off in real time: nobody moves the virtual clock while a test waits for them.
    db = Database(MemoryDriver())
    yield db
    await db.close()


@pytest.fixture
def space() -> Subspace:
    return Subspace(("nodes",))


@pytest.fixture
def nodes() -> list[Id]:
    return [Id(b"\x01" + number.to_bytes(18, "big")) for number in range(5)]
