"""One script on both cores: what the official SDK answers on the compiled one is the expectation.

A script is a program of `tests/temporal/compared` that prints one JSON value. It runs in two
processes, in the same way but for `python -m perdure.temporal` before its name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["SCRIPTS", "on_both_cores"]

SCRIPTS = Path(__file__).parent / "compared"
_ROOT = Path(__file__).parents[2]
# The compiled core now and then aborts the process while its interpreter ends.
_AND_LEAVE = """
import os, runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


def on_both_cores(script: str, *arguments: str, **variables: str) -> tuple[Any, Any]:
    """What the script printed on the compiled core, and on ours."""
    compiled = _printed(["-c", _AND_LEAVE], script, arguments, variables)
    return compiled, _printed(["-m", "perdure.temporal"], script, arguments, variables)


def _printed(
    runner: list[str], script: str, arguments: tuple[str, ...], variables: dict[str, str]
) -> Any:
    done = subprocess.run(
        [sys.executable, *runner, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "GRPC_VERBOSITY": "NONE",
            **variables,
        },
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
