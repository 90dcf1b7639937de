"""Metrics: what is exported, and the rules for gauges of the whole store."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from perdure.clock import VirtualClock
from perdure.engine.database.gauges import Gauges
from perdure.engine.metrics import EngineMetrics


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def metrics(clock: VirtualClock) -> EngineMetrics:
    return EngineMetrics(clock=clock)


def value(metrics: EngineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"perdure_{name}", labels)


def test_every_event_reaches_its_metric(metrics: EngineMetrics) -> None:
    metrics.pinged(1_500)
    metrics.gauges_published(2_500)
    metrics.bumped(3)
    metrics.pulled(7, 0.25)
    metrics.load_sampled(0.7, 0.5)
    metrics.dispatched("fulfil", 0.1, parent="order")
    metrics.found("fulfil", 0.1)
    metrics.woken("fulfil", 0.1)
    metrics.ended("fulfil", 0.1)
    metrics.suspended("fulfil", 0.1)
    metrics.workflow_failed("fulfil", "ValueError")
    metrics.activity_finished("fulfil", "charge", 0.2)
    metrics.activity_failed("fulfil", "charge", "TimeoutError")
    metrics.loop_committed("fulfil", 0.1)
    metrics.loop_iterated("fulfil", 0.1)
    metrics.signal_sent("paid", 0.1)
    metrics.signal_received("fulfil", "paid", 4.0)
    metrics.message_sent("news", workflow="fulfil")
    metrics.operation_started("quote")
    metrics.operation_finished("quote", 0.1, "ValueError")

    assert value(metrics, "worker_last_ping_timestamp_seconds") == 1.5
    assert value(metrics, "worker_last_metrics_publish_timestamp_seconds") == 2.5
    assert value(metrics, "worker_bumps_per_tick_sum") == 3
    assert value(metrics, "workflow_leased_sum") == 7
    assert value(metrics, "pull_workflows_duration_seconds_sum") == 0.25
    assert value(metrics, "last_pull_workflows_duration_seconds") == 0.25
    assert value(metrics, "load_shedding_ratio_sum") == 0.5
    assert (
        value(
            metrics,
            "workflow_dispatched_total",
            parent_workflow_name="order",
            workflow_name="fulfil",
        )
        == 1
    )
    for name in (
        "workflow_dispatch_duration_seconds",
        "find_workflows_duration_seconds",
        "workflow_wake_delta_seconds",
        "complete_workflow_duration_seconds",
        "commit_workflow_duration_seconds",
        "loop_commit_duration_seconds",
        "loop_iteration_duration_seconds",
    ):
        assert value(metrics, f"{name}_count", workflow_name="fulfil") == 1, name
    assert value(metrics, "workflow_errors_total", workflow_name="fulfil", error="ValueError") == 1
    charge = {"workflow_name": "fulfil", "activity_name": "charge"}
    assert value(metrics, "activity_duration_seconds_sum", **charge) == 0.2
    assert value(metrics, "activity_errors_total", error="TimeoutError", **charge) == 1
    paid = {"workflow_name": "fulfil", "signal_name": "paid"}
    assert value(metrics, "signal_recv_lag_seconds_sum", **paid) == 4.0
    assert value(metrics, "signal_published_total", workflow_name="", signal_name="paid") == 1
    assert (
        value(metrics, "message_published_total", workflow_name="fulfil", message_name="news") == 1
    )
    assert value(metrics, "operation_pending", operation_name="quote") == 0
    assert value(metrics, "operation_errors_total", operation_name="quote", error="ValueError") == 1


def test_workflows_in_memory_are_counted(metrics: EngineMetrics) -> None:
    metrics.workflow_in_memory("fulfil", 1)
    metrics.workflow_in_memory("fulfil", 1)
    metrics.workflow_in_memory("fulfil", -1)

    assert metrics.in_memory == {"fulfil": 1}
    assert value(metrics, "worker_workflow_active", workflow_name="fulfil") == 1


def test_transactions_are_timed_by_name_and_outcome_and_retries_counted(
    metrics: EngineMetrics,
) -> None:
    metrics.transactions.transaction("take", 0.5, 1, "committed")
    metrics.transactions.transaction("take", 0.5, 4, "committed")

    labels = {"transaction": "take", "outcome": "committed"}
    assert value(metrics, "kv_transaction_duration_seconds_count", **labels) == 2
    assert value(metrics, "kv_transaction_retries_total", transaction="take") == 3


def test_engines_do_not_share_a_registry_by_accident() -> None:
    assert EngineMetrics().registry is not EngineMetrics().registry
    shared = CollectorRegistry()
    EngineMetrics(shared)
    with pytest.raises(ValueError, match="Duplicated"):
        EngineMetrics(shared)


def test_only_the_holder_of_the_chore_exports_the_store(metrics: EngineMetrics) -> None:
    assert b"perdure_workflow_sleeping" not in generate_latest(metrics.registry)

    metrics.global_gauges.expose(Gauges({"fulfil": {"sleeping": 3, "dead": 2}}, {"paid": 4}), 60)

    assert value(metrics, "workflow_sleeping", workflow_name="fulfil") == 3
    assert value(metrics, "workflow_dead", workflow_name="fulfil") == 2
    assert value(metrics, "workflow_active", workflow_name="fulfil") == 0
    assert value(metrics, "workflow_total", workflow_name="fulfil") == 5
    assert value(metrics, "signal_pending", signal_name="paid") == 4

    metrics.global_gauges.hide()

    assert b"perdure_workflow_sleeping" not in generate_latest(metrics.registry)


def test_exposed_gauges_expire_when_they_are_not_renewed(
    metrics: EngineMetrics, clock: VirtualClock
) -> None:
    metrics.global_gauges.expose(Gauges({"fulfil": {"running": 1}}, {}), 30)
    clock.advance(29_999)
    assert value(metrics, "workflow_active", workflow_name="fulfil") == 1
    clock.advance(1)
    assert value(metrics, "workflow_active", workflow_name="fulfil") is None


def test_vanished_names_go_to_zero(metrics: EngineMetrics) -> None:
    metrics.global_gauges.expose(Gauges({"fulfil": {"sleeping": 3}}, {"paid": 1}), 60)
    metrics.global_gauges.expose(Gauges({}, {}), 60)

    assert value(metrics, "workflow_sleeping", workflow_name="fulfil") == 0
    assert value(metrics, "workflow_total", workflow_name="fulfil") == 0
    assert value(metrics, "signal_pending", signal_name="paid") == 0


def test_negative_counts_are_clamped_and_do_not_hide_others(metrics: EngineMetrics) -> None:
    metrics.global_gauges.expose(Gauges({"fulfil": {"sleeping": -5, "dead": 2}}, {"paid": -1}), 60)

    assert value(metrics, "workflow_sleeping", workflow_name="fulfil") == 0
    assert value(metrics, "workflow_total", workflow_name="fulfil") == 2
    assert value(metrics, "signal_pending", signal_name="paid") == 0
