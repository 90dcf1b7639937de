"""The worker process as seen by the demo: start it, listen to it, kill it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from stdlib_index.worker import Line
from stdlib_index.workflows import Order

__all__ = ["Worker", "WorkerFailed"]

_EXAMPLES = Path(__file__).parents[1]
_LONGEST_LINE = 2**20


class WorkerFailed(Exception):
    """A worker ended by itself, and not well."""


class Worker:
    """A child process that runs the workflows, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader) -> None:
        self._process = process
        self._output = output
        self.pid = process.pid

    @classmethod
    async def start(cls, store: Path, order: Order) -> Worker:
        """Start one on the store in this folder."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stdlib_index.worker", str(store), msgspec.json.encode(order)),
            cwd=_EXAMPLES,
            limit=_LONGEST_LINE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        return cls(process, process.stdout)

    async def lines(self) -> AsyncIterator[Line]:
        """What it says, until it ends. Raises `WorkerFailed` when it fails."""
        async for line in self._output:
            yield msgspec.json.decode(line, type=Line)
        if code := await self._process.wait():
            raise WorkerFailed(f"the worker {self.pid} ended with exit code {code}")

    async def kill(self) -> None:
        """End it and its helper processes at once: no signal handler, no goodbye."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()
