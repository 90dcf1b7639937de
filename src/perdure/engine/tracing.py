"""OpenTelemetry spans for runs, activities, operations and store transactions.

Only the OpenTelemetry API is used; the application chooses the SDK and where spans go. Whether a
provider is configured is asked once, when the engine starts: without one every method returns the
same do-nothing context manager, so tracing costs one attribute test per step.

**Traces follow rays.** A workflow is run in many pieces, by many processes, over days. All of them
share the ray id of the first dispatch, so the trace id *is* the ray's random part: every run,
activity and child workflow of a ray lands in one trace without anything being carried between
processes. Sampling must then be decided from the trace id alone, the same way everywhere: `ratio`
keeps that share of rays whole, and a parent-based sampler (the SDK's default) follows.

A run that goes to sleep is not an error: control flow derives from `BaseException` and sets the
attribute `perdure.suspended`, while an `Exception` is recorded and sets the span's status.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType
from typing import Final

from opentelemetry import context as otel_context, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
)

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.engine.metrics import TransactionMetrics
from perdure.ids import Id
from perdure.kv import TransactionObserver

__all__ = ["EngineTracing", "observe_transactions"]

# Of the lower half of a UUID the two highest bits are fixed, the rest is random.
_RANDOM_BITS: Final = (1 << 62) - 1


class _Nothing:
    """The span of an engine without tracing."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


_NOTHING: Final = _Nothing()


class _OpenSpan:
    """A started span, current while the block runs."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None

    def __enter__(self) -> Span:
        self._token = otel_context.attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            otel_context.detach(self._token)
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        elif error is not None:
            self._span.set_attribute("perdure.suspended", type(error).__name__)
        self._span.end()


class EngineTracing:
    """Makes spans. `enabled` is False when no provider is configured.

    `provider` defaults to the application's global one; `ratio` (0 to 1) is the share of rays that
    is sampled.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        ratio: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        chosen = trace.get_tracer_provider() if provider is None else provider
        self.enabled: Final = not isinstance(chosen, ProxyTracerProvider | NoOpTracerProvider)
        self._tracer = chosen.get_tracer("perdure")
        self._bound = round(ratio * (_RANDOM_BITS + 1))
        self._clock = clock

    def workflow_run(
        self, name: str, workflow_id: Id, ray_id: Id, *, epoch: int
    ) -> AbstractContextManager[Span | None]:
        """One run of a workflow: from taking its lease to sleep or end."""
        if not self.enabled:
            return _NOTHING
        return _OpenSpan(
            self._tracer.start_span(
                f"workflow {name}",
                context=self._ray_context(ray_id),
                kind=SpanKind.CONSUMER,
                attributes={
                    "perdure.workflow.name": name,
                    "perdure.workflow.id": str(workflow_id),
                    "perdure.ray.id": str(ray_id),
                    "perdure.lease.epoch": epoch,
                },
            )
        )

    def activity(
        self,
        name: str,
        *,
        workflow_name: str,
        workflow_id: Id,
        ray_id: Id,
        location: str,
        attempt: int,
    ) -> AbstractContextManager[Span | None]:
        """One attempt of an activity, inside the run's span. `location` is its text form."""
        if not self.enabled:
            return _NOTHING
        return _OpenSpan(
            self._tracer.start_span(
                f"activity {name}",
                context=self._inside(ray_id),
                attributes={
                    "perdure.activity.name": name,
                    "perdure.activity.attempt": attempt,
                    "perdure.location": location,
                    "perdure.workflow.name": workflow_name,
                    "perdure.workflow.id": str(workflow_id),
                    "perdure.ray.id": str(ray_id),
                },
            )
        )

    def operation(self, name: str, ray_id: Id) -> AbstractContextManager[Span | None]:
        """One operation, inside whatever calls it."""
        if not self.enabled:
            return _NOTHING
        return _OpenSpan(
            self._tracer.start_span(
                f"operation {name}",
                context=self._inside(ray_id),
                attributes={"perdure.operation.name": name, "perdure.ray.id": str(ray_id)},
            )
        )

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        """Add the span of a transaction that has just ended, if it ran inside a traced block."""
        if not self.enabled or not trace.get_current_span().is_recording():
            return
        end = self._clock.now() * 1_000_000
        span = self._tracer.start_span(
            f"transaction {name}",
            start_time=end - int(seconds * 1e9),
            attributes={
                "perdure.transaction.name": name,
                "perdure.transaction.attempts": attempts,
                "perdure.transaction.outcome": outcome,
            },
        )
        span.end(end)

    def _inside(self, ray_id: Id) -> Context | None:
        """None (the current context) inside a span, else the ray's own."""
        if trace.get_current_span().get_span_context().is_valid:
            return None
        return self._ray_context(ray_id)

    def _ray_context(self, ray_id: Id) -> Context:
        trace_id = ray_id.uuid.int
        sampled = (trace_id & _RANDOM_BITS) < self._bound
        parent = SpanContext(
            trace_id=trace_id,
            # The version bits of a UUID sit in the upper half, so it is never zero.
            span_id=trace_id >> 64,
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
        )
        return trace.set_span_in_context(NonRecordingSpan(parent))


class _Both:
    __slots__ = ("_metrics", "_tracing")

    def __init__(self, metrics: TransactionMetrics, tracing: EngineTracing) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        self._metrics.transaction(name, seconds, attempts, outcome)
        self._tracing.transaction(name, seconds, attempts, outcome)


def observe_transactions(
    metrics: TransactionMetrics, tracing: EngineTracing
) -> TransactionObserver:
    """The observer to set on the database: metrics always, spans only when tracing is enabled."""
    return _Both(metrics, tracing) if tracing.enabled else metrics
