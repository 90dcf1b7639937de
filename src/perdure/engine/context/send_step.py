"""Steps that send: signals to other workflows, and messages to whoever listens."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engine import subjects
from perdure.engine.context.branch import Branch
from perdure.engine.context.step import Step
from perdure.engine.database.find import find
from perdure.engine.database.rows import PendingSignal
from perdure.engine.database.signals import publish_from
from perdure.engine.definitions import Message, Signal
from perdure.engine.errors import WorkflowFinished, WorkflowNotFound
from perdure.engine.history.cursor import Match, Replay
from perdure.engine.history.events import (
    EventKind,
    MessageSendEvent,
    SignalSendEvent,
    kept_input,
)
from perdure.engine.tags import Tags
from perdure.ids import Id

__all__ = ["MessageStep", "SignalStep"]


class SignalStep(Step[bool]):
    """Send a signal, exactly once; the queue row and the event are one transaction.

    The target is an id, or the first open workflow with a name and tags. Returns whether there was
    a target; a missing one is an error unless `missing_ok`.
    """

    __slots__ = ("body", "missing_ok", "target", "target_name", "target_tags")

    kind = EventKind.SIGNAL_SEND

    def __init__(
        self,
        branch: Branch,
        version: int,
        signal: Signal[Any],
        body: Any,
        *,
        target: Id | None = None,
        target_name: str = "",
        target_tags: Tags | None = None,
        missing_ok: bool = False,
    ) -> None:
        self.body = signal.write(body)
        super().__init__(branch, version, signal.name)
        self.target = target
        self.target_name = target_name
        self.target_tags = target_tags or {}
        self.missing_ok = missing_ok

    async def perform(self, match: Match) -> bool:
        branch = self.branch
        run = branch.run
        key = branch.key(match.coordinate)
        if isinstance(match, Replay):
            recorded = match.event
            assert isinstance(recorded, SignalSendEvent)
            branch.pass_over(recorded)
            return self._answer(recorded, key)
        target = self.target
        if target is None:
            target = await run.commit(
                find(run.services.database, run.services.keys, self.target_name, self.target_tags)
            )
        event = self._event(target)
        branch.pass_over(event)
        if target is not None:
            event = await self._send(target, event, key)
        if event.missing:
            # Recorded too: a replay must not find somebody who came later.
            await run.write(key, event)
        return self._answer(event, key)

    def _event(self, target: Id | None) -> SignalSendEvent:
        run = self.branch.run
        now = run.now()
        kept, digest = kept_input(self.body)
        return SignalSendEvent(
            version=self.version,
            created_at=now,
            at=now,
            name=self.name or "",
            target=None if target is None else bytes(target),
            signal_id=bytes(run.services.new_id()),
            body=kept,
            body_digest=digest,
            joined=self.joined,
            missing=target is None,
        )

    async def _send(self, target: Id, event: SignalSendEvent, key: bytes) -> SignalSendEvent:
        """Send the signal and record `event`, or return what is to be recorded instead."""
        run = self.branch.run
        services = run.services
        now = event.at
        signal = PendingSignal(
            id=Id(event.signal_id),
            name=event.name,
            body=self.body,
            ray_id=run.record.ray_id,
            sent_at=now,
        )
        try:
            sent = await run.commit(
                publish_from(
                    services.database, services.keys, run.lease, key, event, target, signal, now
                )
            )
        except WorkflowNotFound:
            return msgspec.structs.replace(event, missing=True)
        except WorkflowFinished as error:
            return msgspec.structs.replace(event, missing=True, closed_as=error.phase)
        if sent.woken is not None:
            services.doorbell.ring(sent.woken)
        services.pubsub.publish(subjects.signalled(target))
        services.metrics.signal_sent(event.name, (run.now() - now) / 1000, run.lease.name)
        return event

    def _answer(self, event: SignalSendEvent, key: bytes) -> bool:
        """Say whether the signal was sent; raise why not, unless that is allowed."""
        if not event.missing:
            return True
        if self.missing_ok:
            return False
        self.branch.run.failures.note(self.branch, key)
        if event.target is None:
            raise WorkflowNotFound(name=self.target_name, tags=self.target_tags)
        if event.closed_as:
            raise WorkflowFinished(Id(event.target), event.closed_as)
        raise WorkflowNotFound(Id(event.target))


class MessageStep(Step[None]):
    """Publish a message: recorded first, then published, so at most once."""

    __slots__ = ("body", "topic")

    kind = EventKind.MESSAGE_SEND

    def __init__(
        self, branch: Branch, version: int, message: Message[Any], body: Any, topic: str
    ) -> None:
        self.body = message.write(body)
        super().__init__(branch, version, message.name)
        self.topic = topic

    async def perform(self, match: Match) -> None:
        branch = self.branch
        if isinstance(match, Replay):
            branch.pass_over(match.event)
            return
        run = branch.run
        now = run.now()
        kept, _ = kept_input(self.body)
        event = MessageSendEvent(
            self.version, now, now, self.name or "", self.topic, kept, joined=self.joined
        )
        await run.write(branch.key(match.coordinate), event)
        branch.pass_over(event)
        run.services.client.publish(
            event.name, self.topic, self.body, run.record.ray_id, workflow=run.lease.name
        )
