"""Runs each measurement in a child process with a fresh data folder.

A child that fails or takes too long costs only its own remaining figures: what it reported before
is kept, and the failure is part of the report.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure, Note, parse_line
from benchmarks.plan import CACHE, ROOT

__all__ = ["Report", "run_measurement"]

_TIMEOUT = 300.0


@dataclass(slots=True)
class Report:
    """Everything the children said."""

    figures: list[Figure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run_measurement(name: str, quick: bool, report: Report, say: Callable[[str], None]) -> None:
    """Run the measurement `name` and add what it finds to `report`; `say` gets progress lines."""
    CACHE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        status = _run_child(name, folder, quick, report, say)
    finally:
        shutil.rmtree(folder)
    if status != 0:
        report.failures.append(f"{name}: ended with status {status}; its table is incomplete")
        say(f"{name}: FAILED (status {status})")


def _run_child(
    name: str,
    folder: Path,
    quick: bool,
    report: Report,
    say: Callable[[str], None],
) -> int:
    command = [sys.executable, "-m", "benchmarks.child", name, str(folder)]
    process = subprocess.Popen(
        command + ["--quick"] * quick,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    alarm = threading.Timer(_TIMEOUT, _kill_group, [process])
    alarm.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            _take(name, line, report, say)
        return process.wait()
    finally:
        alarm.cancel()
        if process.poll() is None:
            _kill_group(process)
            process.wait()


def _kill_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _take(name: str, line: str, report: Report, say: Callable[[str], None]) -> None:
    match parse_line(line):
        case Figure() as figure:
            report.figures.append(figure)
        case Note() as remark:
            if remark not in report.notes:
                report.notes.append(remark)
        case None:
            say(f"{name} | {line.rstrip()}")
        case progress:
            say(f"{name}: {progress.text}")
