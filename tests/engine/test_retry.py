"""Retry policies: arithmetic only."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from perdure.engine.errors import InvalidOption
from perdure.engine.retry import DEFAULT_RETRY, RetryPolicy, seconds


@pytest.mark.parametrize(("failed", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0)])
def test_delay_doubles_up_to_the_maximum(failed: int, expected: float) -> None:
    policy = RetryPolicy(jitter=0)
    assert policy.delay(failed, random.Random(1)) == expected


def test_delay_is_capped_for_any_number_of_failures() -> None:
    policy = RetryPolicy(jitter=0, maximum=10, factor=1e300)
    assert policy.delay(10_000, random.Random(1)) == 10


def test_jitter_stays_below_half_a_second() -> None:
    delays = [DEFAULT_RETRY.delay(1, random.Random(seed)) for seed in range(200)]
    assert all(1.0 <= delay < 1.5 for delay in delays)
    assert len(set(delays)) > 100


def test_attempts_mean_attempts_d22() -> None:
    assert RetryPolicy(attempts=1).gives_up(ValueError(), attempt=1, elapsed=0)
    assert not RetryPolicy(attempts=2).gives_up(ValueError(), attempt=1, elapsed=0)
    assert RetryPolicy(attempts=2).gives_up(ValueError(), attempt=2, elapsed=0)
    assert not RetryPolicy(attempts=None).gives_up(ValueError(), attempt=10**6, elapsed=0)


def test_non_retryable_errors_count_with_their_subclasses() -> None:
    policy = RetryPolicy(non_retryable=(LookupError,))
    assert policy.gives_up(KeyError("x"), attempt=1, elapsed=0)
    assert not policy.gives_up(ValueError("x"), attempt=1, elapsed=0)


def test_total_timeout_ends_the_attempts() -> None:
    policy = RetryPolicy(attempts=None, total_timeout=60)
    assert not policy.gives_up(ValueError(), attempt=50, elapsed=59.9)
    assert policy.gives_up(ValueError(), attempt=2, elapsed=60)


def test_override_replaces_what_it_names() -> None:
    policy = DEFAULT_RETRY.override({"attempts": 2, "timeout": timedelta(minutes=1)})
    assert (policy.attempts, policy.timeout, policy.factor) == (2, 60.0, DEFAULT_RETRY.factor)
    assert DEFAULT_RETRY.override({}) is DEFAULT_RETRY


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"factor": 0.5},
        {"initial": -1.0},
        {"maximum": float("nan")},
        {"timeout": -0.1},
        {"total_timeout": float("inf")},
        {"heartbeat_timeout": 1e12},
    ],
)
def test_senseless_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        DEFAULT_RETRY.override(options)
    assert caught.value.option == next(iter(options))


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), timedelta(seconds=-1), 1e12])
def test_durations_have_bounds(duration: Any) -> None:
    with pytest.raises(InvalidOption, match="duration"):
        seconds(duration, "duration")
