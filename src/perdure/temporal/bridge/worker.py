"""Workers, as the SDK holds them."""

from __future__ import annotations

from typing import Any

from perdure.temporal.errors import NotBuilt

__all__ = ["HistoryPusher", "WorkerRef", "new_replay_worker", "new_worker"]


class WorkerRef:
    """A worker."""


class HistoryPusher:
    """Feeds histories to a replay worker."""


def new_worker(runtime: Any, client: Any, config: Any) -> WorkerRef:
    raise NotBuilt("a worker")


def new_replay_worker(runtime: Any, config: Any) -> tuple[WorkerRef, HistoryPusher]:
    raise NotBuilt("a replay worker")
