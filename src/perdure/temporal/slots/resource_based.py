"""Slots whose number follows the resources of the machine.

`SlotBounds.grants` is the rule, on numbers only. Around it, waiters are asked about in their order
whenever a slot comes back and every ten milliseconds, but only while somebody waits: a worker with
nothing to ask for costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.temporal.slots.contexts import SlotReserveCtx
from perdure.temporal.slots.resource_control import ResourceControl

__all__ = ["ResourceSlots", "SlotBounds"]

_RECHECK = 0.01


@dataclass(frozen=True, slots=True)
class SlotBounds:
    """So many slots in any case, so many at most, and between them one each `ramp` seconds."""

    minimum: int
    maximum: int
    ramp: float

    def grants(
        self, used: int, alike: int | None, since_last: float, has_room: Callable[[], bool]
    ) -> bool:
        """Whether one more slot may be given out.

        `alike` counts those out for the same kind of poll, where every kind must keep one.
        `has_room` is asked only if the answer depends on it.
        """
        if used < self.minimum:
            return True
        if used >= self.maximum:
            return False
        if alike == 0:
            return True
        return since_last >= self.ramp and has_room()


@dataclass(frozen=True, slots=True)
class _Token:
    sticky: bool


class ResourceSlots:
    """One kind of slots of one worker."""

    asks_ahead = False

    def __init__(
        self, control: ResourceControl, bounds: SlotBounds, *, by_stickiness: bool = False
    ) -> None:
        self.size: int | None = None
        self._control = control
        self._bounds = bounds
        self._by_stickiness = by_stickiness
        self._out = {False: 0, True: 0}
        self._last = float("-inf")
        self._waiting: dict[asyncio.Future[_Token], bool] = {}
        self._recheck: asyncio.TimerHandle | None = None

    async def reserve(self, context: SlotReserveCtx) -> Any:
        if (token := self.try_reserve(context)) is not None:
            return token
        slot: asyncio.Future[_Token] = asyncio.get_running_loop().create_future()
        self._waiting[slot] = context.is_sticky
        self._ask_again()
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.release(None, slot.result())
            raise
        finally:
            self._waiting.pop(slot, None)
            self._rest()

    def try_reserve(self, context: SlotReserveCtx) -> Any | None:
        return self._grant(sticky=context.is_sticky)

    def mark_used(self, info: Any, token: Any) -> None:
        """A slot is a slot, whatever it is used for."""

    def release(self, info: Any | None, token: Any) -> None:
        del info
        self._out[token.sticky] -= 1
        self._look()

    def _grant(self, *, sticky: bool) -> _Token | None:
        now = asyncio.get_running_loop().time()
        used = sum(self._out.values())
        alike = self._out[sticky] if self._by_stickiness else None
        if not self._bounds.grants(used, alike, now - self._last, self._control.has_room):
            return None
        self._last = now
        self._out[sticky] += 1
        return _Token(sticky)

    def _look(self) -> None:
        """Ask about everybody who waits; what goes wrong goes wrong for all of them."""
        for slot, sticky in list(self._waiting.items()):
            if slot.done():
                continue
            try:
                token = self._grant(sticky=sticky)
            except Exception as error:
                for other in self._waiting:
                    if not other.done():
                        other.set_exception(error)
                return
            if token is not None:
                slot.set_result(token)

    def _ask_again(self) -> None:
        if self._recheck is None:
            self._recheck = asyncio.get_running_loop().call_later(_RECHECK, self._due)

    def _due(self) -> None:
        self._recheck = None
        self._look()
        if any(not slot.done() for slot in self._waiting):
            self._ask_again()

    def _rest(self) -> None:
        if not self._waiting and self._recheck is not None:
            self._recheck.cancel()
            self._recheck = None
