"""Counts and latencies of the calls to the server, one of each for every attempt.

A call is labelled with its operation, the namespace it is for, and the task queue that its request
names. Only requests that can name one are parsed, and only if there are metrics.
"""

from __future__ import annotations

import time
from typing import Any, Final

from perdure.temporal.connection.rpcs import Rpc
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.telemetry.core_metrics import CoreMetrics, Label

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

_START_IN_STEPS: Final = "operations"
_TASK_QUEUES: Final = frozenset({"task_queue", _START_IN_STEPS})
"""Fields of requests that say which task queue they are about."""

_WITHOUT_TASK_QUEUE: Final = frozenset({"shutdown_worker", "start_activity_execution"})
"""Requests that name a task queue which the compiled core does not put on their metrics."""


class RequestMetrics:
    """The request metrics of one runtime; without metrics they do nothing."""

    def __init__(self, metrics: CoreMetrics) -> None:
        self._metrics = metrics

    def start(
        self, rpc: Rpc, request: bytes, *, namespace: str | None, long: bool
    ) -> RequestRecord:
        """A record of the call; each attempt of it begins with `attempt`."""
        if not self._metrics.enabled:
            return _SILENT
        return _Recording(self._metrics.labelled(**_labels(rpc, request, namespace)), long=long)


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


def _labels(rpc: Rpc, request: bytes, namespace: str | None) -> dict[str, Label]:
    labels: dict[str, Label] = {}
    if namespace:
        labels["namespace"] = namespace
    if rpc.request_type is not None and _names_task_queue(rpc.name, rpc.request_type):
        task_queue = _task_queue(rpc.request_type.FromString(request))
        if task_queue:
            labels["task_queue"] = task_queue
    labels["operation"] = rpc.operation
    return labels


def _names_task_queue(name: str, request_type: Any) -> bool:
    fields = request_type.DESCRIPTOR.fields_by_name
    return name not in _WITHOUT_TASK_QUEUE and not _TASK_QUEUES.isdisjoint(fields)


def _task_queue(message: Any) -> str:
    """The task queue that a request is about; for a sticky one, the task queue it belongs to."""
    if _START_IN_STEPS in message.DESCRIPTOR.fields_by_name:
        message = next((each.start_workflow for each in message.operations), message)
    queue = getattr(message, "task_queue", "")
    if isinstance(queue, str):
        return queue
    return str(queue.normal_name or queue.name)
