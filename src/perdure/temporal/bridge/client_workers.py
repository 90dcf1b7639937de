"""The workers of one client.

No two may compete for the same tasks under the same build of a deployment, and one of them may
take the first task of a workflow that its client starts (an eager start).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from perdure.temporal.slots.dealer import Permit
    from perdure.temporal.worker.settings import WorkerSettings

__all__ = ["ClientWorker", "ClientWorkers"]


class ClientWorker(Protocol):
    """A worker, as its client knows it."""

    def try_reserve_workflow(self) -> Permit | None:
        """A slot for a workflow task that may come, if there is one now."""

    def deliver_workflow(self, task: Any, permit: Permit) -> None:
        """The first task of a workflow, which came with the answer to its start."""


class ClientWorkers:
    """Live workers and what they poll; one that was never run goes with its last reference."""

    def __init__(self) -> None:
        self._workers: weakref.WeakKeyDictionary[ClientWorker, WorkerSettings] = (
            weakref.WeakKeyDictionary()
        )

    def register(self, worker: ClientWorker, settings: WorkerSettings) -> None:
        """Add a worker; RuntimeError if another one of this client polls for the same."""
        for other in self._workers.values():
            if _place(other) == _place(settings) and _kinds(other) & _kinds(settings):
                raise RuntimeError(
                    "Failed creating worker\n\nCaused by:\n"
                    "    Registration of multiple workers with overlapping worker task types on "
                    "the same namespace, task queue, and deployment build ID not allowed: "
                    f"namespace {settings.namespace!r}, task queue {settings.task_queue!r}, "
                    f"deployment build ID {_deployed_build(settings)!r}"
                )
        self._workers[worker] = settings

    def reserve(
        self, namespace: str, task_queue: str
    ) -> tuple[ClientWorker, WorkerSettings, Permit] | None:
        """A worker for these tasks that has a free slot, and the slot."""
        for worker, settings in self._workers.items():
            if (settings.namespace, settings.task_queue) == (namespace, task_queue):
                permit = worker.try_reserve_workflow()
                if permit is not None:
                    return worker, settings, permit
        return None

    def forget(self, worker: ClientWorker) -> None:
        """Remove a worker, if it is there."""
        self._workers.pop(worker, None)


def _place(settings: WorkerSettings) -> tuple[str, str, str | None]:
    return settings.namespace, settings.task_queue, _deployed_build(settings)


def _deployed_build(settings: WorkerSettings) -> str | None:
    """Builds are told apart only in deployments: the server treats all others of a queue alike."""
    return None if settings.deployment_options() is None else settings.build_id


def _kinds(settings: WorkerSettings) -> set[str]:
    kinds = set()
    if settings.enable_workflows:
        kinds.add("workflow")
    if settings.enable_activities:
        kinds.add("activity")
    if settings.enable_nexus:
        kinds.add("nexus")
    return kinds
