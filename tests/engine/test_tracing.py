"""Spans: one trace per ray, and nothing at all without a provider."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from perdure.clock import VirtualClock
from perdure.engine.metrics import EngineMetrics
from perdure.engine.tracing import EngineTracing, observe_transactions
from perdure.ids import Id

WORKFLOW = Id.new()
RAY = Id.new()


class Sleep(BaseException):
    """Stands for the engine's control flow."""


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider


def spans(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exported.get_finished_spans()}


def test_without_a_provider_nothing_is_made() -> None:
    tracing = EngineTracing()
    metrics = EngineMetrics()

    assert not tracing.enabled
    with tracing.workflow_run("fulfil", WORKFLOW, RAY, epoch=1) as span:
        assert span is None
    assert observe_transactions(metrics.transactions, tracing) is metrics.transactions


def test_a_run_its_activities_and_transactions_nest_in_the_trace_of_the_ray(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    clock = VirtualClock(start_ms=5_000)
    tracing = EngineTracing(provider, clock=clock)
    metrics = EngineMetrics()
    observer = observe_transactions(metrics.transactions, tracing)
    with (
        tracing.workflow_run("fulfil", WORKFLOW, RAY, epoch=3),
        tracing.activity(
            "charge",
            workflow_name="fulfil",
            workflow_id=WORKFLOW,
            ray_id=RAY,
            location="{1}",
            attempt=2,
        ),
    ):
        observer.transaction("write_event", 0.25, 1, "committed")

    found = spans(exported)
    run, activity, transaction = (
        found["workflow fulfil"],
        found["activity charge"],
        found["transaction write_event"],
    )
    assert run.context is not None
    assert activity.context is not None
    assert activity.parent is not None
    assert transaction.parent is not None
    assert run.context.trace_id == RAY.uuid.int
    assert activity.parent.span_id == run.context.span_id
    assert transaction.parent.span_id == activity.context.span_id
    assert run.attributes is not None
    assert run.attributes["perdure.workflow.id"] == str(WORKFLOW)
    assert run.attributes["perdure.lease.epoch"] == 3
    assert activity.attributes is not None
    assert activity.attributes["perdure.location"] == "{1}"
    assert activity.attributes["perdure.activity.attempt"] == 2
    assert transaction.start_time == 4_750_000_000
    assert transaction.end_time == 5_000_000_000
    labels = {"transaction": "write_event", "outcome": "committed"}
    assert (
        metrics.registry.get_sample_value("perdure_kv_transaction_duration_seconds_count", labels)
        == 1
    )


def test_two_runs_of_one_ray_share_a_trace(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    for epoch in (1, 2):
        # An engine of its own each time: nothing is carried over in memory.
        with EngineTracing(provider).workflow_run("fulfil", WORKFLOW, RAY, epoch=epoch):
            pass

    first, second = exported.get_finished_spans()
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id == second.context.trace_id


def test_an_error_is_recorded_and_control_flow_is_not_an_error(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    tracing = EngineTracing(provider)
    with (
        pytest.raises(ValueError, match="boom"),
        tracing.workflow_run("failing", WORKFLOW, RAY, epoch=1),
    ):
        raise ValueError("boom")
    with pytest.raises(Sleep), tracing.workflow_run("sleeping", WORKFLOW, RAY, epoch=1):
        raise Sleep

    found = spans(exported)
    assert found["workflow failing"].status.status_code is StatusCode.ERROR
    sleeping = found["workflow sleeping"]
    assert sleeping.status.status_code is StatusCode.UNSET
    assert sleeping.attributes is not None
    assert sleeping.attributes["perdure.suspended"] == "Sleep"


def test_transactions_outside_of_traced_blocks_make_no_spans(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    EngineTracing(provider).transaction("ping", 0.1, 1, "committed")
    assert not exported.get_finished_spans()


def test_a_ratio_keeps_or_drops_whole_rays(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    with EngineTracing(provider, ratio=0.0).workflow_run("dropped", WORKFLOW, RAY, epoch=1):
        pass
    assert not exported.get_finished_spans()

    tracing = EngineTracing(provider, ratio=0.5)
    kept = set()
    for number in range(64):
        ray = Id.new(random_bytes=bytes([number]).__mul__)
        for _ in range(2):
            with tracing.operation("quote", ray):
                pass
        kept.add(ray.uuid.int)
    by_trace: dict[int, int] = {}
    for span in exported.get_finished_spans():
        assert span.context is not None
        by_trace[span.context.trace_id] = by_trace.get(span.context.trace_id, 0) + 1
    assert 0 < len(by_trace) < len(kept)
    assert set(by_trace.values()) == {2}
