"""What is logged of calls that fail and are made again: the first time, and after many."""

from __future__ import annotations

from typing import Final

from perdure.temporal.connection.retry import Retries
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.telemetry.log_filter import DEBUG, WARN
from perdure.temporal.telemetry.logs import Log

__all__ = ["log_retry"]

_TARGET: Final = "temporalio_client::retry"


def log_retry(log: Log, call: str, retries: Retries, error: RPCError) -> None:
    """The RPC `call` failed and will be made again."""
    if retries.attempt == 1:
        log.write(DEBUG, _TARGET, f"gRPC call {call} failed on first attempt", error=error.status)
    elif retries.worth_a_warning:
        text = f"gRPC call {call} retried {retries.attempt} times"
        log.write(WARN, _TARGET, text, error=error.status)
