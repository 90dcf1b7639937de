"""The engine: one object that opens a store, dispatches workflows and runs a worker.

`async with Engine("rocksdb:./data", workflows=[...]) as engine:` is all it takes. Several engines
may share one store in one process by sharing one `Database`; each is then a worker of its own.
"""

from __future__ import annotations

import asyncio
import os
import random as random_module
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.engine import subjects
from perdure.engine.admin import Admin, AdminServer
from perdure.engine.client import Client, MessageSubscription
from perdure.engine.database.keys import Keys
from perdure.engine.definitions import Message, Operation, Workflow
from perdure.engine.errors import EngineNotRunning
from perdure.engine.executors import Executors
from perdure.engine.handle import Handle
from perdure.engine.log import engine_logger
from perdure.engine.metrics import EngineMetrics
from perdure.engine.options import EngineOptions
from perdure.engine.registry import Registry
from perdure.engine.services import Services
from perdure.engine.tags import TagMapping
from perdure.engine.tracing import EngineTracing, observe_transactions
from perdure.engine.worker import Worker
from perdure.ids import Id
from perdure.kv import Database, open_database
from perdure.pubsub import Doorbell, MemoryPubSub, PubSub

__all__ = ["Engine"]

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")


class Engine:
    """Durable workflows on one store.

    `store` is "memory:", "rocksdb:PATH", a plain path, or an open `Database` (which the engine then
    does not close). `worker=False` gives an engine that dispatches and asks, but runs nothing.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Database,
        *,
        workflows: Iterable[Workflow[Any, Any]] = (),
        worker: bool = True,
        options: EngineOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pubsub: PubSub | None = None,
        random: random_module.Random | None = None,
        metrics: EngineMetrics | None = None,
        tracing: EngineTracing | None = None,
    ) -> None:
        self.store = store
        self.registry = Registry(workflows)
        self.options = options or EngineOptions()
        self._wants_worker = worker
        self._clock = clock
        self._pubsub = pubsub
        self._random = random or random_module.SystemRandom()
        self._random_bytes: Callable[[int], bytes] = (
            os.urandom if random is None else random.randbytes
        )
        self._metrics = metrics
        self._tracing = tracing
        self._services: Services | None = None
        self._worker: Worker | None = None
        self._admin: Admin | None = None
        self._server: AdminServer | None = None

    # -- life

    async def start(self) -> None:
        """Open the store and start the worker. Raises `StoreInUse` when another process owns it."""
        if self._services is not None:
            return
        store = self.store
        database = (
            store
            if isinstance(store, Database)
            else await open_database(os.fspath(store), clock=self._clock)
        )
        self._services = services = self._make_services(database)
        try:
            await self._start_parts(services)
        except BaseException:
            # Nobody will shut down an engine that did not start; the store must not stay owned.
            await asyncio.shield(self.shutdown(0))
            raise

    async def _start_parts(self, services: Services) -> None:
        database = services.database
        services.client = Client(services)
        self._admin = Admin(
            database,
            services.keys,
            services.pubsub,
            self._clock,
            registry=self.registry,
            random_bytes=self._random_bytes,
        )
        # A store in a folder has one owner, and that is the engine that opened it.
        owned = None if isinstance(self.store, Database) else database.path
        if owned is not None:
            self._server = AdminServer(self._admin, owned)
            await self._server.start()
        if self._wants_worker and self.registry.names:
            self._worker = services.worker = Worker(services, self.registry)
            await self._worker.start(alone=owned is not None)

    def _make_services(self, database: Database) -> Services:
        pubsub = self._pubsub
        if pubsub is None:
            # Engines that share a store in this process hear each other.
            pubsub = MemoryPubSub.shared(f"perdure:{database.path or id(database)}")
        metrics = self._metrics or EngineMetrics(clock=self._clock)
        tracing = self._tracing or EngineTracing(clock=self._clock)
        if database.observer is None:
            database.observer = observe_transactions(metrics.transactions, tracing)
        return Services(
            database=database,
            keys=Keys(),
            clock=self._clock,
            pubsub=pubsub,
            doorbell=Doorbell(pubsub, subjects.work()),
            options=self.options,
            metrics=metrics,
            tracing=tracing,
            log=engine_logger(),
            random=self._random,
            random_bytes=self._random_bytes,
            executors=Executors(self.options),
        )

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop gracefully: running workflows leave at their next step and go on elsewhere.

        Steps that are still running after `timeout` seconds (default: the option `shutdown`) are
        cancelled. The store is closed last.
        """
        services = self._services
        if services is None:
            return
        if self._worker is not None:
            await self._worker.stop(self.options.shutdown if timeout is None else timeout)
            self._worker = None
        if self._server is not None:
            await self._server.close()
            self._server = None
        services.executors.close()
        if self._pubsub is None:
            await services.pubsub.close()
        if not isinstance(self.store, Database):
            await services.database.close()
        self._services = None
        self._admin = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.shutdown())

    @property
    def services(self) -> Services:
        """The running parts. Raises `EngineNotRunning`."""
        if self._services is None:
            raise EngineNotRunning
        return self._services

    @property
    def admin(self) -> Admin:
        """Everything the command line can do. Raises `EngineNotRunning`."""
        if self._admin is None:
            raise EngineNotRunning
        return self._admin

    @property
    def metrics(self) -> EngineMetrics:
        """The Prometheus metrics; `metrics.registry` is what to expose."""
        return self.services.metrics

    @property
    def worker(self) -> Worker | None:
        """The worker inside this engine, if it runs one."""
        return self._worker

    # -- workflows

    @overload
    async def dispatch(
        self,
        workflow: Workflow[None, O],
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
        id: Id | None = ...,
        ray_id: Id | None = ...,
    ) -> Handle[O]: ...
    @overload
    async def dispatch(
        self,
        workflow: Workflow[I, O],
        input: I,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
        id: Id | None = ...,
        ray_id: Id | None = ...,
    ) -> Handle[O]: ...
    @overload
    async def dispatch(
        self,
        workflow: str,
        input: Any = ...,
        *,
        tags: TagMapping | None = ...,
        unique: bool | str = ...,
        id: Id | None = ...,
        ray_id: Id | None = ...,
    ) -> Handle[Any]: ...
    async def dispatch(
        self,
        workflow: Workflow[Any, Any] | str,
        input: Any = None,
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
        id: Id | None = None,
        ray_id: Id | None = None,
    ) -> Handle[Any]:
        """Store a new workflow, to be run by a worker that knows its name.

        `unique=True` returns an open workflow of this name whose tags include `tags` instead of a
        second one; `unique="key"` does so by a key of yours. Dispatching the same `id` again is
        harmless. Raises `UnknownWorkflow`, `PayloadError`, `LimitExceeded`, `InvalidName`,
        `WorkflowExists`.
        """
        if isinstance(workflow, Workflow) and self._worker is not None:
            self.registry.get(workflow.name)
        return await self.services.client.dispatch(
            workflow, input, tags=tags, unique=unique, id=id, ray_id=ray_id
        )

    @overload
    def handle(self, workflow: Workflow[Any, O], id: Id | str) -> Handle[O]: ...
    @overload
    def handle(self, workflow: None, id: Id | str) -> Handle[Any]: ...
    def handle(self, workflow: Workflow[Any, Any] | None, id: Id | str) -> Handle[Any]:
        """Return a handle on a workflow by its id; nothing is read. Raises `InvalidId`."""
        workflow_id = Id.parse(id) if isinstance(id, str) else id
        return Handle(self.services, workflow_id, workflow)

    async def find(
        self, workflow: Workflow[Any, O], tags: TagMapping | None = None
    ) -> Handle[O] | None:
        """Return an open workflow of this name with at least these tags, if there is one."""
        return await self.services.client.find(workflow, tags)

    async def signal(self, target: Id | str | Handle[Any], body: Any) -> Id:
        """Send a signal. Raises `WorkflowNotFound` and `WorkflowFinished`."""
        return await self.services.client.signal(target, body)

    # -- messages and operations

    def message(self, body: Any, topic: str = "") -> None:
        """Publish a message: at most once, to whoever listens now."""
        self.services.client.message(body, topic)

    def subscribe(self, kind: type[T] | Message[T], topic: str = "") -> MessageSubscription[T]:
        """Listen to messages of one type and topic from now on."""
        return self.services.client.subscribe(kind, topic)

    async def op(self, operation: Operation[I, O], input: I = None) -> O:  # type: ignore[assignment]
        """Call an operation. Raises what it raises, and `OperationTimedOut`."""
        return await self.services.client.op(operation, input)
