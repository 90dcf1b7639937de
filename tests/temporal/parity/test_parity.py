"""Our core does what the compiled core did when `expected/` was recorded.

Each area is one test; its scenarios play at the same time. `python -m tests.temporal.parity.play`
plays them by hand, on either core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client
from tests.temporal.parity.play import AREAS, HEAVY, expected, unlike

_PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("area", AREAS)
async def test_the_answers_are_those_of_the_compiled_core(area: str, server: str) -> None:
    """Catalogue 7.3, the areas of the official suite: workflows, activities, workers, replays."""
    wanted = {name: answer for name, answer in expected(area).items() if name not in HEAVY}
    assert await unlike(await Client.connect(server), wanted) == []


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("core", ["compiled", "ours"])
def test_all_scenarios_on_both_cores(core: str, server: str) -> None:
    """What is recorded is still what the compiled core answers, the long scenarios included."""
    command = [sys.executable, "-m", "tests.temporal.parity.play", core, server]
    path = os.pathsep.join([str(_PROJECT / "src"), str(_PROJECT)])
    played = subprocess.run(
        command,
        cwd=_PROJECT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.stdout.splitlines()[-1:] == ["no difference"], played.stdout + played.stderr
