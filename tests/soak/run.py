"""Runs a program of this folder: each kills processes, and is therefore a process of its own."""

import subprocess
import sys
from pathlib import Path

__all__ = ["report_of"]

ROOT = Path(__file__).parents[2]


def report_of(program: str, *arguments: str) -> str:
    """Run `tests.soak.<program>` and return what it printed; it must end with status 0."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.soak.{program}", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
