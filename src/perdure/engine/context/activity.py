"""What an activity sees of the workflow it works for."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from perdure.codec import Codec, codec_for, decode, encode
from perdure.engine.context.outside import OperationContext
from perdure.engine.database.tags import set_tags
from perdure.engine.errors import StateInJoin
from perdure.engine.history.events import ActivityEvent
from perdure.engine.history.location import Coordinate
from perdure.engine.instants import to_datetime
from perdure.engine.tags import TagMapping
from perdure.ids import Id

if TYPE_CHECKING:
    from perdure.engine.context.activity_step import ActivityStep
    from perdure.engine.context.branch import Branch
    from perdure.engine.context.watchdog import Watchdog

__all__ = ["ActivityContext"]

T = TypeVar("T")

_HEARTBEAT_WRITE_SECONDS = 1.0


class ActivityContext(OperationContext):
    """One attempt of one activity.

    Everything inherited from `OperationContext` (signal, dispatch, find, message, op) may be used
    here, and is at-least-once: if the attempt fails after it, the next attempt does it again. Steps
    of the workflow are exactly-once.

    A sync activity calls from its own thread; `heartbeat` and the properties work there too, and
    the waiting calls through `ctx.wait(...)`.
    """

    __slots__ = (
        "_branch",
        "_last_write",
        "_loop",
        "_progress",
        "_state",
        "_state_codec",
        "_step",
        "_write",
        "attempt",
        "attempt_started",
        "coordinate",
        "event",
        "heartbeat_written",
        "watchdog",
    )

    def __init__(
        self,
        branch: Branch,
        step: ActivityStep[Any],
        coordinate: Coordinate,
        event: ActivityEvent,
        started: int,
    ) -> None:
        run = branch.run
        super().__init__(run.services.client, run.record.ray_id)
        self._branch = branch
        self._step = step
        self.coordinate = coordinate
        self.event = event
        self.attempt = event.attempts + 1
        self.attempt_started = started
        self._progress = event.progress
        self._state: Any = _UNSET
        self._state_codec: Codec[Any] | None = None
        self._write: asyncio.Task[None] | None = None
        self._last_write = -math.inf
        self.heartbeat_written = False
        self.watchdog: Watchdog | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Note that the attempt really begins now, after waiting for a free place in a pool."""
        self.attempt_started = self._branch.run.now()
        if self.watchdog is not None:
            self.watchdog.restart()

    # -- who and when

    @property
    def workflow_id(self) -> Id:
        """The workflow this activity works for."""
        return self._branch.run.lease.workflow_id

    @property
    def workflow_name(self) -> str:
        """The name of that workflow."""
        return self._branch.run.lease.name

    @property
    def activity_name(self) -> str:
        """The name of this activity."""
        return self.event.name

    @property
    def created_at(self) -> datetime:
        """When the first attempt began (UTC)."""
        return to_datetime(self.event.first_at)

    @property
    def attempt_at(self) -> datetime:
        """When this attempt began (UTC)."""
        return to_datetime(self.attempt_started)

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked the workflow to end; long activities may look and stop early."""
        return self._branch.run.cancel is not None

    # -- heartbeats

    @property
    def progress(self) -> Any:
        """What the last heartbeat reported, of this attempt or an earlier one; None at first."""
        return None if self._progress is None else decode(self._progress)

    @property
    def progress_bytes(self) -> bytes | None:
        """The stored form of `progress`."""
        return self._progress

    def heartbeat(self, details: Any = None) -> None:
        """Say that this attempt is alive, and how far it is. May be called from any thread.

        Details are stored about once a second; the next attempt finds the last stored ones in
        `progress`. Raises `PayloadError` when they cannot be stored.
        """
        self._progress = encode(details)
        if threading.get_ident() == self._branch.run.services.thread:
            self._heard()
        else:
            self._loop.call_soon_threadsafe(self._heard)

    def _heard(self) -> None:
        if self.watchdog is not None:
            self.watchdog.heard()
        now = self._branch.run.services.clock.monotonic()
        write = self._write
        # One that failed has ended the run, which `settled` tells; another would hide it.
        idle = write is None or (write.done() and not _failed(write))
        if idle and now - self._last_write >= _HEARTBEAT_WRITE_SECONDS:
            self._last_write = now
            self._write = asyncio.ensure_future(self._store_progress())
            # An attempt that is cancelled never asks how it ended.
            self._write.add_done_callback(_failed)

    async def _store_progress(self) -> None:
        run = self._branch.run
        now = run.now()
        event = msgspec.structs.replace(
            self.event, at=now, progress=self._progress, retry_at=self.event.retry_at or now
        )
        fresh = not self.event.attempts and not self.heartbeat_written
        self.heartbeat_written = True
        await run.write(self._branch.key(self.coordinate), event, fresh=fresh)

    async def settled(self) -> None:
        """Wait for a heartbeat that is being stored, so that writes keep their order."""
        if self._write is not None:
            write, self._write = self._write, None
            await write

    # -- state

    def state(self, kind: type[T]) -> T:
        """Return the workflow's state value; a fresh `kind()` when there is none yet.

        Changing it in place is enough: it is stored together with this activity's result. Raises
        `StateInJoin` inside a join and `PayloadError` when the stored value does not fit `kind`.
        """
        self._check_state_allowed()
        if self._state is _UNSET:
            stored = self._branch.run.state
            self._state_codec = codec_for(kind)
            self._state = kind() if stored is None else self._state_codec.decode(stored)
        return cast("T", self._state)

    def set_state(self, value: Any) -> None:
        """Replace the workflow's state value; stored together with this activity's result."""
        self._check_state_allowed()
        self._state_codec = codec_for(type(value))
        self._state = value

    def _check_state_allowed(self) -> None:
        if self._branch.concurrent or self._step.in_join:
            raise StateInJoin(self.activity_name)

    def changed_state(self) -> bytes | None:
        """Return the bytes of the state if this attempt changed it."""
        if self._state_codec is None:
            return None
        stored = self._state_codec.encode(self._state)
        return None if stored == self._branch.run.state else stored

    # -- tags

    async def set_tags(self, tags: TagMapping) -> None:
        """Replace the tags of the workflow this activity works for."""
        services = self._branch.run.services
        await set_tags(services.database, services.keys, self.workflow_id, dict(tags))


_UNSET: Any = object()


def _failed(write: asyncio.Task[None]) -> bool:
    return write.cancelled() or write.exception() is not None
