"""The listen steps: receive signals, with or without a bound in time.

Taking signals and recording them is one transaction. A bounded listen records its deadline as a
sleep event; the signals that interrupt it lie inside that event, so the whole step has one place in
the history and an inserted step can never take it apart.

A wait first stays in memory for a short time and then goes to sleep. Nothing is lost in between:
the transaction that puts the run to sleep looks at the queues once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.engine import subjects
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.rows import PendingSignal, WakeConditions
from perdure.engine.database.signals import take_signals
from perdure.engine.definitions import Signal
from perdure.engine.errors import HistoryDiverged
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import (
    Event,
    EventKind,
    ReceivedSignal,
    SignalsEvent,
    SleepEvent,
    SleepState,
)
from perdure.engine.history.location import Coordinate
from perdure.engine.suspension import Suspend

__all__ = ["BoundedListenStep", "ListenStep"]


class _Listening(Step[Any]):
    """What both forms share: which signals, how many, and how they are decoded.

    Without a `limit` the result is one body (or None), with one it is a list of bodies.
    """

    __slots__ = ("limit", "names", "signals")

    def __init__(
        self, branch: Branch, version: int, signals: Sequence[Signal[Any]], limit: int | None
    ) -> None:
        super().__init__(branch, version)
        self.signals = {signal.name: signal for signal in signals}
        self.names = tuple(self.signals)
        self.limit = limit

    def _decode(self, event: Event) -> Any:
        assert isinstance(event, SignalsEvent)
        self.branch.pass_over(event)
        for received in event.signals:
            if received.name not in self.signals:
                expected = f"a listen for {', '.join(self.names)}"
                found = f'received signal "{received.name}"'
                run = self.branch.run
                raise run.end(HistoryDiverged(self.branch.location, expected, found))
        bodies = [self.signals[received.name].read(received.body) for received in event.signals]
        return bodies[0] if self.limit is None else bodies

    async def _take(
        self,
        key: bytes,
        *,
        sleep: tuple[bytes, SleepEvent] | None = None,
        sleep_is_new: bool = False,
    ) -> SignalsEvent | None:
        """Take what is there and record it at `key`; None when nothing is there."""
        run = self.branch.run
        services = run.services
        now = run.now()
        events: list[SignalsEvent] = []
        # The signals inside a bounded wait are no member: the event around them is.
        joined = self.joined if sleep is None else None

        def make_event(pending: Sequence[PendingSignal]) -> SignalsEvent:
            received = [ReceivedSignal(s.id, s.name, s.body or b"", s.sent_at) for s in pending]
            events[:] = [SignalsEvent(self.version, now, now, received, joined=joined)]
            return events[0]

        taken = await run.commit(
            take_signals(
                services.database,
                services.keys,
                run.lease,
                self.names,
                self.limit or 1,
                key,
                make_event,
                sleep_key=None if sleep is None else sleep[0],
                sleep_event=None if sleep is None else sleep[1],
                sleep_is_new=sleep_is_new,
            )
        )
        for signal in taken:
            services.metrics.signal_received(
                run.lease.name, signal.name, (now - signal.sent_at) / 1000
            )
        return events[0] if taken else None


class ListenStep(_Listening):
    """Wait for at least one signal, without a bound."""

    __slots__ = ()

    kind = EventKind.SIGNALS

    async def perform(self, match: Match) -> Any:
        if isinstance(match, Replay):
            return self._decode(match.event)
        branch = self.branch
        run = branch.run
        key = branch.key(match.coordinate)
        while True:
            beat = run.pulse.next()
            taken = await self._take(key)
            if taken is not None:
                return self._decode(taken)
            if self.wants_cancel():
                await branch.settle(self, match)
            wake = WakeConditions(signals=self.names)
            run.leave_if_stopping(wake)
            run.hear(subjects.signalled(run.lease.workflow_id))
            if not await run.linger(beat):
                raise Suspend(wake, f"waiting for a signal ({', '.join(self.names)})")


class BoundedListenStep(_Listening):
    """Wait for signals until a deadline; gives None or an empty list when none came."""

    __slots__ = ("deadline", "seconds")

    kind = EventKind.SLEEP

    def __init__(
        self,
        branch: Branch,
        version: int,
        signals: Sequence[Signal[Any]],
        limit: int | None,
        *,
        seconds: float = 0.0,
        deadline: int | None = None,
    ) -> None:
        super().__init__(branch, version, signals, limit)
        self.seconds = seconds
        self.deadline = deadline

    async def perform(self, match: Match) -> Any:
        branch = self.branch
        run = branch.run
        coordinate = match.coordinate
        if isinstance(match, Replay):
            event = match.event
            assert isinstance(event, SleepEvent)
            branch.check_interrupted(coordinate)
            if event.state is not SleepState.NORMAL:
                return self._replay(coordinate, event)
            self.check_not_abandoned()
            recorded = True
        else:
            now = run.now()
            deadline = now + round(self.seconds * 1000) if self.deadline is None else self.deadline
            event = SleepEvent(
                version=self.version,
                created_at=now,
                at=now,
                deadline=deadline,
                joined=self.joined,
            )
            recorded = False
        return await self._wait(coordinate, event, recorded=recorded)

    def _replay(self, coordinate: Coordinate, event: SleepEvent) -> Any:
        self.branch.pass_over(event)
        inner = self.branch.inner_event(coordinate)
        if event.state is SleepState.INTERRUPTED and inner is not None:
            return self._decode(inner)
        return self._nothing(event)

    async def _wait(self, coordinate: Coordinate, event: SleepEvent, *, recorded: bool) -> Any:
        branch = self.branch
        run = branch.run
        key = branch.key(coordinate)
        while True:
            beat = run.pulse.next()
            if recorded and self.wants_cancel():
                await branch.interrupt(coordinate)
            taken = await self._take(
                branch.inner_key(coordinate),
                sleep=(key, self._ended(event, SleepState.INTERRUPTED)),
                sleep_is_new=not recorded,
            )
            if taken is not None:
                return self._decode(taken)
            remaining = event.deadline - run.now()
            if remaining <= 0:
                ended = self._ended(event, SleepState.UNINTERRUPTED)
                await run.write(key, ended, fresh=not recorded)
                branch.pass_over(ended)
                return self._nothing(event)
            if not recorded:
                await run.write(key, event)
                recorded = True
                continue
            wake = WakeConditions(deadline=event.deadline, signals=self.names)
            run.leave_if_stopping(wake)
            run.hear(subjects.signalled(run.lease.workflow_id))
            heard = await run.linger(beat, event.deadline)
            if not heard and event.deadline - run.now() > 0:
                raise Suspend(wake, f"waiting for a signal ({', '.join(self.names)})")

    def _nothing(self, event: SleepEvent) -> Any:
        self.branch.at = max(self.branch.at, event.deadline)
        return None if self.limit is None else []

    def _ended(self, event: SleepEvent, state: SleepState) -> SleepEvent:
        return SleepEvent(
            version=event.version,
            created_at=event.created_at,
            at=self.branch.run.now(),
            deadline=event.deadline,
            state=state,
            joined=event.joined,
        )
