"""Dealers of slots: how many tasks of one kind may run at once.

A dealer hands out permits from one supplier. A permit lives from before the poll that fetches its
task until the task is answered, and is released exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from perdure.temporal.slots.contexts import SlotReserveCtx
from perdure.temporal.slots.fixed import FixedSlots

__all__ = ["Dealer", "Permit", "Supplier"]


class Supplier(Protocol):
    """Where a dealer gets its slots; a token stands for one slot.

    `size` is how many slots there are in all, None if that is not fixed. `asks_ahead` says that
    a slot is reserved before there is a task for it, also where it need not be.
    """

    size: int | None
    asks_ahead: bool

    async def reserve(self, context: SlotReserveCtx) -> Any: ...

    def try_reserve(self, context: SlotReserveCtx) -> Any | None: ...

    def mark_used(self, info: Any, token: Any) -> None: ...

    def release(self, info: Any | None, token: Any) -> None: ...


class Permit:
    """One slot, released once, however often that is asked for."""

    __slots__ = ("_dealer", "_info", "_released", "_token")

    def __init__(self, dealer: Dealer, token: Any) -> None:
        self._dealer = dealer
        self._token = token
        self._released = False
        self._info: Any | None = None

    def mark_used(self, info: Any) -> None:
        """A task has come: say what it is."""
        self._dealer.marked(info, self._token, again=self._info is not None)
        self._info = info

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._dealer.released(self._info, self._token)


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
        self._gate = FixedSlots(limit) if limit is not None else None
        self._idle = asyncio.Event()
        self._idle.set()
        self._on_change = on_change
        self.asks_ahead = supplier.asks_ahead
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
