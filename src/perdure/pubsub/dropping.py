"""A bus that loses everything: tests run on it to prove that messages are only hints."""

from __future__ import annotations

from collections.abc import Callable

from perdure.pubsub.bus import PubSubClosed, Subscription

__all__ = ["DroppingPubSub"]


class _NeverCalled:
    __slots__ = ()

    def close(self) -> None:
        return


class DroppingPubSub:
    """A `PubSub` that never delivers. `dropped` counts what was published."""

    def __init__(self) -> None:
        self.dropped = 0
        self._closed = False

    def publish(self, subject: str, payload: bytes = b"") -> None:  # noqa: ARG002
        self.dropped += 1

    def subscribe(
        self,
        subject: str,
        callback: Callable[[bytes], None],  # noqa: ARG002
    ) -> Subscription:
        if self._closed:
            raise PubSubClosed(subject)
        return _NeverCalled()

    async def flush(self) -> None:
        return

    async def close(self) -> None:
        self._closed = True
