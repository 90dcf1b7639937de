"""What a runtime and its worker show of themselves, on both cores."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from tests.temporal.support.cores import on_both_cores

from perdure.temporal.telemetry.core_metrics import CATALOGUE

_LONG = 60_000

Series = tuple[str, int, str | None, str | None, tuple[tuple[str, Any], ...]]


def series(updates: list[dict[str, Any]]) -> dict[Series, list[float]]:
    """All values of each metric, kind, unit, description and set of labels."""
    found: dict[Series, list[float]] = defaultdict(list)
    for update in updates:
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
    recorded = await asyncio.to_thread(on_both_cores, "metrics.py", server)
    official, ours = (series(updates) for updates in recorded)
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


def test_the_prometheus_text_is_the_official_one() -> None:
    official, ours = on_both_cores("prometheus.py")
    assert ours == official
    assert len(ours) > 100


def test_filters_and_formats_of_logs_are_the_official_ones() -> None:
    official, ours = on_both_cores("logs.py")
    assert ours == official
    assert sum("for debugging" in text for text in ours.values()) > 5


async def test_metrics_of_workflows_survive_replays(server: str) -> None:
    official, ours = await asyncio.to_thread(on_both_cores, "workflow_metrics.py", server)
    assert ours == official
    assert [update[4] for update in ours if update[0] == "own-counter"] == [1, 10, 100]


async def test_nexus_tasks_and_resources_have_the_official_metrics(server: str) -> None:
    official, ours = await asyncio.to_thread(on_both_cores, "nexus_metrics.py", server)
    assert ours == official
    for name in ("resource_slots_cpu_usage", "nexus_task_execution_failed", "NexusWorker"):
        assert any(name in line for line in ours), name


def test_every_attempt_of_a_call_is_measured_in_the_official_way() -> None:
    official, ours = on_both_cores("request_metrics.py")
    assert ours == official
    assert [["status_code", "TRANSPORT_ERROR"] in update for update in ours].count(True) == 1
