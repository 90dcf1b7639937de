"""Slots of a supplier that the SDK's user wrote.

Whatever the user's code does, the worker goes on: a reserve that fails is tried again, sooner at
first than later, and other failures do not matter (the SDK has written all of them to its own log).
Each reserve runs as a task of its own, so that nobody ever waits for one that does not end: who
gives up cancels it and leaves, and a permit that it still returns is released at once. Everything
happens on the worker's loop and no lock is held meanwhile, so the user's code may wait for
anything.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from perdure.temporal.slots.contexts import (
    SlotMarkUsedCtx,
    SlotReleaseCtx,
    SlotReserveCtx,
)
from perdure.temporal.telemetry.log_filter import DEBUG

if TYPE_CHECKING:
    from perdure.temporal.telemetry.logs import Log

__all__ = ["CustomSlots"]

_PAUSES = (0.001, 0.01, 0.1, 1.0)
"""Seconds before a reserve that failed is tried again, the last one each further time."""

_TARGET = "temporal_sdk_bridge::worker"


class CustomSlots:
    """A supplier of the SDK's user; a token is the permit it gave."""

    asks_ahead = True

    def __init__(self, inner: Any, log: Log) -> None:
        self.size: int | None = None
        self._inner = inner
        self._log = log

    async def reserve(self, context: SlotReserveCtx) -> Any:
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                return await self._reserve_once(context)
            except Exception as error:  # user code, whatever it raises
                self._failed("reserve_slot", error)
            await asyncio.sleep(pause)
        raise AssertionError("there is always a next pause")

    def try_reserve(self, context: SlotReserveCtx) -> Any | None:
        try:
            return self._inner.try_reserve_slot(context)
        except Exception as error:  # user code, whatever it raises
            self._failed("try_reserve_slot", error)
            return None

    def mark_used(self, info: Any, token: Any) -> None:
        try:
            self._inner.mark_slot_used(SlotMarkUsedCtx(info, token))
        except Exception as error:  # user code, whatever it raises
            self._failed("mark_slot_used", error)

    def release(self, info: Any | None, token: Any) -> None:
        try:
            self._inner.release_slot(SlotReleaseCtx(info, token))
        except Exception as error:  # user code, whatever it raises
            self._failed("release_slot", error)

    async def _reserve_once(self, context: SlotReserveCtx) -> Any:
        inside: list[asyncio.Task[Any]] = []
        call = self._inner.reserve_slot(context, inside.append)
        reserving: asyncio.Task[Any] = asyncio.get_running_loop().create_task(call)
        try:
            await asyncio.wait((reserving,))
        except asyncio.CancelledError:
            self._give_up(reserving, inside)
            raise
        if reserving.cancelled():
            raise RuntimeError("reserve_slot was cancelled, but not by its worker")
        return reserving.result()

    def _give_up(self, reserving: asyncio.Task[Any], inside: list[asyncio.Task[Any]]) -> None:
        """Leave a reserve to itself. What the user's own task still returns counts, which may be
        more than the SDK's wrapper around it, cancelled as well, can hand on."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is None:
                self.release(None, task.result())

        (inside[-1] if inside else reserving).add_done_callback(ended)
        for task in (reserving, *inside):
            task.cancel()

    def _failed(self, method: str, error: Exception) -> None:
        self._log.write(DEBUG, _TARGET, f"Error in {method}", error=repr(error))
