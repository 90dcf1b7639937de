"""One script on both cores: what the official SDK answers on the compiled one is the expectation.

A script is a program of `tests/temporal/compared` that prints one JSON value. It runs in two
processes, in the same way but for `python -m perdure.temporal` before its name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["SCRIPTS", "on_both_cores"]

SCRIPTS = Path(__file__).parents[1] / "compared"
_ROOT = Path(__file__).parents[3]
_CRASHES = 2
# The compiled core now and then aborts the process while its interpreter ends.
_AND_LEAVE = """
import os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


def on_both_cores(script: str, *arguments: str, one_by_one: bool = False) -> tuple[Any, Any]:
    """What the script printed on the compiled core, and on ours.

    Both run at the same time, unless they would be in each other's way.
    """
    with ThreadPoolExecutor(1 if one_by_one else 2) as threads:
        compiled = threads.submit(_expectation, script, arguments)
        ours = threads.submit(_printed, ["-m", "perdure.temporal"], script, arguments)
        return compiled.result(), ours.result()


class _Killed(Exception):
    """A process ended by a signal."""


def _expectation(script: str, arguments: tuple[str, ...]) -> Any:
    """What the compiled core says. It is asked again when it has crashed: that is no answer."""
    for _ in range(_CRASHES):
        try:
            return _printed(["-c", _AND_LEAVE], script, arguments)
        except _Killed:
            continue
    return _printed(["-c", _AND_LEAVE], script, arguments)


def _printed(runner: list[str], script: str, arguments: tuple[str, ...]) -> Any:
    done = subprocess.run(
        [sys.executable, *runner, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "GRPC_VERBOSITY": "NONE",
        },
        timeout=100,
    )
    if done.returncode < 0:
        raise _Killed(f"{runner} {script}: signal {-done.returncode}\n{done.stderr[-3000:]}")
    assert done.returncode == 0, (runner, done.stderr[-3000:])
    # The compiled core writes its log there, too.
    return json.loads(done.stdout.splitlines()[-1])
