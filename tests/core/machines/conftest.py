"""Counts which transitions of the tables the tests of this folder take.

The test that reports the rest runs last, and only when the whole folder runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.machines.machine import watch

HERE = Path(__file__).parent
TAKEN: set[tuple[str, int, int]] = set()
COVERAGE = "test_all_transitions_are_covered"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == HERE]
    collected = {item.path.name for item in here}
    is_whole = collected >= {path.name for path in HERE.glob("test_*.py")}
    for item in here:
        if item.name.startswith(COVERAGE):
            items.remove(item)
            if is_whole:
                items.append(item)


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    watch(lambda *transition: TAKEN.add(transition))
    yield
    watch(None)


@pytest.fixture
def taken() -> set[tuple[str, int, int]]:
    """(table, state, event) of all transitions so far."""
    return TAKEN
