"""Coalesced, scoped wake-ups: "there may be something new for NAME, go and look".

Waking every worker at every write is a thundering herd. A doorbell differs in two ways: each name
has its own subject, so only those who serve the name are woken; and ringing the same name many
times in one turn of the loop publishes once. A listener coalesces again on its side: it remembers
which names rang, not how often.

A ring carries no data, so doubling, losing or reordering rings is harmless by construction.
"""

from __future__ import annotations

import asyncio
from functools import partial

from perdure.pubsub.bus import PubSub, Subscription

__all__ = ["Doorbell", "Listener"]


class Doorbell:
    """Rings names under one subject prefix. Use it from one loop; threads may ring too."""

    def __init__(self, pubsub: PubSub, prefix: str) -> None:
        self._pubsub = pubsub
        self._prefix = prefix
        # A dict keeps the order of ringing, so that a simulation repeats exactly; a set would not.
        self._rung: dict[str, None] = {}
        self._scheduled_on: asyncio.AbstractEventLoop | None = None

    def ring(self, *names: str) -> None:
        """Wake the listeners of `names`, each at most once per turn of the loop. Never raises.

        From a thread without a running loop the names are published at once.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            for name in names:
                self._pubsub.publish(f"{self._prefix}.{name}")
            return
        if names and self._scheduled_on is not loop:
            self._scheduled_on = loop
            loop.call_soon(self._publish)
        for name in names:
            self._rung[name] = None

    def listen(self, *names: str) -> Listener:
        """Start listening to `names`, on the running loop."""
        listener = Listener(self._pubsub, self._prefix)
        listener.listen(*names)
        return listener

    async def flush(self) -> None:
        """Publish what was rung in this turn now, and flush the bus."""
        self._publish()
        await self._pubsub.flush()

    def _publish(self) -> None:
        self._scheduled_on = None
        rung, self._rung = self._rung, {}
        for name in rung:
            self._pubsub.publish(f"{self._prefix}.{name}")


class Listener:
    """Collects the names that rang. `event` is set while there are any; wait on it.

    Listen first and look into the store afterwards: a ring between the two is then never missed.
    """

    def __init__(self, pubsub: PubSub, prefix: str) -> None:
        self.event = asyncio.Event()
        self._pubsub = pubsub
        self._prefix = prefix
        self._rung: set[str] = set()
        self._subscriptions: dict[str, Subscription] = {}

    def listen(self, *names: str) -> None:
        """Listen to these names as well; names listened to already are left as they are."""
        for name in names:
            if name not in self._subscriptions:
                subject = f"{self._prefix}.{name}"
                self._subscriptions[name] = self._pubsub.subscribe(
                    subject, partial(self._hear, name)
                )

    def take(self) -> set[str]:
        """Return the names that rang since the last call and start afresh."""
        rung, self._rung = self._rung, set()
        self.event.clear()
        return rung

    def close(self) -> None:
        """Stop listening. What rang already can still be taken."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()

    def _hear(self, name: str, _payload: bytes) -> None:
        self._rung.add(name)
        self.event.set()
