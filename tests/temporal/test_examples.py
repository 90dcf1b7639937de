"""The programs of examples/temporal, as they are, on both cores."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "temporal"

OUTPUT = {
    "hello.py": [
        "query: ['Hello, moon!', 'Hello, world!']",
        "result: ['Hello, moon!', 'Hello, world!']",
        "replayed without a difference",
    ],
    "cart.py": [
        "total: 6",
        "total: 9",
        "refused: there is no plum here",
        "query: {'apple': 3, 'pear': 1}",
        "paid: 9",
    ],
    "saga.py": [
        "booked train",
        "booked hotel",
        "['train-1', 'hotel-3']",
        "booked train",
        "booked hotel",
        "cancelled hotel-3",
        "cancelled train-1",
        "failed: no ship sails in winter",
    ],
    "replay_test.py": [
        "recorded: charged 12",
        "Payment: fits",
        "GuardedPayment: fits",
        "CarelessPayment: does not fit",
    ],
}


async def run(name: str, address: str, *flags: str) -> tuple[list[str], str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *flags,
        env={**os.environ, "TEMPORAL_ADDRESS": address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    # A core logs to standard output too, unless it is told otherwise.
    said = [line for line in out.decode().splitlines() if "sdk_core" not in line]
    return said, err.decode()


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(OUTPUT)


@pytest.mark.parametrize("name", OUTPUT)
async def test_both_cores_print_the_same(server: str, name: str) -> None:
    ours, compiled = await asyncio.gather(run(name, server), run(name, server, "--compiled"))
    assert ours[0] == OUTPUT[name], ours[1]
    assert compiled[0] == OUTPUT[name], compiled[1]


async def test_only_ours_shows_the_line_of_code(server: str) -> None:
    _, shown = await run("replay_test.py", server)
    assert "replay_test.py:" in shown
    assert "CarelessPayment.run" in shown
