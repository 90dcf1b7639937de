"""Acknowledged means durable and whole, whatever moment the process is killed at."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kill(*arguments: str) -> str:
    """Run `tests.soak.kv_crash`, which needs to be a program of its own, and return its report."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.kv_crash", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_ten_kills_lose_and_tear_nothing() -> None:
    assert "all there and whole" in kill("--kills", "10")


def test_a_store_that_acknowledges_early_is_found_out() -> None:
    assert "was acknowledged and is lost" in kill("--kills", "20", "--manner", "early")


def test_a_store_that_tears_transactions_is_found_out() -> None:
    assert "is not whole" in kill("--kills", "20", "--manner", "torn")


@pytest.mark.soak
def test_two_hundred_kills_lose_and_tear_nothing() -> None:
    assert "all there and whole" in kill("--kills", "200")
