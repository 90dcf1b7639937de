"""What the compiled core makes of random histories."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import temporalio.bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

__all__ = ["needs_official_core", "official_activations"]

_ROOT = Path(__file__).parents[3]

needs_official_core = pytest.mark.skipif(
    not list(Path(temporalio.bridge.__file__).parent.glob("temporal_sdk_bridge*.[sp][oy]*")),
    reason="the compiled core is not installed",
)


def official_activations(seed: int, count: int) -> list[list[WorkflowActivation]]:
    """The activations of `count` random histories, the eviction last.

    A process of its own runs the compiled core: in this one, ours may stand in its place.
    """
    shown = subprocess.run(
        [sys.executable, "-m", "tests.core.support.official_replay", str(seed), str(count)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [
        [WorkflowActivation.FromString(base64.b64decode(one)) for one in json.loads(line)]
        for line in shown.splitlines()
    ]
