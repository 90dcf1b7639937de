"""One case on one core: `python -m benchmarks.temporal_script CORE CASE [ARGUMENT...]`.

The core of a process is chosen before `temporalio` is imported, so every case has a process of its
own. What it found is printed as one line of JSON, marked so that logs do not matter. The case
`importing` is the time until client and worker are imported.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from time import perf_counter

__all__ = ["RESULT_MARK"]

RESULT_MARK = "@result "


def main(core: str, case: str, arguments: list[str]) -> None:
    """Choose the core, run the case, print what it found."""
    started = perf_counter()
    if core == "perdure":
        import perdure.temporal

        perdure.temporal.install()
    for module in ("temporalio.client", "temporalio.worker"):
        importlib.import_module(module)
    imported = perf_counter()
    if case == "importing":
        found = {"seconds": imported - started}
    else:
        cases = importlib.import_module("benchmarks.temporal_cases")
        found = asyncio.run(getattr(cases, case)(*arguments))
    sys.stdout.write(f"{RESULT_MARK}{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
