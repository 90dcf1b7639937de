"""`perdure run` and `perdure registry`, on a real engine in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli import main

MODULE = '''
import asyncio
from perdure import Engine, Signal, activity, workflow

paid = Signal("paid", int)

@activity(timeout=600)
async def stubborn(ctx):
    ctx.heartbeat({"rows": 40})
    await asyncio.sleep(600)

@workflow
async def waits(ctx) -> int:
    """Wait for money.

    More about it.
    """
    ctx.log.info("waiting for money")
    return 2 * await ctx.listen(paid)

@workflow(name="holds_on", prune="none")
async def holds(ctx, count: int) -> None:
    await ctx.activity(stubborn)

engine = Engine("data", workflows=[waits, holds])

def make():
    return engine
'''


class Running:
    """`perdure run` in a process, and what it said so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "perdure.cli", "run", "shop:engine", *options]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.said = ""

    def wait_for(self, text: str) -> str:
        """Read on until a line contains `text`; gives that line."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}:\n{self.said}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(MODULE)
    return tmp_path


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    started = Running(folder, *options)
    # Nothing here takes long; a process that hangs must not hang the tests.
    watchdog = threading.Timer(60, started.process.kill)
    watchdog.start()
    try:
        started.wait_for("running; workflows: holds_on, waits")
        yield started
    finally:
        watchdog.cancel()
        started.process.kill()
        started.process.communicate()


def run(folder: Path, *arguments: str) -> Result:
    command = ["--data", str(folder / "data"), *arguments]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


def dispatch(folder: Path, name: str, value: str) -> str:
    """Start a workflow while no process owns the store."""
    code = (
        "import asyncio, json, sys\n"
        "from perdure import Engine\n"
        "async def start():\n"
        "    async with Engine('data', worker=False) as engine:\n"
        "        print((await engine.dispatch(sys.argv[1], json.loads(sys.argv[2]))).id)\n"
        "asyncio.run(start())\n"
    )
    started = subprocess.run(
        [sys.executable, "-c", code, name, value],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return started.stdout.strip()


def until(folder: Path, workflow_id: str, state: str) -> None:
    """Wait for a state, by asking again and again."""
    for _ in range(1000):
        if json.loads(run(folder, "get", workflow_id, "--json").stdout)["state"] == state:
            return
    raise AssertionError(f"{workflow_id} did not become {state}")


def test_a_worker_works_and_drains_on_sigterm(folder: Path) -> None:
    workflow_id = dispatch(folder, "waits", "null")
    with running(folder, "--metrics-port", "0") as worker:
        worker.wait_for("waiting for money")
        assert "metrics: http://" in worker.said
        run(folder, "signal", workflow_id, "paid", "21")
        until(folder, workflow_id, "complete")
        assert json.loads(run(folder, "get", workflow_id, "--json").stdout)["output"] == 42
        history = run(folder, "history", workflow_id).stdout
        assert "paid 21" in history

        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("SIGTERM: draining")
        worker.wait_for("stopped")
        assert worker.process.wait() == 0
    # The store was closed well: nobody owns it and nobody listens.
    assert not (folder / "data" / "admin.sock").exists()
    assert (folder / "data" / "owner").read_bytes() == b""


def test_metrics_are_served(folder: Path) -> None:
    with running(folder, "--metrics-port", "0") as worker:
        found = re.search(r"http://\S+", worker.said)
        assert found is not None
        with urllib.request.urlopen(found[0]) as page:
            text = page.read().decode()
    assert "perdure_worker_bumps_per_tick" in text
    assert "process_resident_memory_bytes" in text


def test_progress_of_a_heartbeat_is_seen_from_outside(folder: Path) -> None:
    workflow_id = dispatch(folder, "holds_on", "1")
    with running(folder):
        until(folder, workflow_id, "running")
        for _ in range(1000):
            listed = run(folder, "list").stdout
            if "activity stubborn" in listed:
                break
        assert 'activity stubborn attempt 1: {"rows": 40}' in listed
        assert '{"rows": 40}' in run(folder, "history", workflow_id).stdout


def test_a_second_signal_ends_it_at_once(folder: Path) -> None:
    workflow_id = dispatch(folder, "holds_on", "1")
    with running(folder) as worker:
        until(folder, workflow_id, "running")
        worker.process.send_signal(signal.SIGINT)
        worker.wait_for("SIGINT: draining")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("SIGTERM again")
        assert worker.process.wait() == 128 + signal.SIGTERM


def test_grace_bounds_the_draining(folder: Path) -> None:
    workflow_id = dispatch(folder, "holds_on", "1")
    with running(folder, "--grace", "0") as worker:
        until(folder, workflow_id, "running")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("stopped")
        assert worker.process.wait() == 0
    until(folder, workflow_id, "sleeping")


def test_a_store_is_the_engines_own_choice() -> None:
    result = CliRunner().invoke(main, ["--data", "elsewhere", "run", "shop:engine"])
    assert result.exit_code == 2
    assert "leave out --data" in result.stderr


def test_a_store_in_use_is_refused(folder: Path) -> None:
    with running(folder) as first:
        second = subprocess.run(
            [sys.executable, "-m", "perdure.cli", "run", "shop:make"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 3
        assert str(first.process.pid) in second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_refused_and_the_store_closed(folder: Path) -> None:
    with running(folder, "--metrics-port", "0") as first:
        found = re.search(r":(\d+)/metrics", first.said)
        assert found is not None
        other = folder / "other"
        other.mkdir()
        (other / "shop.py").write_text(MODULE)
        second = subprocess.run(
            [sys.executable, "-m", "perdure.cli", "run", "shop:engine", "--metrics-port", found[1]],
            cwd=other,
            capture_output=True,
            text=True,
            check=False,
        )
    assert second.returncode == 1
    assert found[1] in second.stderr
    assert (other / "data" / "owner").read_bytes() == b""


def test_registry(folder: Path) -> None:
    command = [sys.executable, "-m", "perdure.cli", "registry", "shop:engine"]
    table = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    answer = subprocess.run(
        [*command, "--json"], cwd=folder, capture_output=True, text=True, check=True
    )

    assert "Wait for money." in table.stdout
    holds, waits = json.loads(answer.stdout)
    assert (holds["name"], holds["input"], holds["output"]) == ("holds_on", "int", "None")
    assert (holds["prune"], holds["function"]) == ("none", "shop.holds")
    assert (waits["name"], waits["input"], waits["output"]) == ("waits", "None", "int")
    assert not (folder / "data").exists()


def test_a_module_that_fails_shows_its_own_traceback(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_dependency_of_mine\n")
    result = subprocess.run(
        [sys.executable, "-m", "perdure.cli", "run", "broken:engine"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "broken.py" in result.stderr
    assert "no_such_dependency_of_mine" in result.stderr
