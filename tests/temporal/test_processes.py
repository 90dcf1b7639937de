"""Forks, threads with loops of their own, several runtimes, and the end of the interpreter."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from tests.temporal.support.cores import on_both_cores

HEAD = """
import perdure.temporal
perdure.temporal.install()
import asyncio, sys, threading
from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.worker import Worker

@activity.defn
async def nothing() -> None: ...

async def connect() -> Client:
    return await Client.connect(sys.argv[1])

def worker(client: Client) -> Worker:
    return Worker(client, task_queue="processes", activities=[nothing])
"""
PROGRAMS = {
    "loops and threads": """
        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(connect())
        def use():
            asyncio.run(client.count_workflows())
        use()
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        unused = worker(client)
        loop.run_until_complete(client.count_workflows())
    """,
    "several runtimes, a failed connection and an interrupt": """
        async def main():
            for _ in range(3):
                runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig("WARN")))
                client = await Client.connect(sys.argv[1], runtime=runtime)
                await client.count_workflows()
            try:
                await Client.connect("127.0.0.1:1")
            except RuntimeError:
                pass
            async with worker(await connect()):
                raise KeyboardInterrupt
        Runtime.set_default(Runtime(telemetry=TelemetryConfig()))
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            pass
    """,
    "processes forked while calls are under way": """
        import multiprocessing
        async def call(client):
            while True:
                await client.count_workflows()
        async def main():
            client = await connect()
            busy = [asyncio.create_task(call(client)) for _ in range(3)]
            for _ in range(60):
                child = multiprocessing.get_context("fork").Process(target=int)
                child.start()
                while child.is_alive():
                    await asyncio.sleep(0.01)
                assert child.exitcode == 0, f"a forked process ended with {child.exitcode}"
            for task in busy: task.cancel()
        asyncio.run(main())
    """,
    "a worker in a thread that nobody stops": """
        async def main():
            running = asyncio.create_task(worker(await connect()).run())
            await asyncio.sleep(0.1)
            ready.set()
            await running
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
        assert ready.wait(20)
    """,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_ends_without_a_word(server: str, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(PROGRAMS[program]), server],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_forked_children_are_refused_as_on_the_compiled_core(server: str) -> None:
    """A child may make a runtime of its own; with our core only if its parent has not connected."""
    compiled, ours = on_both_cores("forks.py", server)
    late = ours.pop("own runtime")
    assert late.startswith("ForkedWithGrpc: process PARENT had used gRPC before it was forked")
    assert compiled.pop("own runtime") == "ok"
    assert ours == compiled
    assert ours["early"] == "ok"
    assert ours["use client"] == (
        "AssertionError: Cannot use client across forks (original runtime PID is PARENT, current "
        "is CHILD)"
    )
