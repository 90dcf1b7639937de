"""The memory bus and the dropping bus, through the protocol both promise."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from perdure.pubsub import DroppingPubSub, MemoryPubSub, PubSub, PubSubClosed


async def test_delivers_to_every_subscriber_in_order() -> None:
    bus = MemoryPubSub()
    first: list[bytes] = []
    second: list[bytes] = []
    bus.subscribe("a", first.append)
    bus.subscribe("a", second.append)
    bus.subscribe("b", lambda _: pytest.fail("wrong subject"))
    bus.publish("a", b"1")
    bus.publish("a", b"2")
    bus.publish("a")
    await bus.flush()
    assert first == second == [b"1", b"2", b""]


async def test_callbacks_never_run_inside_publish() -> None:
    bus = MemoryPubSub()
    heard: list[bytes] = []
    bus.subscribe("a", heard.append)
    bus.publish("a")
    assert heard == []
    await bus.flush()
    assert heard == [b""]


async def test_failing_callback_is_logged_and_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryPubSub()
    heard: list[bytes] = []

    def fail(payload: bytes) -> None:
        raise ValueError("mine")

    bus.subscribe("a", fail)
    bus.subscribe("a", heard.append)
    with caplog.at_level(logging.ERROR):
        bus.publish("a", b"1")
        bus.publish("a", b"2")
        await bus.flush()
    assert heard == [b"1", b"2"]
    assert [record.message for record in caplog.records] == ["a subscriber of 'a' failed"] * 2


async def test_closed_subscription_hears_nothing_even_when_a_message_is_on_its_way() -> None:
    bus = MemoryPubSub()
    subscription = bus.subscribe("a", lambda _: pytest.fail("closed"))
    bus.publish("a")
    subscription.close()
    subscription.close()
    bus.publish("a")
    await bus.flush()


async def test_subscription_may_close_itself_or_subscribe_anew_in_its_callback() -> None:
    bus = MemoryPubSub()
    heard: list[str] = []

    def once(payload: bytes) -> None:
        subscription.close()
        heard.append("once")
        bus.subscribe("a", lambda _: heard.append("again"))

    subscription = bus.subscribe("a", once)
    bus.publish("a")
    await bus.flush()
    bus.publish("a")
    await bus.flush()
    assert heard == ["once", "again"]


async def test_publish_from_a_thread_runs_the_callback_on_the_loop() -> None:
    bus = MemoryPubSub()
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    bus.subscribe("a", lambda _: heard.set_result(threading.get_ident()))
    await asyncio.to_thread(bus.publish, "a")
    async with asyncio.timeout(30):
        assert await heard == threading.get_ident()


async def test_shared_handles_meet_by_name_and_close_alone() -> None:
    one, two, other = (MemoryPubSub.shared(name) for name in ("x", "x", "y"))
    heard: list[str] = []
    one.subscribe("a", lambda _: heard.append("one"))
    two.subscribe("a", lambda _: heard.append("two"))
    other.subscribe("a", lambda _: heard.append("other"))
    one.publish("a")
    await one.flush()
    assert heard == ["one", "two"]
    await one.close()
    one.publish("a")
    two.publish("a")
    await two.flush()
    assert heard == ["one", "two", "two"]


async def test_shared_exchange_is_forgotten_with_its_last_handle() -> None:
    heard: list[bytes] = []
    MemoryPubSub.shared("z").subscribe("a", heard.append)
    gc.collect()
    MemoryPubSub.shared("z").publish("a")
    await asyncio.sleep(0)
    assert heard == []


@pytest.mark.parametrize("bus_type", [MemoryPubSub, DroppingPubSub])
async def test_closed_bus_refuses_subscribers_and_ignores_publishers(
    bus_type: type[MemoryPubSub | DroppingPubSub],
) -> None:
    bus: PubSub = bus_type()
    bus.subscribe("a", lambda _: pytest.fail("closed"))
    await bus.close()
    await bus.close()
    bus.publish("a")
    await bus.flush()
    with pytest.raises(PubSubClosed) as caught:
        bus.subscribe("a", lambda _: None)
    assert caught.value.subject == "a"


def test_publish_survives_a_subscriber_whose_loop_is_gone() -> None:
    bus = MemoryPubSub()

    async def subscribe() -> None:
        bus.subscribe("a", lambda _: pytest.fail("its loop is closed"))

    asyncio.run(subscribe())
    bus.publish("a")
    bus.publish("a")


async def test_dropping_bus_drops() -> None:
    bus = DroppingPubSub()
    bus.subscribe("a", lambda _: pytest.fail("delivered")).close()
    bus.subscribe("a", lambda _: pytest.fail("delivered"))
    bus.publish("a", b"1")
    await bus.flush()
    assert bus.dropped == 1
