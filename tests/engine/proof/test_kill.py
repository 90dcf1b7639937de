"""A process that runs workflows on RocksDB is killed at any moment and loses nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def kill(*arguments: str) -> str:
    """Run `tests.soak.engine_crash`, which needs to be a program of its own; return its report."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.engine_crash", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_six_kills_lose_nothing() -> None:
    assert "6 kills" in kill("--kills", "6")


@pytest.mark.soak
def test_a_hundred_kills_lose_nothing() -> None:
    assert "all ended right" in kill("--kills", "100")
