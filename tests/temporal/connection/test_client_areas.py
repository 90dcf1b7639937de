"""The public API of `temporalio.client`, area by area, on both cores against one server."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.temporal.support.cores import on_both_cores

AREAS = [
    "starting",
    "ending",
    "chains",
    "messages",
    "updates_with_start",
    "histories",
    "lists",
    "schedules",
    "outside_activities",
    "standalone_activities",
    "deployments",
    "cloud",
]


@functools.cache
def answers(server: str) -> tuple[Any, Any]:
    return on_both_cores("client_areas.py", server)


@pytest.mark.parametrize("area", AREAS)
def test_an_area_answers_as_on_the_compiled_core(server: str, area: str) -> None:
    compiled, ours = answers(server)
    assert ours[area] == compiled[area]


def test_all_areas_are_asked(server: str) -> None:
    assert sorted(answers(server)[1]) == sorted(AREAS)
