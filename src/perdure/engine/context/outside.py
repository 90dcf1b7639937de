"""Calls from outside of workflow bodies: operations, and what activities share with them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine.tags import TagMapping
from perdure.ids import Id

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.engine.definitions import Operation, Workflow
    from perdure.engine.handle import Handle

__all__ = ["OperationContext"]

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")


class OperationContext:
    """The engine, seen from code that is not replayed; everything carries one ray id."""

    __slots__ = ("_client", "ray_id")

    def __init__(self, client: Client, ray_id: Id) -> None:
        self._client = client
        self.ray_id = ray_id

    async def op(self, operation: Operation[I, O], input: I = None) -> O:  # type: ignore[assignment]
        """Call an operation. Raises what it raises, and `OperationTimedOut`."""
        return await self._client.op(operation, input, ray_id=self.ray_id)

    async def dispatch(
        self,
        workflow: Workflow[I, O],
        input: I = None,  # type: ignore[assignment]
        *,
        tags: TagMapping | None = None,
        unique: bool | str = False,
    ) -> Handle[O]:
        """Start a workflow; in an activity at least once, so give it a `unique` key."""
        return await self._client.dispatch(
            workflow, input, tags=tags, unique=unique, ray_id=self.ray_id
        )

    async def find(
        self, workflow: Workflow[I, O], tags: TagMapping | None = None
    ) -> Handle[O] | None:
        """Return an open workflow of this name with these tags, if there is one."""
        return await self._client.find(workflow, tags)

    async def signal(self, target: Id | str | Handle[Any], body: Any) -> None:
        """Send a signal to a workflow; in an activity at least once."""
        await self._client.signal(target, body, ray_id=self.ray_id)

    def message(self, body: Any, topic: str = "") -> None:
        """Publish a message: at most once, to whoever listens now."""
        self._client.message(body, topic, ray_id=self.ray_id)

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """From a sync activity: run one of the async calls on the engine's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(call, self._client.loop).result()
