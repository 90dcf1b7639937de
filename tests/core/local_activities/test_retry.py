"""Retry-policy arithmetic (the retry logic row of the catalogue)."""

import pytest
from temporalio.api.common.v1 import RetryPolicy
from temporalio.api.failure.v1 import Failure, ServerFailureInfo
from tests.core.support.history_builder import application_failure, duration

from perdure.core.local_activities.retry import retry_delay

FAILURE = application_failure()


def delays(policy: RetryPolicy, attempts: int) -> list[float | None]:
    return [retry_delay(policy, attempt, FAILURE) for attempt in range(1, attempts + 1)]


def test_the_defaults() -> None:
    assert delays(RetryPolicy(), 9) == [1, 2, 4, 8, 16, 32, 64, 100, 100]


def test_the_delay_grows_up_to_the_maximum() -> None:
    policy = RetryPolicy(
        initial_interval=duration(1.5), backoff_coefficient=3, maximum_interval=duration(10)
    )
    assert delays(policy, 4) == [1.5, 4.5, 10, 10]


def test_attempts_run_out() -> None:
    assert delays(RetryPolicy(maximum_attempts=3), 4) == [1, 2, None, None]


def test_the_maximum_is_never_below_the_first_delay() -> None:
    policy = RetryPolicy(initial_interval=duration(5), maximum_interval=duration(2))
    assert delays(policy, 2) == [5, 5]


def test_the_delay_never_shrinks() -> None:
    assert delays(RetryPolicy(backoff_coefficient=0.5), 2) == [1, 1]


def test_an_overflow_is_the_maximum() -> None:
    policy = RetryPolicy(backoff_coefficient=10, maximum_interval=duration(50))
    assert retry_delay(policy, 1_000_000, FAILURE) == 50


@pytest.mark.parametrize("listed", ["Fault", "fault", "FAULT"])
def test_types_are_compared_without_case(listed: str) -> None:
    assert retry_delay(RetryPolicy(non_retryable_error_types=[listed]), 1, FAILURE) is None


def test_other_types_are_retried() -> None:
    assert retry_delay(RetryPolicy(non_retryable_error_types=["Other"]), 1, FAILURE) == 1


def test_failures_that_say_so_are_final() -> None:
    assert retry_delay(RetryPolicy(), 1, application_failure(non_retryable=True)) is None
    server = Failure(server_failure_info=ServerFailureInfo(non_retryable=True))
    assert retry_delay(RetryPolicy(), 1, server) is None


def test_the_failure_may_name_the_delay() -> None:
    failure = application_failure()
    failure.application_failure_info.next_retry_delay.CopyFrom(duration(7.5))
    assert retry_delay(RetryPolicy(), 1, failure) == 7.5
    assert retry_delay(RetryPolicy(maximum_attempts=1), 1, failure) is None
