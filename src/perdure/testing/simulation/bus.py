"""Pub/sub between the processes of a simulation: messages are lost, late, doubled, out of order."""

from __future__ import annotations

import contextvars
import random as random_module
from collections.abc import Callable
from dataclasses import dataclass

from perdure.pubsub import PubSubClosed, Subscription
from perdure.testing.simulation.loop import SimulationLoop

__all__ = ["BusTrouble", "SimulatedBus"]


@dataclass(frozen=True, slots=True)
class BusTrouble:
    """`lose` and `double` are chances between 0 and 1, `latest` is the longest delay in seconds."""

    lose: float = 0.0
    double: float = 0.0
    latest: float = 0.001


class SimulatedBus:
    """Made by `Simulation`; `connect` gives a process its `PubSub`. `trouble` may be replaced."""

    def __init__(self, loop: SimulationLoop, random: random_module.Random) -> None:
        self.trouble = BusTrouble()
        self.loop = loop
        self._random = random
        self._subscriptions: dict[str, dict[_Subscription, None]] = {}

    def connect(self) -> _Connection:
        return _Connection(self)

    @property
    def subscriptions(self) -> list[str]:
        """The subjects that somebody listens to, with repetitions."""
        return [subject for subject, them in self._subscriptions.items() for _ in them]

    def publish(self, subject: str, payload: bytes) -> None:
        for subscription in self._subscriptions.get(subject, ()):
            trouble, random = self.trouble, self._random
            copies = (random.random() >= trouble.lose) + (random.random() < trouble.double)
            for _ in range(copies):
                self.loop.call_later(
                    random.random() * trouble.latest,
                    subscription.deliver,
                    payload,
                    context=subscription.context,
                )

    def add(self, subject: str, subscription: _Subscription) -> None:
        self._subscriptions.setdefault(subject, {})[subscription] = None

    def remove(self, subject: str, subscription: _Subscription) -> None:
        them = self._subscriptions.get(subject, {})
        them.pop(subscription, None)
        if not them:
            self._subscriptions.pop(subject, None)


class _Connection:
    """A `PubSub` of one process."""

    def __init__(self, bus: SimulatedBus) -> None:
        self._bus = bus
        self._own: dict[_Subscription, None] = {}
        self._closed = False

    def publish(self, subject: str, payload: bytes = b"") -> None:
        if not self._closed:
            self._bus.publish(subject, payload)

    def subscribe(self, subject: str, callback: Callable[[bytes], None]) -> Subscription:
        if self._closed:
            raise PubSubClosed(subject)
        subscription = _Subscription(self, subject, callback)
        self._own[subscription] = None
        self._bus.add(subject, subscription)
        return subscription

    def forget(self, subscription: _Subscription) -> None:
        self._own.pop(subscription, None)
        self._bus.remove(subscription.subject, subscription)

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        self._closed = True
        for subscription in list(self._own):
            subscription.close()


class _Subscription:
    """Delivers in a copy of the context that subscribed: that of its process."""

    def __init__(
        self, connection: _Connection, subject: str, callback: Callable[[bytes], None]
    ) -> None:
        self.subject = subject
        self._connection = connection
        self._callback: Callable[[bytes], None] | None = callback
        self.context = contextvars.copy_context()

    def deliver(self, payload: bytes) -> None:
        if self._callback is not None:
            self._callback(payload)

    def close(self) -> None:
        self._callback = None
        self._connection.forget(self)
