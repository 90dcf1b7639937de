"""Commits whose outcome nobody heard: what may be repeated is, and nothing happens twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.engine.database.world import BRANCH, World, at

from perdure.engine.database import finish, inspect, steps
from perdure.engine.database.rows import Phase
from perdure.kv import Database
from perdure.kv.errors import CommitUnknown
from perdure.kv.faults import Faults
from perdure.kv.memory import MemoryDriver


@pytest.fixture
async def faulty() -> AsyncIterator[tuple[World, Faults]]:
    driver = MemoryDriver()
    database = Database(driver)
    yield World(database), driver.faults
    await database.close()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_dispatch_is_repeated(faulty: tuple[World, Faults], applied: bool) -> None:
    world, faults = faulty
    faults.unknown(applied=applied, name="dispatch")
    workflow_id = await world.dispatch(unique="key")
    assert [lease.workflow_id for lease in await world.take()] == [workflow_id]
    assert await world.counts() == {"running": 1}


@pytest.mark.parametrize("applied", [False, True])
async def test_a_step_is_repeated(faulty: tuple[World, Faults], applied: bool) -> None:
    world, faults = faulty
    lease = await world.run()
    faults.unknown(applied=applied, name="write_event")
    await steps.write_event(world.db, lease, at(1), BRANCH)
    assert len(await inspect.history_rows(world.db, world.keys, lease.workflow_id)) == 1


@pytest.mark.parametrize("applied", [False, True])
async def test_an_end_is_not_repeated_blindly(faulty: tuple[World, Faults], applied: bool) -> None:
    """The caller looks; so does a publisher, whose signal would otherwise be there twice."""
    world, faults = faulty
    lease = await world.run()
    faults.unknown(applied=applied, name="publish")
    with pytest.raises(CommitUnknown):
        await world.publish(lease.workflow_id)
    assert (await world.gauges()).signals == ({"paid": 1} if applied else {})
    faults.unknown(applied=applied, name="complete")
    with pytest.raises(CommitUnknown):
        await finish.complete(world.db, world.keys, lease, b"", world.now)
    expected = Phase.COMPLETE if applied else Phase.RUNNING
    assert await world.phase(lease.workflow_id) is expected
