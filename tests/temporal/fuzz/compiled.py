"""The compiled core, in a process of its own.

`python -m tests.temporal.fuzz.compiled SERVER QUEUE` runs the workers of a `Host` and obeys the
requests on its standard input, one JSON object a line; each answer has the number of its request.
The compiled core logs to the file that is standard output, so that is moved out of the way.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

from tests.temporal.fuzz.host import Host, host, quiet_client

__all__ = ["CompiledHost", "compiled_host"]

_ROOT = Path(__file__).parents[3]
_LIMIT = 1 << 28


class CompiledHost:
    """A `Host` in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def evict(self, run_id: str) -> None:
        await self._ask("evict", run_id=run_id)

    async def replay(self, histories: dict[str, list[str]], *, later: bool) -> dict[str, Any]:
        answer = await self._ask("replay", histories=histories, later=later)
        assert isinstance(answer, dict)
        return answer

    async def _ask(self, method: str, **arguments: object) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        line = json.dumps({"number": number, "method": method, "arguments": arguments})
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()
        return await answer

    async def listen(self) -> None:
        """Take in the answers until the process ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            self._answers.pop(answer["number"]).set_result(answer["answer"])
        for waiting in self._answers.values():
            waiting.set_exception(EOFError("the process of the compiled core ended"))


@asynccontextmanager
async def compiled_host(server: str, prefix: str) -> AsyncIterator[CompiledHost]:
    """The compiled core's process, as long as the context lasts."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.temporal.fuzz.compiled",
        server,
        prefix,
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LIMIT,
    )
    host = CompiledHost(process)
    listening = asyncio.create_task(host.listen())
    try:
        await host.evict("no such run")  # answered when its workers are there
        yield host
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
        await listening


async def _serve(host: Host, answers: TextIO) -> None:
    reader = asyncio.StreamReader(limit=_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        while line := await reader.readline():
            tasks.create_task(_obey(host, json.loads(line), answers))


async def _obey(host: Host, request: dict[str, Any], answers: TextIO) -> None:
    answer = await getattr(host, request["method"])(**request["arguments"])
    answers.write(json.dumps({"number": request["number"], "answer": answer}) + "\n")
    answers.flush()


async def _main(server: str, prefix: str) -> None:
    logging.disable(logging.WARNING)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        async with host(await quiet_client(server), prefix) as workers:
            await _serve(workers, answers)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
