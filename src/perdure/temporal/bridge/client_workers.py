"""The workers of one client: no two may compete for the same tasks under the same build."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.temporal.worker.settings import WorkerSettings

__all__ = ["ClientWorkers"]


class ClientWorkers:
    """Workers by identity of the object, with what they poll."""

    def __init__(self) -> None:
        self._workers: dict[object, WorkerSettings] = {}

    def register(self, worker: object, settings: WorkerSettings) -> None:
        """Add a worker; ValueError if another one of this client polls for the same."""
        for other in self._workers.values():
            if (
                other.namespace == settings.namespace
                and other.task_queue == settings.task_queue
                and other.versioning == settings.versioning
                and _kinds(other) & _kinds(settings)
            ):
                raise ValueError(
                    "Failed creating worker: registration of multiple workers with overlapping "
                    "worker task types on the same namespace, task queue, and deployment build ID "
                    f"not allowed (namespace {settings.namespace!r}, task queue "
                    f"{settings.task_queue!r})"
                )
        self._workers[worker] = settings

    def forget(self, worker: object) -> None:
        """Remove a worker, if it is there."""
        self._workers.pop(worker, None)


def _kinds(settings: WorkerSettings) -> set[str]:
    kinds = set()
    if settings.enable_workflows:
        kinds.add("workflow")
    if settings.enable_activities:
        kinds.add("activity")
    return kinds
