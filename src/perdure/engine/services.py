"""What the parts of one engine share: the store, the clock, wake-ups and instruments."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from perdure.clock import Clock
from perdure.engine import subjects
from perdure.engine.database.dispatch import Dispatched
from perdure.engine.database.keys import Keys
from perdure.engine.metrics import EngineMetrics
from perdure.engine.options import EngineOptions
from perdure.engine.tracing import EngineTracing
from perdure.ids import Id
from perdure.kv import Database
from perdure.pubsub import Doorbell, PubSub

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.engine.executors import Executors
    from perdure.engine.worker import Slot, Worker

__all__ = ["Services"]


@dataclass(slots=True)
class Services:
    """One engine's shared parts. `thread` is the thread of its event loop."""

    database: Database
    keys: Keys
    clock: Clock
    pubsub: PubSub
    doorbell: Doorbell
    options: EngineOptions
    metrics: EngineMetrics
    tracing: EngineTracing
    log: FilteringBoundLogger
    random: random.Random
    random_bytes: Callable[[int], bytes]
    executors: Executors
    client: Client = field(init=False)
    worker: Worker | None = None
    thread: int = field(default_factory=threading.get_ident)

    def new_id(self) -> Id:
        """Return a fresh id from the injected source of randomness."""
        return Id.new(random_bytes=self.random_bytes)

    def announce(
        self, workflow_id: Id, *, woken: Iterable[str] = (), worker: Id | None = None
    ) -> None:
        """Tell whoever may care: workers of the `woken` names, and the worker that runs it now."""
        self.doorbell.ring(*sorted(woken))
        if worker is not None:
            self.pubsub.publish(subjects.worker(worker), bytes(workflow_id))

    def announce_new(self, name: str, outcome: Dispatched, slot: Slot | None) -> None:
        """Start a workflow that was created for a slot of our own worker, or tell the workers."""
        if slot is not None and outcome.taken is not None:
            slot.start(*outcome.taken)
        elif outcome.created:
            self.doorbell.ring(name)

    def announce_end(self, workflow_id: Id, woken: Iterable[str]) -> None:
        """Tell those who wait for a result, and the workers of parents that were woken."""
        self.pubsub.publish(subjects.closed(workflow_id))
        self.doorbell.ring(*sorted(woken))
