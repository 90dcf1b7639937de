"""One run of one workflow: what all of its branches and steps share.

A run holds a lease, the loaded history and the signals that reach it from outside: stop (the
worker shuts down), cancel (somebody asked), and the pulse (something it may wait for has happened).
It commits through `write` and `commit`, which turn every failure of the store into `RunAborted`:
user code cannot catch it, and whatever was or was not committed, the next run reads the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.clock import wait
from perdure.engine.context.last_failures import LastFailures
from perdure.engine.context.pulse import Pulse
from perdure.engine.database.lease import Lease
from perdure.engine.database.rows import CancelRequest, WakeConditions, WorkflowRecord
from perdure.engine.database.steps import write_event
from perdure.engine.errors import CorruptHistory
from perdure.engine.history.events import Event
from perdure.engine.history.history import History
from perdure.engine.history.location import Coordinate
from perdure.engine.suspension import RunAborted, Suspend
from perdure.errors import WorldError

if TYPE_CHECKING:
    from perdure.engine.context.step import Step
    from perdure.engine.definitions import Workflow
    from perdure.engine.services import Services
    from perdure.pubsub import Subscription

__all__ = ["Run"]

T = TypeVar("T")


class Run:
    """A leased workflow in memory. `state` is the stored bytes of the workflow's state value."""

    __slots__ = (
        "_subscriptions",
        "cancel",
        "ending",
        "failures",
        "history",
        "lease",
        "pulse",
        "record",
        "services",
        "state",
        "stopping",
        "workflow",
    )

    def __init__(
        self,
        services: Services,
        workflow: Workflow[Any, Any],
        lease: Lease,
        record: WorkflowRecord,
        history: History,
        state: bytes | None,
        cancel: CancelRequest | None,
    ) -> None:
        self.services = services
        self.workflow = workflow
        self.lease = lease
        self.record = record
        self.history = history
        self.state = state
        self.cancel = cancel
        self.ending: BaseException | None = None
        self.stopping = False
        self.failures = LastFailures()
        self.pulse = Pulse()
        self._subscriptions: dict[str, Subscription] = {}

    # -- what happens to a run from outside

    def stop(self) -> None:
        """Ask the run to leave at its next step; waits in memory end at once."""
        self.stopping = True
        self.pulse.beat()

    def request_cancel(self, request: CancelRequest) -> None:
        """Make a stored cancel request known to the running code."""
        self.cancel = request
        self.pulse.beat()

    @property
    def cancel_reason(self) -> str:
        """The reason of the cancel request, or an empty text."""
        return "" if self.cancel is None else self.cancel.reason

    def events(self, root: bytes) -> list[tuple[Coordinate, Event]]:
        """Return the recorded events below a packed root. One that cannot be read ends the run."""
        try:
            return self.history.events(root)
        except CorruptHistory as error:
            raise self.end(RunAborted(error)) from error

    # -- time

    def now(self) -> int:
        """Return the wall clock in ms."""
        return self.services.clock.now()

    # -- ends and commits

    def end(self, ending: BaseException) -> BaseException:
        """Remember why the run ends, so that every further step raises the same; return it."""
        if self.ending is None or isinstance(ending, RunAborted):
            self.ending = ending
        return ending

    def leave_if_stopping(self, wake: WakeConditions) -> None:
        """End a run that was asked to stop, to be woken by `wake`. Raises `Suspend` then."""
        if self.stopping:
            raise self.end(Suspend(wake, "evicted"))

    async def commit(self, operation: Awaitable[T]) -> T:
        """Await one transaction. Storage trouble and a lost lease end the run (`RunAborted`)."""
        try:
            return await operation
        except WorldError as error:
            raise self.end(RunAborted(error)) from error

    async def write(
        self, key: bytes, event: Event, *, state: bytes | None = None, fresh: bool = True
    ) -> None:
        """Commit one event, and with it the workflow's state if it changed."""
        await self.commit(
            write_event(self.services.database, self.lease, key, event, state=state, fresh=fresh)
        )

    # -- waiting in memory

    def hear(self, subject: str) -> None:
        """From now on a publication on `subject` beats the pulse of this run."""
        if subject not in self._subscriptions:
            self._subscriptions[subject] = self.services.pubsub.subscribe(
                subject, lambda _payload: self.pulse.beat()
            )

    async def linger(self, beat: asyncio.Future[None], until: int | None = None) -> bool:
        """Wait in memory for `beat`, at most for the short time a run may linger.

        Take the beat (`pulse.next`) before checking what it tells of, or it can be missed. `until`
        (epoch ms) is an earlier end. Returns whether there was a beat.
        """
        seconds = self.services.options.linger
        if until is not None:
            seconds = min(seconds, (until - self.now()) / 1000)
        return await wait(self.services.clock, beat, timeout=seconds)

    async def wait_until(self, instant: int, step: Step[Any], coordinate: Coordinate) -> None:
        """Wait for an instant (epoch ms): in memory when it is near, else by going to sleep.

        A stop ends the run, a cancel request interrupts the `step` at `coordinate`; but not when
        the instant has passed, because a replay cannot tell that from a wait that ended before.
        """
        branch = step.branch
        while True:
            beat = self.pulse.next()
            remaining = instant - self.now()
            if remaining <= 0:
                return
            if step.wants_cancel() and not step.frozen:
                await branch.interrupt(coordinate)
            self.leave_if_stopping(WakeConditions(deadline=instant))
            if step.frozen or remaining > self.services.options.linger * 1000:
                raise Suspend(WakeConditions(deadline=instant), "sleeping")
            await self.linger(beat, instant)

    def close(self) -> None:
        """Let go of everything the run listens to."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()
