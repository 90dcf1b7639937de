"""What waits for lang's polls."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from temporalio.bridge.proto.activity_result import ActivityExecutionResult
from temporalio.bridge.proto.activity_task import ActivityTask
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity

from perdure.core.inputs import (
    Input,
    LocalCancelsDelivered,
    LocalResolved,
)
from perdure.core.local_activities.requests import LocalActivityCancel, LocalActivityRequest
from perdure.core.run_info import RunInfo
from perdure.temporal.sdk_errors import PollShutdownError
from perdure.temporal.slots.contexts import SlotDeploymentVersion, SlotReserveCtx
from perdure.temporal.slots.dealer import Dealer
from perdure.temporal.slots.fixed import FixedSlots
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.metrics import SILENT
from perdure.temporal.worker.local_activities import LocalActivityShell
from perdure.temporal.worker.mailbox import Mailbox

RUN = RunInfo("namespace", "workflow-id", "run-id", "workflow-type", "task-queue")


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


async def test_what_is_put_in_comes_before_what_is_drawn() -> None:
    mailbox = Mailbox()
    source = deque([b"drawn"])
    mailbox.draw_from(lambda: source.popleft() if source else None)
    mailbox.put(b"put")
    assert [await mailbox.poll(), await mailbox.poll()] == [b"put", b"drawn"]


async def test_a_source_is_not_asked_before_a_poll_takes_the_item() -> None:
    mailbox = Mailbox()
    source = deque([b"one", b"two"])
    mailbox.draw_from(lambda: source.popleft() if source else None)
    mailbox.ring()
    assert len(source) == 2
    assert await mailbox.poll() == b"one"
    assert list(source) == [b"two"]


async def test_a_ring_serves_the_polls_that_wait_and_no_others() -> None:
    mailbox = Mailbox()
    source: deque[bytes] = deque()
    mailbox.draw_from(lambda: source.popleft() if source else None)
    given_up, first, second = mailbox.poll(), mailbox.poll(), mailbox.poll()
    given_up.cancel()
    source.append(b"one")
    mailbox.ring()
    assert await first == b"one"
    assert not second.done()


async def test_a_closed_mailbox_still_draws_what_is_left() -> None:
    mailbox = Mailbox()
    source = deque([b"left"])
    mailbox.draw_from(lambda: source.popleft() if source else None)
    mailbox.close(PollShutdownError())
    assert await mailbox.poll() == b"left"
    with pytest.raises(PollShutdownError):
        await mailbox.poll()


def local_activity(seq: int) -> LocalActivityRequest:
    command = ScheduleLocalActivity(seq=seq, activity_id=str(seq), activity_type="activity")
    command.start_to_close_timeout.seconds = 60
    return LocalActivityRequest(RUN, command)


def local_shell() -> tuple[LocalActivityShell, Mailbox, list[Input]]:
    fed: list[Input] = []
    mailbox = Mailbox()
    dealer = Dealer(
        FixedSlots(10),
        lambda sticky: SlotReserveCtx(
            "local-activity", "queue", "worker", "", SlotDeploymentVersion("", ""), sticky
        ),
    )
    return LocalActivityShell(dealer, mailbox, fed.append, SILENT, Journal(Log(None))), mailbox, fed


async def test_la_cancel_delivered_before_eviction_activation() -> None:
    """The run may leave when lang's poll has the last cancellation, and not a moment earlier."""
    shell, mailbox, fed = local_shell()
    shell.request([local_activity(1), local_activity(2)])
    for _ in range(2):
        assert ActivityTask.FromString(await mailbox.poll()).HasField("start")
    shell.cancel_all(RUN.run_id)
    assert fed == []
    assert ActivityTask.FromString(await mailbox.poll()).HasField("cancel")
    await asyncio.sleep(0)
    assert fed == []
    assert ActivityTask.FromString(await mailbox.poll()).HasField("cancel")
    await asyncio.sleep(0)
    assert fed == [LocalCancelsDelivered(RUN.run_id)]


async def test_an_attempt_that_ends_first_is_not_cancelled_any_more() -> None:
    shell, mailbox, fed = local_shell()
    shell.request([local_activity(1)])
    task = ActivityTask.FromString(await mailbox.poll())
    shell.request([LocalActivityCancel(RUN.run_id, 1)])
    result = ActivityExecutionResult()
    result.completed.result.data = b"1"
    shell.complete(task.task_token, result)
    poll = mailbox.poll()
    assert not poll.done()
    assert [type(given) for given in fed] == [LocalResolved]
