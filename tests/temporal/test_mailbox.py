"""What waits for lang's polls."""

from __future__ import annotations

import asyncio

import pytest

from perdure.temporal.bridge.errors import PollShutdownError
from perdure.temporal.worker.mailbox import Mailbox


async def test_a_waiting_item_is_there_at_once() -> None:
    mailbox = Mailbox()
    mailbox.put(b"one")
    poll = mailbox.poll()
    assert poll.done()
    assert poll.result() == b"one"


async def test_items_come_in_order_to_polls_in_order() -> None:
    mailbox = Mailbox()
    first, second = mailbox.poll(), mailbox.poll()
    mailbox.put(b"one")
    mailbox.put(b"two")
    assert [await first, await second] == [b"one", b"two"]


async def test_activity_cancel_interrupts_poll() -> None:
    """A poll given up loses nothing."""
    mailbox = Mailbox()
    mailbox.poll().cancel()
    mailbox.put(b"one")
    assert await mailbox.poll() == b"one"


async def test_after_shutdown_of_worker_get_shutdown_err() -> None:
    mailbox = Mailbox()
    mailbox.put(b"left")
    mailbox.close(PollShutdownError())
    assert await mailbox.poll() == b"left"
    for _ in range(2):
        with pytest.raises(PollShutdownError):
            await mailbox.poll()


async def test_closing_ends_waiting_polls() -> None:
    mailbox = Mailbox()
    poll = asyncio.ensure_future(mailbox.poll())
    mailbox.close(PollShutdownError())
    with pytest.raises(PollShutdownError):
        await poll


@pytest.mark.parametrize("waiting", [True, False])
async def test_a_failure_is_raised_once(waiting: bool) -> None:
    mailbox = Mailbox()
    poll = mailbox.poll() if waiting else None
    mailbox.fail(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        await (poll or mailbox.poll())
    mailbox.put(b"on")
    assert await mailbox.poll() == b"on"
