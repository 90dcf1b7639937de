"""The same work on DBOS, a Python durable-execution library that also runs inside the process.

DBOS gets a virtual environment of its own in the cache folder, so that its dependencies never meet
ours, and one fresh process and database per cell. It is measured twice: with the settings it comes
with, and with the two that made it faster when we searched in its favour (SQLite's write-ahead log,
still syncing every commit, and one executor thread instead of as many as there are calls: SQLite
has one writer, so more threads only wait for its lock). Ratios are taken against the better one.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figures import note
from benchmarks.plan import CACHE, ROOT, Plan

__all__ = ["VARIANTS", "VERSION", "measure"]

VERSION = "3.4.0"
VARIANTS = ("default", "tuned")

_CELL_TIMEOUT = 90.0


def measure(plan: Plan) -> None:
    """Build the peer's environment if needed, then report every cell of both variants."""
    python = _environment()
    for variant in VARIANTS:
        for concurrency in plan.concurrencies:
            for activities in plan.activities:
                note(f"DBOS ({variant}), {concurrency} workflows x {activities} activities")
                folder = plan.folder / f"{variant}-{concurrency}-{activities}"
                folder.mkdir()
                arguments = [variant, concurrency, activities, plan.seconds, folder]
                subprocess.run(
                    [python, "-m", "benchmarks.peer_dbos_script", *map(str, arguments)],
                    check=True,
                    cwd=ROOT,
                    timeout=_CELL_TIMEOUT,
                )


def _environment() -> str:
    folder = CACHE / f"dbos-{VERSION}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    if not stamp.exists():
        note(f"installing dbos {VERSION} into {folder.relative_to(ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"dbos=={VERSION}"], check=True)
        stamp.touch()
    return str(python)
