"""Catalogue: client/src/retry.rs, the rules of retries."""

from __future__ import annotations

import pytest

from perdure.core.status_codes import message_too_large
from perdure.temporal.connection.retry import CALLS, POLLS, Backoff, Retries

UNKNOWN, INVALID, DEADLINE, NOT_FOUND, EXHAUSTED, UNAVAILABLE = 2, 3, 4, 5, 8, 14


def middle() -> float:
    return 0.5


def retries(backoff: Backoff = CALLS, *, poll: bool = False) -> Retries:
    return Retries(backoff, poll=poll, now=0.0, random=middle)


@pytest.mark.parametrize("code", [2, 8, 10, 11, 13, 14, 15])
def test_what_the_world_does_wrong_is_tried_again(code: int) -> None:
    assert retries().after(code, "", 0.0) is not None


@pytest.mark.parametrize("code", [1, 3, 4, 5, 6, 7, 9, 12, 16])
def test_what_the_caller_does_wrong_is_final(code: int) -> None:
    assert retries().after(code, "", 0.0) is None


@pytest.mark.parametrize(("text", "again"), [("CANCELLED", True), ("context canceled", False)])
def test_a_stream_that_was_reset_is_opened_again(text: str, again: bool) -> None:
    assert (retries().after(1, text, 0.0) is not None) == again


def test_waits_grow_to_the_longest() -> None:
    calls = retries(Backoff(0.1, 2.0, 0.5, 0.2, None, 0))
    waits = [calls.after(UNAVAILABLE, "", 0.0) for _ in range(5)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_jitter_spreads_a_wait() -> None:
    backoff = Backoff(1.0, 2.0, 5.0, 0.2, None, 0)
    assert backoff.delay(1, lambda: 0.0) == pytest.approx(0.8)
    assert backoff.delay(1, lambda: 1.0) == pytest.approx(1.2)


def test_the_number_of_attempts_is_bounded() -> None:
    calls = retries(Backoff(0.1, 1.0, 0.1, 0.0, None, 2))
    outcomes = [calls.after(UNAVAILABLE, "", 0.0) for _ in range(2)]
    assert [outcome is None for outcome in outcomes] == [False, True]


def test_the_time_of_all_retries_is_bounded() -> None:
    calls = retries()
    assert calls.after(UNAVAILABLE, "", 9.0) is not None
    assert calls.after(UNAVAILABLE, "", 9.95) is None


def test_exhausted_resources_wait_at_least_their_own_schedule() -> None:
    calls = retries()
    assert calls.after(EXHAUSTED, "busy", 0.0) == pytest.approx(1.0)
    assert calls.after(EXHAUSTED, "busy", 0.0) == pytest.approx(2.0)


def test_a_message_too_large_is_never_sent_twice() -> None:
    text = "grpc: received message larger than max (5 vs. 4)"
    assert message_too_large(EXHAUSTED, text)
    assert retries().after(EXHAUSTED, text, 0.0) is None
    assert retries(POLLS, poll=True).after(EXHAUSTED, text, 0.0) is None


def test_a_poll_retries_for_ever() -> None:
    poll = retries(POLLS, poll=True)
    assert all(poll.after(UNAVAILABLE, "", 1e6) is not None for _ in range(100))
    assert poll.after(DEADLINE, "", 1e6) is not None


def test_a_poll_retries_anything_in_its_first_minute() -> None:
    assert retries(POLLS, poll=True).after(NOT_FOUND, "", 59.0) == 10.0
    assert retries(POLLS, poll=True).after(NOT_FOUND, "", 61.0) is None
