"""Slots: how many tasks of each kind may run at once.

A dealer hands out permits from one supplier. A permit lives from before the poll that fetches its
task until the task is answered, and is released exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perdure.temporal.errors import NotBuilt

if TYPE_CHECKING:
    from perdure.temporal.bridge.logs import Log

__all__ = [
    "ActivitySlotInfo",
    "CustomSlotSupplier",
    "Dealer",
    "LocalActivitySlotInfo",
    "NexusSlotInfo",
    "Permit",
    "SlotMarkUsedCtx",
    "SlotReleaseCtx",
    "SlotReserveCtx",
    "WorkflowSlotInfo",
    "supplier",
]

_RETRY_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class SlotReserveCtx:
    """For whom a slot is wanted; `slot_type` is workflow, activity, local-activity or nexus."""

    slot_type: str
    task_queue: str
    worker_identity: str
    worker_build_id: str
    worker_deployment_version: Any
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


class Supplier(Protocol):
    """Where a dealer gets its slots; a token stands for one slot.

    `size` is how many slots there are in all, None if that is not fixed.
    """

    size: int | None

    async def reserve(self, context: SlotReserveCtx) -> Any: ...

    def try_reserve(self, context: SlotReserveCtx) -> Any | None: ...

    def mark_used(self, info: Any, token: Any) -> None: ...

    def release(self, info: Any | None, token: Any) -> None: ...


class _Fixed:
    """A number of slots; waiters are served in order."""

    def __init__(self, slots: int) -> None:
        self.size: int | None = slots
        self._free = slots
        self._waiters: list[asyncio.Future[None]] = []

    async def reserve(self, context: SlotReserveCtx) -> object:
        del context
        while self._free == 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            finally:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
        self._free -= 1
        return True

    def try_reserve(self, context: SlotReserveCtx) -> object | None:
        del context
        if self._free == 0:
            return None
        self._free -= 1
        return True

    def mark_used(self, info: Any, token: Any) -> None:
        """A slot is a slot, whatever it is used for."""

    def release(self, info: Any | None, token: Any) -> None:
        del info, token
        self._free += 1
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
                return


class _Custom:
    """A supplier of the SDK's user; a failing reserve is tried again."""

    def __init__(self, inner: Any, log: Log) -> None:
        self.size: int | None = None
        self._inner = inner
        self._log = log

    async def reserve(self, context: SlotReserveCtx) -> Any:
        while True:
            started: list[asyncio.Task[Any]] = []
            try:
                return await self._inner.reserve_slot(context, started.append)
            except asyncio.CancelledError:
                for task in started:
                    task.cancel()
                raise
            except Exception as error:  # user code, whatever it raises
                self._log.write(
                    40, "temporal_sdk_bridge::worker", f"Error in reserve_slot: {error!r}"
                )
                await asyncio.sleep(_RETRY_PAUSE)

    def try_reserve(self, context: SlotReserveCtx) -> Any | None:
        return self._inner.try_reserve_slot(context)

    def mark_used(self, info: Any, token: Any) -> None:
        self._inner.mark_slot_used(SlotMarkUsedCtx(info, token))

    def release(self, info: Any | None, token: Any) -> None:
        self._inner.release_slot(SlotReleaseCtx(info, token))


def supplier(config: Any, log: Log) -> Supplier:
    """The supplier that a worker's configuration asks for."""
    if isinstance(config, CustomSlotSupplier):
        return _Custom(config.inner, log)
    if hasattr(config, "num_slots"):
        if config.num_slots < 1:
            raise ValueError("a fixed size slot supplier needs at least one slot")
        return _Fixed(config.num_slots)
    raise NotBuilt("a resource based slot supplier", "use a fixed size or a custom slot supplier")


class Permit:
    """One slot, released once, however often that is asked for."""

    __slots__ = ("_dealer", "_info", "_token")

    def __init__(self, dealer: Dealer, token: Any) -> None:
        self._dealer = dealer
        self._token = token
        self._info: Any | None = None

    def mark_used(self, info: Any) -> None:
        """A task has come: say what it is."""
        self._dealer.marked(info, self._token, again=self._info is not None)
        self._info = info

    def release(self) -> None:
        if self._token is not None:
            token, self._token = self._token, None
            self._dealer.released(self._info, token)


class Dealer:
    """Hands out the permits of one kind, and knows how many are out.

    `limit` bounds the permits out at once whatever the supplier allows. `on_change` hears of every
    permit that goes out, gets a task or comes back: how many have a task, and how many slots have
    none, if there is a bound.
    """

    def __init__(
        self,
        supplier: Supplier,
        context: Callable[[bool], SlotReserveCtx],
        limit: int | None = None,
        on_change: Callable[[int, int | None], None] = lambda _used, _available: None,
    ) -> None:
        self._supplier = supplier
        self._context = context
        self._gate = _Fixed(limit) if limit is not None else None
        self._idle = asyncio.Event()
        self._idle.set()
        self._on_change = on_change
        self.out = 0
        self.used = 0

    async def reserve(self, *, sticky: bool = False) -> Permit:
        """A permit, when there is one."""
        context = self._context(sticky)
        if self._gate is not None:
            await self._gate.reserve(context)
        try:
            token = await self._supplier.reserve(context)
        except BaseException:
            if self._gate is not None:
                self._gate.release(None, None)
            raise
        return self._dealt(token)

    def try_reserve(self, *, sticky: bool = False) -> Permit | None:
        """A permit if there is one right now."""
        context = self._context(sticky)
        if self._gate is not None and self._gate.try_reserve(context) is None:
            return None
        token = self._supplier.try_reserve(context)
        if token is None:
            if self._gate is not None:
                self._gate.release(None, None)
            return None
        return self._dealt(token)

    async def all_returned(self) -> None:
        """Wait until no permit is out."""
        await self._idle.wait()

    def show(self) -> None:
        """Tell `on_change` how things are."""
        size = self._supplier.size
        self._on_change(self.used, None if size is None else size - self.used)

    def marked(self, info: Any, token: Any, *, again: bool) -> None:
        if not again:
            self.used += 1
        self._supplier.mark_used(info, token)
        self.show()

    def released(self, info: Any | None, token: Any) -> None:
        if self._gate is not None:
            self._gate.release(None, None)
        self._supplier.release(info, token)
        self.out -= 1
        if info is not None:
            self.used -= 1
        self.show()
        if self.out == 0:
            self._idle.set()

    def _dealt(self, token: Any) -> Permit:
        self.out += 1
        self._idle.clear()
        self.show()
        return Permit(self, token)
