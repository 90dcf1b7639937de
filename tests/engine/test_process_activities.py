"""Activities in other processes: they run there, cost one attempt when lost, end with it."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from perdure import Engine

MODULE = """
import os, signal, sys, time
from perdure import ActivityContext, WorkflowContext, activity, workflow

@activity(process=True)
def pid(ctx: ActivityContext) -> int:
    return os.getpid()

@activity(process=True, attempts=2, initial=0, jitter=0)
def die_once(ctx: ActivityContext) -> int:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt

@activity(process=True)
def linger(ctx: ActivityContext) -> None:
    print(os.getpid(), flush=True)
    time.sleep(60)

@workflow
async def where(ctx: WorkflowContext) -> int:
    return await ctx.activity(pid)

@workflow
async def unlucky(ctx: WorkflowContext) -> int:
    return await ctx.activity(die_once)

@workflow
async def stay(ctx: WorkflowContext) -> None:
    await ctx.activity(linger)
"""

PROGRAM = """
import asyncio
from process_activities import stay
from perdure import Engine

async def main():
    async with Engine("memory:", workflows=[stay]) as engine:
        await (await engine.dispatch(stay)).result()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that other processes can import too."""
    (tmp_path / "process_activities.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "process_activities", raising=False)
    return importlib.import_module("process_activities")


async def test_it_runs_in_another_process(module: ModuleType) -> None:
    async with Engine("memory:", workflows=[module.where]) as engine:
        handle = await engine.dispatch(module.where)
        assert await handle.result(timeout=30) != os.getpid()


async def test_a_killed_process_costs_one_attempt(module: ModuleType) -> None:
    async with Engine("memory:", workflows=[module.unlucky]) as engine:
        handle = await engine.dispatch(module.unlucky)
        assert await handle.result(timeout=30) == 2


def test_a_process_ends_when_its_engine_is_killed(module: ModuleType, tmp_path: Path) -> None:
    del module
    (tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None
        helper = int(engine.stdout.readline())
        os.kill(engine.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while _alive(helper):
        assert time.monotonic() < deadline, "the helper process outlived its engine"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
