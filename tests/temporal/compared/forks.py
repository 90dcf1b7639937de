"""Prints what forked children may do with what their parent made; the argument is a server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Worker

SERVER = sys.argv[1]


@activity.defn
async def nothing() -> None:
    pass


def in_child(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a forked child got, which ends without any clean-up of its parent's things."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.new_event_loop().run_until_complete(work())
            found = "ok"
        except BaseException as error:
            text = (
                str(error).replace(str(os.getpid()), "CHILD").replace(str(os.getppid()), "PARENT")
            )
            found = f"{type(error).__name__}: {text}"
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return found


async def connect() -> Client:
    return await Client.connect(SERVER)


async def connect_with_own_runtime() -> None:
    await Client.connect(SERVER, runtime=Runtime(telemetry=TelemetryConfig()))


def answers() -> dict[str, Any]:
    early = in_child(connect_with_own_runtime)
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(connect())

    async def make_worker() -> Worker:
        return Worker(client, task_queue="forks", activities=[nothing])

    async def run_worker() -> None:
        await worker.run()

    async def call() -> None:
        await client.count_workflows()

    worker = loop.run_until_complete(make_worker())
    found = {
        "early": early,
        "create client": in_child(connect),
        "use client": in_child(call),
        "create worker": in_child(make_worker),
        "use worker": in_child(run_worker),
    }
    loop.run_until_complete(call())
    loop.close()
    found["own runtime"] = in_child(connect_with_own_runtime)
    return found


json.dump(answers(), sys.stdout)
