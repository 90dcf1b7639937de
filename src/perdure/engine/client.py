"""What can be done to workflows from outside of them: dispatch, find, signal, publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.clock import wait
from perdure.codec import encode
from perdure.engine import subjects
from perdure.engine.context.outside import OperationContext
from perdure.engine.database.dispatch import Dispatch, dispatch
from perdure.engine.database.find import find
from perdure.engine.database.rows import PendingSignal, Prune
from perdure.engine.database.signals import publish
from perdure.engine.definitions import (
    Message,
    Operation,
    Workflow,
    check_name,
    message_and_body,
    message_of,
    require,
    signal_and_body,
)
from perdure.engine.errors import OperationTimedOut
from perdure.engine.handle import Handle
from perdure.engine.tags import TagMapping
from perdure.ids import Id
from perdure.pubsub import Stream

if TYPE_CHECKING:
    from perdure.engine.services import Services

__all__ = ["Client", "Envelope", "MessageSubscription"]

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A published message: its body and where it came from. `at` is in ms."""

    id: bytes
    ray_id: bytes
    topic: str
    at: int
    body: bytes


class Client:
    """The outside face of one engine. Bound to the engine's event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.loop = asyncio.get_running_loop()

    async def dispatch(
        self,
        workflow: Workflow[I, O] | str,
        input: I,
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
        id: Id | None = None,
        ray_id: Id | None = None,
    ) -> Handle[O]:
        """Store a new workflow and announce it. See `Engine.dispatch`."""
        services = self._services
        started = services.clock.monotonic()
        if isinstance(workflow, str):
            name, stored, prune = check_name("workflow", workflow), encode(input), Prune.ALL
        else:
            require(Workflow, workflow)
            name, stored, prune = (
                workflow.name,
                workflow.write_input(input),
                workflow.stored_prune,
            )
        slot = None if services.worker is None else services.worker.reserve(name)
        request = Dispatch(
            id=id or services.new_id(),
            name=name,
            input=stored,
            tags=dict(tags or {}),
            ray_id=ray_id or services.new_id(),
            unique=unique,
            prune=prune,
            worker=None if slot is None else slot.worker_id,
        )
        with slot or nullcontext():
            outcome = await dispatch(
                services.database, services.keys, request, services.clock.now()
            )
            services.announce_new(name, outcome, slot)
        services.metrics.dispatched(name, services.clock.monotonic() - started)
        return Handle(services, outcome.id, None if isinstance(workflow, str) else workflow)

    async def find(
        self, workflow: Workflow[Any, O] | str, tags: TagMapping | None = None
    ) -> Handle[O] | None:
        """Return a handle to an open workflow with this name and at least these tags."""
        services = self._services
        started = services.clock.monotonic()
        name = workflow if isinstance(workflow, str) else workflow.name
        found = await find(services.database, services.keys, name, dict(tags or {}))
        services.metrics.found(name, services.clock.monotonic() - started)
        if found is None:
            return None
        return Handle(services, found, None if isinstance(workflow, str) else workflow)

    async def signal(
        self, target: Id | str | Handle[Any], body: Any, *, ray_id: Id | None = None
    ) -> Id:
        """Put a signal into a workflow's queue and return the signal's id."""
        signal, value = signal_and_body(body)
        return await self.signal_stored(target, signal.name, signal.write(value), ray_id)

    async def signal_stored(
        self, target: Id | str | Handle[Any], name: str, body: bytes, ray_id: Id | None = None
    ) -> Id:
        """Like `signal`, for a body that is already in its stored form."""
        services = self._services
        started = services.clock.monotonic()
        workflow_id = _id_of(target)
        pending = PendingSignal(
            id=services.new_id(),
            name=name,
            body=body,
            ray_id=ray_id or services.new_id(),
            sent_at=services.clock.now(),
        )
        outcome = await publish(
            services.database, services.keys, workflow_id, pending, pending.sent_at
        )
        if outcome.woken is not None:
            services.doorbell.ring(outcome.woken)
        services.pubsub.publish(subjects.signalled(workflow_id))
        services.metrics.signal_sent(name, services.clock.monotonic() - started)
        return pending.id

    def message(self, body: Any, topic: str = "", *, ray_id: Id | None = None) -> None:
        """Publish a message now; at most once."""
        message, value = message_and_body(body)
        self.publish(message.name, topic, message.write(value), ray_id)

    def publish(
        self, name: str, topic: str, body: bytes, ray_id: Id | None, *, workflow: str = ""
    ) -> None:
        """Publish a message in its stored form; `workflow` is the name of the one that sent it."""
        services = self._services
        envelope = Envelope(
            bytes(services.new_id()),
            bytes(ray_id or services.new_id()),
            topic,
            services.clock.now(),
            body,
        )
        services.pubsub.publish(subjects.message(name, topic), msgspec.msgpack.encode(envelope))
        services.metrics.message_sent(name, workflow)

    def subscribe(self, kind: type[T] | Message[T], topic: str = "") -> MessageSubscription[T]:
        """Listen to messages of one type and topic from now on."""
        message = message_of(kind)
        stream = Stream(self._services.pubsub, subjects.message(message.name, topic))
        return MessageSubscription(stream, message)

    async def op(self, operation: Operation[I, O], input: I, *, ray_id: Id | None = None) -> O:
        """Call an operation under its time-out, with metrics and a span."""
        services = self._services
        ctx = OperationContext(self, ray_id or services.new_id())
        started = services.clock.monotonic()
        services.metrics.operation_started(operation.name)
        error: str | None = None
        task: asyncio.Task[O] = asyncio.ensure_future(operation.call(ctx, input))
        try:
            with services.tracing.operation(operation.name, ctx.ray_id):
                if not await wait(services.clock, task, timeout=operation.timeout):
                    raise OperationTimedOut(operation.name, operation.timeout or 0.0)
                return task.result()
        except Exception as failure:
            error = type(failure).__name__
            raise
        finally:
            task.cancel()
            seconds = services.clock.monotonic() - started
            services.metrics.operation_finished(operation.name, seconds, error)


class MessageSubscription(AsyncIterator[T]):
    """Messages as they come: `async for body in subscription`, or `await next(...)`."""

    def __init__(self, stream: Stream, message: Message[T]) -> None:
        self._stream = stream
        self._message = message

    async def __anext__(self) -> T:
        payload = await self._stream.__anext__()
        envelope = msgspec.msgpack.decode(payload, type=Envelope)
        return self._message.codec.decode(envelope.body)

    def close(self) -> None:
        """Stop listening."""
        self._stream.close()

    def __enter__(self) -> MessageSubscription[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id_of(target: Id | str | Handle[Any]) -> Id:
    """Return whose id it is. Raises `InvalidId` for a text that is none."""
    if isinstance(target, Handle):
        return target.id
    return Id.parse(target) if isinstance(target, str) else target
