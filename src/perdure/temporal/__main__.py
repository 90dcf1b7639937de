"""`python -m perdure.temporal script.py [arguments]` or `... -m module [arguments]`.

Runs an unchanged program that uses the official SDK, on our core.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from perdure.temporal import install

_USAGE = "usage: python -m perdure.temporal (script.py | -m module) [arguments]"


def main(arguments: list[str]) -> None:
    match arguments:
        case ["-m", module, *rest]:
            install()
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *rest] if not script.startswith("-"):
            install()
            sys.argv = [script, *rest]
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(str(Path(script).absolute()), run_name="__main__")
        case _:
            raise SystemExit(_USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
