"""Random programs on both cores, by hand: `python -m perdure.temporal -m tests.temporal.fuzz`.

With `--seed` and `--count` the programs of a seed, with `--program` one from a file; `--shrink`
then looks for a smaller one on which the cores still disagree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment
from tests.temporal.fuzz.comparison import Cores, both_cores, disagreements_of_all
from tests.temporal.fuzz.programs import some_programs
from tests.temporal.fuzz.shrinking import shrunk

_BATCH = 25
_TRIES = 3


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _run(cores: Cores, programs: list[dict[str, Any]]) -> int:
    failed = 0
    for start in range(0, len(programs), _BATCH):
        batch = programs[start : start + _BATCH]
        problems = await disagreements_of_all(cores, batch)
        for program, of_it in zip(batch, problems, strict=True):
            if of_it:
                failed += 1
                _say("\n  ".join([json.dumps(program), *of_it]))
        _say(f"{start + len(batch)} programs, {failed} failed")
    return failed


async def _shrink(cores: Cores, program: dict[str, Any]) -> int:
    async def kinds(candidate: dict[str, Any]) -> set[str]:
        tries = await disagreements_of_all(cores, [candidate] * _TRIES)
        return {" ".join(problem.split()[:3]) for problems in tries for problem in problems}

    wanted = await kinds(program)

    async def fails(candidate: dict[str, Any]) -> bool:
        return not wanted.isdisjoint(await kinds(candidate))

    _say(f"fails with {wanted or 'nothing'}")
    if wanted:
        _say(json.dumps(await shrunk(program, fails, lambda one: _say(f"  {json.dumps(one)}"))))
    return len(wanted)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.temporal.fuzz", description=__doc__)
    parser.add_argument("--server", help="address of a server (default: one is started)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--program", type=Path, help="a file with one program as JSON")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if options.server is None:
        environment = await WorkflowEnvironment.start_local(
            dev_server_log_level="never",
            dev_server_startup_timeout=timedelta(seconds=60),
            dev_server_extra_args=["--search-attribute", "PerdureKeyword=Keyword"],
        )
        async with environment:
            options.server = environment.client.service_client.config.target_host
            return await _with_server(options)
    return await _with_server(options)


async def _with_server(options: argparse.Namespace) -> int:
    async with both_cores(options.server) as cores:
        if options.program is None:
            return await _run(cores, some_programs(options.count, options.seed))
        program = json.loads(options.program.read_text())
        return await (_shrink(cores, program) if options.shrink else _run(cores, [program]))


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(main())))
