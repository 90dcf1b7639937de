"""What a pub/sub driver must do. It is small on purpose: everything else is built on top of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perdure.errors import CallerError

__all__ = ["PubSub", "PubSubClosed", "Subscription"]


class PubSubClosed(CallerError):
    """A subscription was asked from a bus that was closed."""

    code = "pubsub.closed"

    def __init__(self, subject: str) -> None:
        super().__init__(f"cannot subscribe to {subject!r}: this bus was closed")
        self.subject = subject


class Subscription(Protocol):
    """One callback on one subject."""

    def close(self) -> None:
        """Stop it: the callback is not called again. Harmless when already closed."""


class PubSub(Protocol):
    """Fire and forget messages by exact subject, to every subscriber in every process.

    Messages from one publisher to one subscriber arrive in order, or not at all.
    """

    def publish(self, subject: str, payload: bytes = b"") -> None:
        """Send to all subscribers. Never raises and never waits; callable from any thread.

        Nearly free when nobody listens. Callbacks never run inside this call.
        """

    def subscribe(self, subject: str, callback: Callable[[bytes], None]) -> Subscription:
        """Call `callback` with each payload, on the loop that runs now.

        An exception in a callback is logged and disturbs nobody else. Raises `PubSubClosed`.
        """

    async def flush(self) -> None:
        """Wait until what was published so far has left for its subscribers."""

    async def close(self) -> None:
        """Close all subscriptions made through this object; later publishing does nothing."""
