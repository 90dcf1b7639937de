"""Prints what the SDK's core module offers: names, and the members of classes and modules."""

from __future__ import annotations

import json
import sys
from types import ModuleType

from temporalio.bridge import temporal_sdk_bridge


def members(thing: object) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


json.dump(
    {
        name: members(value) if isinstance(value, type | ModuleType) else callable(value)
        for name, value in vars(temporal_sdk_bridge).items()
        if not name.startswith("_")
    },
    sys.stdout,
)
