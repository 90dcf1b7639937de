"""What suppliers of slots are told, in the types that the official SDK imports from its core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActivitySlotInfo",
    "CustomSlotSupplier",
    "LocalActivitySlotInfo",
    "NexusSlotInfo",
    "SlotDeploymentVersion",
    "SlotMarkUsedCtx",
    "SlotReleaseCtx",
    "SlotReserveCtx",
    "WorkflowSlotInfo",
]


class SlotDeploymentVersion(dict[str, str]):
    """The version of a worker as the compiled core gives it, and as the SDK's types promise it."""

    def __init__(self, deployment_name: str, build_id: str) -> None:
        super().__init__(deployment_name=deployment_name, build_id=build_id)

    @property
    def deployment_name(self) -> str:
        """Empty for a worker that belongs to no deployment."""
        return self["deployment_name"]

    @property
    def build_id(self) -> str:
        return self["build_id"]


@dataclass(frozen=True, slots=True)
class SlotReserveCtx:
    """For whom a slot is wanted; `slot_type` is workflow, activity, local-activity or nexus."""

    slot_type: str
    task_queue: str
    worker_identity: str
    worker_build_id: str
    worker_deployment_version: SlotDeploymentVersion
    is_sticky: bool


@dataclass(frozen=True, slots=True)
class WorkflowSlotInfo:
    workflow_type: str
    is_sticky: bool


@dataclass(frozen=True, slots=True)
class ActivitySlotInfo:
    activity_type: str


@dataclass(frozen=True, slots=True)
class LocalActivitySlotInfo:
    activity_type: str


@dataclass(frozen=True, slots=True)
class NexusSlotInfo:
    service: str
    operation: str


@dataclass(frozen=True, slots=True)
class SlotMarkUsedCtx:
    slot_info: Any
    permit: Any


@dataclass(frozen=True, slots=True)
class SlotReleaseCtx:
    slot_info: Any
    permit: Any


class CustomSlotSupplier:
    """The SDK's wrapper of a supplier its user wrote."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
