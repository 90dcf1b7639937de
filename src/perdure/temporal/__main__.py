"""`python -m perdure.temporal script.py [arguments]` or `... -m module [arguments]`.

Runs an unchanged program that uses the official SDK, on our core. What is wrong with the call
itself is said in a line, with the exit status that Python has for it.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import NoReturn

from perdure.temporal import install
from perdure.temporal.errors import PackageMissing

_USAGE = "usage: python -m perdure.temporal (script.py | -m module) [arguments]"
_HELP = f"""{_USAGE}

Runs a program that uses the official Temporal SDK (temporalio), unchanged, on perdure's core in
Python instead of the SDK's compiled one. Options of Python itself go before `-m perdure.temporal`.
"""


def main(arguments: list[str]) -> None:
    match arguments:
        case ["-h" | "--help", *_]:
            sys.stdout.write(_HELP)
        case ["-m", module, *rest]:
            if not _exists(module):
                _refuse(f"no module named {module}", status=1)
            _install()
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *rest] if not script.startswith("-"):
            if not Path(script).exists():
                _refuse(f"can't open file {script!r}: no such file", status=2)
            _install()
            sys.argv = [script, *rest]
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(str(Path(script).absolute()), run_name="__main__")
        case _:
            _refuse(_USAGE, status=2)


def _install() -> None:
    try:
        install()
    except PackageMissing as error:
        _refuse(error.message, status=1)


def _exists(module: str) -> bool:
    """Whether the top-level package is there; importing a program's package is left to its run."""
    package = module.partition(".")[0]
    return bool(package) and importlib.util.find_spec(package) is not None


def _refuse(reason: str, *, status: int) -> NoReturn:
    sys.stderr.write(f"{reason}\n")
    raise SystemExit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
