"""Pub/sub inside one process.

An *exchange* holds the subscriptions; a `MemoryPubSub` is one participant's handle on it. Handles
made by `MemoryPubSub.shared(name)` meet on one exchange, so several engines on one store in one
process hear each other, while closing one engine's handle leaves the others' subscriptions alone.

Invariants: the subscriptions of a subject are an immutable tuple that is replaced, never changed,
so publishing from any thread needs no lock. Delivery goes through the loop of the subscriber, in
order, and never runs inside `publish`: a publisher cannot be re-entered by its own message.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Self
from weakref import WeakValueDictionary

from perdure.pubsub.bus import PubSubClosed, Subscription

__all__ = ["MemoryPubSub"]

logger = logging.getLogger(__name__)


class _Subscription:
    __slots__ = ("_on_close", "callback", "loop", "subject")

    def __init__(
        self,
        subject: str,
        callback: Callable[[bytes], None],
        loop: asyncio.AbstractEventLoop,
        on_close: Callable[[_Subscription], None],
    ) -> None:
        self._on_close = on_close
        self.subject = subject
        self.callback: Callable[[bytes], None] | None = callback
        self.loop = loop

    def close(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._on_close(self)

    def deliver(self, payload: bytes) -> None:
        callback = self.callback
        if callback is None:
            return
        try:
            callback(payload)
        except Exception:
            logger.exception("a subscriber of %r failed", self.subject)


class _Exchange:
    __slots__ = ("__weakref__", "_lock", "subscriptions")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.subscriptions: dict[str, tuple[_Subscription, ...]] = {}

    def add(self, subscription: _Subscription) -> None:
        with self._lock:
            others = self.subscriptions.get(subscription.subject, ())
            self.subscriptions[subscription.subject] = (*others, subscription)

    def remove(self, subscription: _Subscription) -> None:
        with self._lock:
            subject = subscription.subject
            others = self.subscriptions.get(subject, ())
            rest = tuple(other for other in others if other is not subscription)
            if rest:
                self.subscriptions[subject] = rest
            else:
                self.subscriptions.pop(subject, None)


_shared: WeakValueDictionary[str, _Exchange] = WeakValueDictionary()
_shared_lock = threading.Lock()


class MemoryPubSub:
    """A `PubSub` for one process. A new object is private; `shared` ones meet by name."""

    def __init__(self) -> None:
        self._exchange = _Exchange()
        self._own: dict[_Subscription, None] = {}
        self._closed = False

    @classmethod
    def shared(cls, name: str) -> Self:
        """Return a new handle on the exchange of that name; it lives as long as its handles."""
        self = cls()
        with _shared_lock:
            self._exchange = _shared.setdefault(name, self._exchange)
        return self

    def publish(self, subject: str, payload: bytes = b"") -> None:
        subscriptions = self._exchange.subscriptions.get(subject)
        if subscriptions is None or self._closed:
            return
        running = _running_loop()
        for subscription in subscriptions:
            loop = subscription.loop
            try:
                if loop is running:
                    loop.call_soon(subscription.deliver, payload)
                else:
                    loop.call_soon_threadsafe(subscription.deliver, payload)
            except RuntimeError:
                # The subscriber's loop was closed without closing the subscription.
                subscription.close()

    def subscribe(self, subject: str, callback: Callable[[bytes], None]) -> Subscription:
        if self._closed:
            raise PubSubClosed(subject)
        loop = asyncio.get_running_loop()
        subscription = _Subscription(subject, callback, loop, self._forget)
        self._exchange.add(subscription)
        self._own[subscription] = None
        return subscription

    async def flush(self) -> None:
        # Deliveries are queued on the loop in order, so one turn is past all of them.
        await asyncio.sleep(0)

    async def close(self) -> None:
        self._closed = True
        for subscription in list(self._own):
            subscription.close()

    def _forget(self, subscription: _Subscription) -> None:
        self._own.pop(subscription, None)
        self._exchange.remove(subscription)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
