"""When a local activity is tried again.

The server decides this for ordinary activities; for local ones the worker does, by the same rules.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1.message_pb2 import RetryPolicy
from temporalio.api.failure.v1.message_pb2 import Failure

from perdure.core.durations import seconds

__all__ = ["DEFAULT_POLICY", "retry_delay"]

_DEFAULT_INITIAL: Final = 1.0
_DEFAULT_COEFFICIENT: Final = 2.0
_MAXIMUM_OVER_INITIAL: Final = 100.0

DEFAULT_POLICY: Final = RetryPolicy(
    initial_interval=Duration(seconds=1),
    backoff_coefficient=_DEFAULT_COEFFICIENT,
    maximum_interval=Duration(seconds=100),
)
"""What a local activity sees of its retries when its workflow says nothing about them."""


def retry_delay(policy: RetryPolicy, attempt: int, failure: Failure) -> float | None:
    """Seconds to wait before the attempt after `attempt` (from 1); None if there is none."""
    if policy.maximum_attempts and attempt >= policy.maximum_attempts:
        return None
    info = failure.application_failure_info
    if info.non_retryable or failure.server_failure_info.non_retryable:
        return None
    if failure.HasField("application_failure_info"):
        kind = info.type.casefold()
        if any(kind == listed.casefold() for listed in policy.non_retryable_error_types):
            return None
        if info.HasField("next_retry_delay"):
            return seconds(info.next_retry_delay)
    return _by_policy(policy, attempt)


def _by_policy(policy: RetryPolicy, attempt: int) -> float:
    initial = seconds(policy.initial_interval) or _DEFAULT_INITIAL
    coefficient = max(policy.backoff_coefficient or _DEFAULT_COEFFICIENT, 1.0)
    longest = seconds(policy.maximum_interval) or initial * _MAXIMUM_OVER_INITIAL
    longest = max(longest, initial)
    try:
        return float(min(initial * coefficient ** (attempt - 1), longest))
    except OverflowError:
        return longest
