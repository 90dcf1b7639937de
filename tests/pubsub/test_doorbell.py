"""Doorbells coalesce and scope; listeners never miss a ring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.clock import VirtualClock, wait_event
from perdure.pubsub import Doorbell, MemoryPubSub
from perdure.pubsub.bus import Subscription


class CountingPubSub(MemoryPubSub):
    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []

    def publish(self, subject: str, payload: bytes = b"") -> None:
        self.published.append(subject)
        super().publish(subject, payload)

    def subscribe(self, subject: str, callback: Callable[[bytes], None]) -> Subscription:
        self.published.append(f"subscribe {subject}")
        return super().subscribe(subject, callback)


async def test_one_turn_of_ringing_publishes_each_name_once_in_order() -> None:
    bus = CountingPubSub()
    doorbell = Doorbell(bus, "work")
    for _ in range(100):
        doorbell.ring("b", "a")
    doorbell.ring()
    assert bus.published == []
    await asyncio.sleep(0)
    assert bus.published == ["work.b", "work.a"]
    doorbell.ring("b")
    await asyncio.sleep(0)
    assert bus.published == ["work.b", "work.a", "work.b"]


async def test_flush_publishes_at_once() -> None:
    bus = CountingPubSub()
    doorbell = Doorbell(bus, "work")
    doorbell.ring("a")
    await doorbell.flush()
    await asyncio.sleep(0)
    assert bus.published == ["work.a"]


async def test_only_the_listeners_of_a_name_wake() -> None:
    bus = MemoryPubSub()
    doorbell = Doorbell(bus, "work")
    order, invoice = doorbell.listen("order", "shared"), doorbell.listen("invoice", "shared")
    doorbell.ring("order", "unknown")
    await doorbell.flush()
    assert order.event.is_set()
    assert not invoice.event.is_set()
    assert order.take() == {"order"}
    assert not order.event.is_set()
    assert order.take() == set()
    doorbell.ring("shared")
    await doorbell.flush()
    assert order.take() == invoice.take() == {"shared"}


async def test_listener_coalesces_until_taken() -> None:
    doorbell = Doorbell(MemoryPubSub(), "work")
    listener = doorbell.listen("a", "b", "a")
    for name in ("a", "b", "a"):
        doorbell.ring(name)
        await doorbell.flush()
    assert await wait_event(VirtualClock(), listener.event, timeout=0)
    assert listener.take() == {"a", "b"}


async def test_a_name_is_subscribed_once() -> None:
    bus = CountingPubSub()
    listener = Doorbell(bus, "work").listen("a", "a")
    listener.listen("a", "b")
    assert bus.published == ["subscribe work.a", "subscribe work.b"]


async def test_closed_listener_keeps_what_it_heard() -> None:
    doorbell = Doorbell(MemoryPubSub(), "work")
    listener = doorbell.listen("a")
    doorbell.ring("a")
    await doorbell.flush()
    listener.close()
    doorbell.ring("a")
    await doorbell.flush()
    assert listener.take() == {"a"}
    assert listener.take() == set()


async def test_ringing_from_a_thread_reaches_the_loop() -> None:
    doorbell = Doorbell(MemoryPubSub(), "work")
    listener = doorbell.listen("a")
    await asyncio.to_thread(doorbell.ring, "a")
    async with asyncio.timeout(30):
        await listener.event.wait()
    assert listener.take() == {"a"}
