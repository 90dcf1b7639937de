"""The world of the admin tests: a store in memory, on a clock that tests move."""

from collections.abc import AsyncIterator

import pytest
from tests.engine.admin.world import World

from perdure.clock import VirtualClock
from perdure.kv import open_database
from perdure.pubsub import MemoryPubSub


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = VirtualClock()
    database = await open_database("memory:", clock=clock)
    pubsub = MemoryPubSub()
    yield World(database, clock, pubsub)
    await pubsub.close()
    await database.close()
