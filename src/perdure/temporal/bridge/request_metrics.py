"""Counts and latencies of the calls to the server, one of each for every attempt.

A call is labelled with its operation and, for the workflow service, with the namespace and the task
queue that its request names. A request is parsed for that only if there are metrics.
"""

from __future__ import annotations

import time
from typing import Any, Final

from perdure.temporal.bridge.core_metrics import CoreMetrics, Label
from perdure.temporal.bridge.errors import RPCError
from perdure.temporal.bridge.rpcs import Rpc

__all__ = ["RequestMetrics", "RequestRecord"]

_CODES: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_NO_CONNECTION: Final = "failed to connect to all addresses"
"""How gRPC begins the text of a call that never left; no server has seen it."""

_WITHOUT_TASK_QUEUE: Final = frozenset({"shutdown_worker", "start_activity_execution"})
"""Requests that name a task queue which the official core does not put on their metrics."""


class RequestMetrics:
    """The request metrics of one runtime; without metrics they do nothing."""

    def __init__(self, metrics: CoreMetrics) -> None:
        self._metrics = metrics

    def start(self, rpc: Rpc, request: bytes, *, long: bool) -> RequestRecord:
        """A record of the call; each attempt of it begins with `attempt`."""
        if not self._metrics.enabled:
            return _SILENT
        return _Recording(self._metrics.labelled(**_labels(rpc, request)), long=long)


class RequestRecord:
    """One call that nobody measures."""

    __slots__ = ()

    def attempt(self) -> None:
        """The request is sent now, maybe not for the first time."""

    def failed(self, error: RPCError) -> None:
        """The attempt ended so."""

    def succeeded(self) -> None:
        """The attempt was answered."""


_SILENT = RequestRecord()


class _Recording(RequestRecord):
    __slots__ = ("_metrics", "_name", "_started")

    def __init__(self, metrics: CoreMetrics, *, long: bool) -> None:
        self._metrics = metrics
        self._name = "long_request" if long else "request"
        self._started = 0.0

    def attempt(self) -> None:
        self._started = time.monotonic()
        self._metrics.count(self._name)

    def failed(self, error: RPCError) -> None:
        self.succeeded()
        shown = _CODES[error.code] if error.code < len(_CODES) else str(error.code)
        if error.message.startswith(_NO_CONNECTION):
            shown = "TRANSPORT_ERROR"
        self._metrics.labelled(status_code=shown).count(f"{self._name}_failure")

    def succeeded(self) -> None:
        self._metrics.took(f"{self._name}_latency", time.monotonic() - self._started)


def _labels(rpc: Rpc, request: bytes) -> dict[str, Label]:
    labels: dict[str, Label] = {}
    if rpc.request_type is not None:
        message = rpc.request_type.FromString(request)
        if message.namespace:
            labels["namespace"] = message.namespace
        task_queue = "" if rpc.name in _WITHOUT_TASK_QUEUE else _task_queue(message)
        if task_queue:
            labels["task_queue"] = task_queue
    labels["operation"] = rpc.operation
    return labels


def _task_queue(message: Any) -> str:
    """The task queue that a request is about; for a sticky one, the task queue it belongs to."""
    if "operations" in message.DESCRIPTOR.fields_by_name:
        message = next((each.start_workflow for each in message.operations), message)
    queue = getattr(message, "task_queue", "")
    if isinstance(queue, str):
        return queue
    return str(queue.normal_name or queue.name)
