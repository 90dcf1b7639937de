"""Differential fuzzing: random workflow programs agree on our core and on the compiled one.

`comparison` says what agreeing means. A program that failed once is kept in `regressions.jsonl`.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from tests.core.support.official import needs_official_core
from tests.temporal.fuzz.comparison import both_cores, disagreements_of_all
from tests.temporal.fuzz.programs import some_programs

_REGRESSIONS = Path(__file__).with_name("regressions.jsonl")
_BATCH = 25

# Tasks of a workflow that is evicted before they begin are never awaited, and errors of abandoned
# ones are never asked for: that is the programs' doing.
pytestmark = [
    needs_official_core,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning"),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Failing activities and tasks are part of the programs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()  # what was never awaited is noticed here, where that is ignored


def _regressions() -> list[dict[str, Any]]:
    return [json.loads(line)["program"] for line in _REGRESSIONS.read_text().splitlines()]


async def _check(server: str, programs: list[dict[str, Any]]) -> None:
    async with both_cores(server) as cores:
        failures = await disagreements_of_all(cores, programs)
    shown = [
        "\n  ".join([json.dumps(program), *problems])
        for program, problems in zip(programs, failures, strict=True)
        if problems
    ]
    assert not shown, "\n".join(shown)


async def test_programs_that_failed_once_and_random_ones(server: str) -> None:
    await _check(server, [*_regressions(), *some_programs(22, seed=1)])


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_many_random_programs(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    for done in range(0, 500, _BATCH):
        seed = SystemRandom().randrange(10**9)
        with capsys.disabled():
            sys.stderr.write(f"\nprograms {done} to {done + _BATCH}, seed {seed}\n")
        await _check(server, some_programs(_BATCH, seed=seed))
