"""How many polls are wanted: the rules as tables, and loops that follow them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse
from temporalio.bridge.worker import PollerBehaviorAutoscaling, PollerBehaviorSimpleMaximum

from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.slots.fixed import FixedSlots
from perdure.temporal.worker.polling.polls import Pollers
from perdure.temporal.worker.polling.scaling import LONG_POLL, SHORT_POLL, PollScaler
from perdure.temporal.worker.settings import PollerCounts, poller_counts

SCALED = PollerCounts(2, 20, 10, scaled=True)


def task(at: float, suggestion: int | None = None) -> dict[str, Any]:
    return {"empty": False, "suggestion": suggestion, "now": at}


def empty(at: float, suggestion: int | None = None) -> dict[str, Any]:
    return {"empty": True, "suggestion": suggestion, "now": at}


@pytest.mark.parametrize(
    ("answers", "target"),
    [
        ([task(0, 3)], 13),
        ([task(0, -3)], 7),
        ([task(0, 0)], 10),
        ([task(0, 100)], 20),
        ([task(0, -100)], 2),
        ([empty(0)], 10),
        ([empty(0, 0), empty(0)], 9),
        ([empty(0, 0), task(0)], 10),
        ([empty(0, 0), empty(0), empty(0)], 8),
    ],
)
def test_the_server_suggests(answers: list[dict[str, Any]], target: int) -> None:
    scaler = PollScaler(SCALED)
    for answer in answers:
        scaler.polled(**answer)
    assert scaler.target == target


def test_an_empty_poll_counts_where_suggestions_are_known() -> None:
    scaler = PollScaler(SCALED)
    scaler.suggests = True
    scaler.polled(**empty(0))
    assert scaler.target == 9


@pytest.mark.parametrize(
    ("before", "then", "grows"),
    [(10, 11, True), (10, 10, False), (10, 20, True), (0, 0, True), (1, 0, False)],
)
def test_it_grows_only_while_more_tasks_come_in(before: int, then: int, grows: bool) -> None:
    scaler = PollScaler(SCALED)
    for at, tasks in ((0.05, before), (0.15, then)):
        for _ in range(tasks):
            scaler.polled(**task(at))
    scaler.polled(**empty(0.25, 5))
    assert scaler.target == (15 if grows else 10)


def test_after_a_quiet_time_it_may_grow_again() -> None:
    scaler = PollScaler(SCALED)
    for _ in range(10):
        scaler.polled(**task(0.05))
    scaler.polled(**empty(60.0, 5))
    assert scaler.target == 15


def test_it_shrinks_at_any_rate() -> None:
    scaler = PollScaler(SCALED)
    for _ in range(10):
        scaler.polled(**task(0.05))
    scaler.polled(**task(0.25, -1))
    assert scaler.target == 9


@pytest.mark.parametrize(("code", "target"), [(8, 5), (14, 10), (7, 10)])
def test_lack_of_resources_halves(code: int, target: int) -> None:
    scaler = PollScaler(SCALED)
    scaler.failed(code)
    assert scaler.target == target


def test_a_busy_worker_polls_shortly() -> None:
    scaler = PollScaler(SCALED)
    assert scaler.deadline(0.0) == LONG_POLL
    scaler.polled(**task(0.05))
    scaler.polled(**task(0.06))
    assert scaler.deadline(0.07) == LONG_POLL, "the period is not over"
    assert scaler.deadline(0.15) == SHORT_POLL
    assert scaler.deadline(0.25) == LONG_POLL


def test_a_fixed_number_stays() -> None:
    scaler = PollScaler(PollerCounts(5, 5, 5))
    scaler.suggests = True
    scaler.polled(**task(0.05, 3))
    scaler.polled(**task(0.05, -3))
    scaler.polled(**empty(0.05))
    scaler.failed(8)
    assert scaler.target == 5
    assert scaler.deadline(0.15) == LONG_POLL


@pytest.mark.parametrize(
    ("behavior", "text"),
    [
        (PollerBehaviorSimpleMaximum(0), "SimpleMaximum poller behavior must be at least 1"),
        (
            PollerBehaviorAutoscaling(0, 3, 1),
            "Autoscaling minimum poller behavior must be at least 1",
        ),
        (
            PollerBehaviorAutoscaling(5, 3, 5),
            "Autoscaling maximum must be greater than or equal to minimum",
        ),
        (
            PollerBehaviorAutoscaling(1, 3, 5),
            "Autoscaling initial must be between minimum and maximum",
        ),
        (
            PollerBehaviorAutoscaling(2, 3, 1),
            "Autoscaling initial must be between minimum and maximum",
        ),
    ],
)
def test_impossible_behaviors_are_refused(behavior: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^Invalid worker config: {text}$"):
        poller_counts(behavior)


async def test_loops_that_end_together_leave_the_wanted_number() -> None:
    """Each of them is one too many; without a new one, nobody would poll ever again."""
    asked: asyncio.Queue[asyncio.Future[PollNexusTaskQueueResponse]] = asyncio.Queue()

    async def poll(_seconds: float) -> PollNexusTaskQueueResponse:
        answer: asyncio.Future[PollNexusTaskQueueResponse] = asyncio.Future()
        asked.put_nowait(answer)
        return await answer

    def deliver(_task: object, permit: Permit) -> None:
        permit.release()

    def unexpected(*given: object) -> None:
        raise AssertionError(given)

    nothing = SimpleNamespace(began=_ignore, ended=_ignore, answered=_ignore)
    dealer = Dealer(FixedSlots(10), cast("Any", lambda _sticky: None))
    pollers: Pollers[PollNexusTaskQueueResponse] = Pollers(
        PollerCounts(1, 10, 3, scaled=True),
        reserve=dealer.reserve,
        poll=poll,
        deliver=deliver,
        failed=unexpected,
        retried=unexpected,
        metrics=cast("Any", nothing),
    )
    pollers.start()
    answers = [await asked.get() for _ in range(3)]
    fewer = PollNexusTaskQueueResponse(task_token=b"task")
    fewer.poller_scaling_decision.poll_request_delta_suggestion = -10
    for answer in answers:
        answer.set_result(fewer)
    async with asyncio.timeout(30):
        await asked.get()
    assert pollers.under_way == 1
    await pollers.ended(by_server=False)
    assert dealer.out == 0


def _ignore(*_given: object, **_named: object) -> None:
    """Metrics are not what this is about."""
