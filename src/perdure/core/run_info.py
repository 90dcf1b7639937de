"""What the machines know about the run and the worker they work for; fixed while it is cached."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core.versioning import BuildId, Versioning

__all__ = ["RunInfo"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """`has_sdk_metadata` is the server's capability of that name: without it no flag is written.

    `versioning` is this worker's own version.
    """

    namespace: str
    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    versioning: Versioning = field(default_factory=lambda: BuildId(""))
    has_sdk_metadata: bool = True
    sdk_name: str = "temporal-python"
    sdk_version: str = ""
