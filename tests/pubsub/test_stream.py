"""Streams: order, bounded memory, clean ends."""

from __future__ import annotations

import asyncio

import pytest

from perdure.pubsub import MemoryPubSub, Stream


async def test_reads_in_order_and_ends_after_close() -> None:
    bus = MemoryPubSub()
    with Stream(bus, "a") as stream:
        bus.publish("a", b"1")
        bus.publish("a", b"2")
        await bus.flush()
    bus.publish("a", b"late")
    await bus.flush()
    assert [payload async for payload in stream] == [b"1", b"2"]
    assert stream.dropped == 0


async def test_reader_waits_for_the_next_message_and_wakes_on_close() -> None:
    bus = MemoryPubSub()
    stream = Stream(bus, "a")
    heard: list[bytes] = []

    async def read() -> None:
        async for payload in stream:
            heard.append(payload)

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    bus.publish("a", b"1")
    await bus.flush()
    await asyncio.sleep(0)
    assert heard == [b"1"]
    stream.close()
    stream.close()
    async with asyncio.timeout(30):
        await reader


async def test_full_buffer_drops_the_oldest_and_counts() -> None:
    bus = MemoryPubSub()
    with Stream(bus, "a", buffer=2) as stream:
        for number in range(5):
            bus.publish("a", b"%d" % number)
        await bus.flush()
    assert [payload async for payload in stream] == [b"3", b"4"]
    assert stream.dropped == 3


async def test_buffer_must_hold_a_message() -> None:
    with pytest.raises(ValueError, match="must hold a message"):
        Stream(MemoryPubSub(), "a", buffer=0)
