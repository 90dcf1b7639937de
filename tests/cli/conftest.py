"""A store in a folder with a few workflows, and ways to run the command on it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.engine.admin.world import World

from perdure.cli import main
from perdure.clock import SYSTEM_CLOCK, VirtualClock
from perdure.codec import encode
from perdure.engine.database import finish
from perdure.engine.database.rows import WakeConditions
from perdure.engine.history.events import (
    ActivityEvent,
    AttemptFailure,
    Event,
    LoopEvent,
    SleepEvent,
)
from perdure.engine.history.failure import Failure
from perdure.kv import open_database
from perdure.pubsub import MemoryPubSub

OWNER = """
import asyncio, sys
from pathlib import Path
from perdure.clock import SYSTEM_CLOCK
from perdure.engine.admin import Admin, AdminServer
from perdure.engine.database.keys import Keys
from perdure.kv import open_database
from perdure.pubsub import MemoryPubSub

async def own(folder, listen):
    database = await open_database(folder)
    admin = Admin(database, Keys(), MemoryPubSub(), SYSTEM_CLOCK)
    if listen:
        await AdminServer(admin, Path(folder)).start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(own(sys.argv[1], sys.argv[2] == "listen"))
"""


@dataclass
class Store:
    """A folder with a store, and the ids of the workflows in it."""

    folder: Path
    waiting: str
    dead: str
    complete: str
    busy: str

    def run(self, *arguments: str) -> Result:
        """Run the command on this store, in this process."""
        environment = {"PERDURE_DATA": str(self.folder)}
        return CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)

    def json(self, *arguments: str) -> Any:
        """Run a command that succeeds, and read its answer."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    @contextmanager
    def owned(self, *, listening: bool) -> Iterator[subprocess.Popen[str]]:
        """Another process owns the store while the block runs."""
        mode = "listen" if listening else "silent"
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(self.folder), mode],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            yield owner
        finally:
            owner.send_signal(signal.SIGKILL)
            owner.communicate()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    folder = tmp_path / "data"
    return asyncio.run(_filled(folder))


async def _filled(folder: Path) -> Store:
    database = await open_database(str(folder))
    now = SYSTEM_CLOCK.now()
    world = World(database, VirtualClock(now), MemoryPubSub())
    waiting = await world.dispatch(value={"order": 7}, tags={"customer": "42", "tries": 1})
    lease = await world.lease(waiting)
    await world.record(lease, _steps(now))
    await world.suspend(lease, WakeConditions(deadline=now + 3_600_000, signals=("paid",)))
    dead = await world.dispatch()
    failure = Failure("shop.money.CardRefused", "card refused\x1b[31m", stack="Traceback: card\n")
    await finish.fail(database, world.keys, await world.lease(dead), failure, now)
    complete = await world.complete({"done": True})
    busy = await world.dispatch()
    await world.lease(busy)
    await database.close()
    return Store(folder, str(waiting), str(dead), str(complete), str(busy))


def _steps(now: int) -> list[tuple[str, Event]]:
    failures = [AttemptFailure("TimeoutError", "too slow", now)] * 3
    events: dict[str, Event] = {
        "{1}": ActivityEvent(
            1, now - 1500, now, name="charge", input=encode({"order": 7}), output=encode("ok"),
            attempts=4, failures=failures,
        ),
        "{2}": SleepEvent(1, now, now, deadline=now + 3_600_000),
        "{3}": LoopEvent(1, now, now, iteration=12, state=encode({"seen": 120})),
        "{3, 13, 1}": ActivityEvent(
            1, now, now, name="copy", retry_at=now, progress=encode({"rows": 40})
        ),
    }  # fmt: skip
    return list(events.items())
