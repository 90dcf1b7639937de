"""What the workflow stream is told about its worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core.versioning import BuildId, Versioning

__all__ = ["StreamSettings", "eager_activity_limit"]


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of the worker that matter to workflows.

    `sticky_queue` is None when nothing is cached between tasks. `max_eager_activities` is 0 when
    activities must not start eagerly. `has_sdk_metadata` is the server's capability of that name.
    A server without `server_knows_build_ids` gets the build as a checksum of the program.
    `evict_after_replay` makes every run leave the cache once it has been replayed.
    """

    namespace: str
    task_queue: str
    identity: str
    max_cached_workflows: int = 1000
    sticky_queue: str | None = None
    sticky_schedule_to_start_timeout: float = 10.0
    versioning: Versioning = field(default_factory=lambda: BuildId(""))
    has_sdk_metadata: bool = True
    max_eager_activities: int = 3
    fail_workflow_on_nondeterminism: bool = False
    fail_workflow_on_nondeterminism_types: frozenset[str] = frozenset()
    ignore_evictions_on_shutdown: bool = False
    evict_after_replay: bool = False
    worker_instance_key: str = ""
    server_knows_build_ids: bool = True
    sdk_name: str = "temporal-python"
    sdk_version: str = ""


def eager_activity_limit(
    *, has_remote_activities: bool, max_task_queue_rate: float | None, configured: int
) -> int:
    """How many activities of one workflow task may start eagerly on this worker.

    None when the rate of the task queue is limited: the server could not keep to it.
    """
    if not has_remote_activities or max_task_queue_rate:
        return 0
    return configured
