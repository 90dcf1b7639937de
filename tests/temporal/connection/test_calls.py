"""What a server sees of calls, and what a caller sees of answers, on both cores."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.temporal.support.cores import on_both_cores

# Task polls belong to workers, whose deadline both cores agree on; users do not call them.
TASK_POLLS = [f"Workflow poll_{kind}_task_queue" for kind in ("activity", "nexus", "workflow")]


@functools.cache
def answers() -> tuple[Any, Any]:
    return on_both_cores("calls.py")


@pytest.mark.parametrize("part", ["every_rpc", "deadlines", "metadata", "statuses"])
def test_calls_are_as_on_the_compiled_core(part: str) -> None:
    compiled, ours = (answer[part] for answer in answers())
    for key, expected in compiled.items():
        if not key.startswith(tuple(TASK_POLLS)):
            assert (key, ours[key]) == (key, expected)
    assert ours.keys() == compiled.keys()


def test_all_rpcs_are_there() -> None:
    _, ours = answers()
    assert len(ours["every_rpc"]) == 2 * 218
