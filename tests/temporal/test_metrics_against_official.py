"""The metrics of a worker, and the text of a Prometheus endpoint, on both cores.

The same program runs in two processes, one with the compiled core and one with ours.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from perdure.temporal.bridge.core_metrics import CATALOGUE

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 90
_LONG = 60_000

Series = tuple[str, int, str | None, str | None, tuple[tuple[str, Any], ...]]


async def run(module: str, *arguments: str) -> str:
    """What a program of this folder prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"tests.temporal.{module}",
        *arguments,
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), _TIMEOUT)
    assert process.returncode == 0, err.decode()
    return out.decode()


def series(printed: str) -> dict[Series, list[float]]:
    """All values of each metric, kind, unit, description and set of labels."""
    found: dict[Series, list[float]] = defaultdict(list)
    for update in json.loads(printed):
        labels = tuple(sorted(update["labels"].items()))
        key = (update["name"], update["kind"], update["unit"], update["description"], labels)
        found[key].append(update["value"])
    return found


def counted(found: dict[Series, list[float]]) -> dict[Series, float]:
    """The sums of the counters that depend on nothing but the program."""
    return {
        key: sum(values)
        for key, values in found.items()
        if key[1] == 0 and not {"temporal_long_request", "temporal_request"} & {key[0]}
    }


async def test_a_worker_records_what_the_official_core_records(server: str) -> None:
    official, ours = (
        series(printed)
        for printed in await asyncio.gather(
            run("metrics_sample", server), run("metrics_sample", server, "perdure")
        )
    )
    assert set(ours) == set(official)
    assert counted(ours) == counted(official)
    for (name, kind, unit, description, labels), values in ours.items():
        if name.startswith("temporal_"):
            metric = CATALOGUE[name.removeprefix("temporal_")]
            assert (kind, description) == (metric.kind, metric.description)
        assert all(type(value) is int for value in values), name
        if kind == 2:
            assert unit == "ms"
            assert all(0 <= value < _LONG for value in values), (name, labels)
        if kind == 1 and not name.endswith("_available"):
            assert values[-1] == 0, f"{name} {labels} ends with {values[-1]}"


async def test_the_prometheus_text_is_the_official_one() -> None:
    official, ours = await asyncio.gather(
        run("prometheus_sample"), run("prometheus_sample", "perdure")
    )
    assert ours.splitlines() == official.splitlines()
    assert len(ours.splitlines()) > 100
