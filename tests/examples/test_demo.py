"""The demo on a few packages, with kills: it proves its point and says so with its exit code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
PROVEN = [
    "every file has exactly one recorded result",
    "no finished activity ran twice",
    "only what was in flight at a kill ran again",
    "the totals equal those of a plain scan",
]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_two_kills_leave_no_mark(tmp_path: Path) -> None:
    finished = run("--packages", "asyncio,email,json", "--kills", "2", "--data", str(tmp_path))

    assert finished.returncode == 0, finished.stdout + finished.stderr
    for statement in PROVEN:
        assert f"holds  {statement}" in finished.stdout
    assert finished.stdout.count("killed (SIGKILL)") == 2
    assert len(re.findall(r"^worker \d+ started$", finished.stdout, re.MULTILINE)) == 3
    assert "---- worker killed ----" in finished.stdout
    assert (tmp_path / "activity-runs.log").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--packages", "json,no_such"], "no package no_such"),
        (["--kills", "-1"], "cannot be negative"),
        (["--data", str(DEMO.parent)], "is not empty"),
    ],
)
def test_bad_options_are_explained(options: list[str], complaint: str) -> None:
    finished = run(*options)

    assert finished.returncode == 2
    assert complaint in finished.stderr
