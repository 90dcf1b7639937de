"""The engine's metrics, in Prometheus form, prefix `perdure_`.

One method per thing that happens: the engine calls `metrics.activity_finished(...)` and knows
nothing about label sets or buckets. Label children are cached in plain dictionaries, because
looking a child up in the client library costs as much as observing it. A durable step costs one
observation here and one in `transactions`.

All durations are given in seconds. Labels are names chosen by programmers (workflows, activities,
signals, transactions, error types), never ids or texts, so the number of label sets is bounded.

Metrics of the whole store (`perdure_workflow_sleeping` and the like) are in `global_gauges`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.engine.global_gauges import GlobalGauges

__all__ = ["EngineMetrics", "TransactionMetrics"]

_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0,
)  # fmt: skip
_MICRO_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0,
)  # fmt: skip
_COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARE_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Key = TypeVar("Key", bound=str | tuple[str, ...])
Child = TypeVar("Child")


class _Children(dict[Key, Child], Generic[Key, Child]):
    """Label values to the family's child; filled on first use by `make`, the family's `labels`."""

    def __init__(self, make: Callable[..., Child]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Child:
        child: Child = self._make(key) if isinstance(key, str) else self._make(*key)
        self[key] = child
        return child


class TransactionMetrics:
    """The observer of a `perdure.kv.Database`: every named transaction, timed and counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration: _Children[tuple[str, str], Histogram] = _Children(
            Histogram(
                "perdure_kv_transaction_duration_seconds",
                "Time of a transaction with all its attempts, by name and outcome.",
                ["transaction", "outcome"],
                buckets=_MICRO_BUCKETS,
                registry=registry,
            ).labels
        )
        self._retries: _Children[str, Counter] = _Children(
            Counter(
                "perdure_kv_transaction_retries",
                "Attempts of a transaction beyond its first.",
                ["transaction"],
                registry=registry,
            ).labels
        )

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        """Record one finished transaction. `outcome` is one of the few words the store uses."""
        self._duration[name, outcome].observe(seconds)
        if attempts > 1:
            self._retries[name].inc(attempts - 1)


class EngineMetrics:
    """All metrics of one engine, in `registry` (by default one of its own).

    An own registry lets several engines live in one process; pass `prometheus_client.REGISTRY` to
    export them with the application's metrics. Registering two engines in one registry raises
    `ValueError` (from the client library).
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self.global_gauges = GlobalGauges(clock)
        self.registry.register(self.global_gauges)
        self.transactions = TransactionMetrics(self.registry)
        self.in_memory: dict[str, int] = {}
        """How many runs of each workflow this worker holds in memory now."""
        self._define_worker()
        self._define_workflows()
        self._define_steps()
        self._define_signals_and_messages()
        self._define_operations()

    # Families -----------------------------------------------------------------------------------

    def _histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = _BUCKETS
    ) -> Histogram:
        return Histogram(f"perdure_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"perdure_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"perdure_{name}", text, labels, registry=self.registry)

    def _define_worker(self) -> None:
        self._last_ping = self._gauge(
            "worker_last_ping_timestamp_seconds", "When this worker last wrote its ping."
        )
        self._last_publish = self._gauge(
            "worker_last_metrics_publish_timestamp_seconds",
            "When this worker last published the gauges of the store; 0 if it never did.",
        )
        self._bumps = self._histogram(
            "worker_bumps_per_tick", "Wake-up messages handled by one poll.", (), _COUNT_BUCKETS
        )
        self._pull = self._histogram(
            "pull_workflows_duration_seconds", "Finding and leasing due workflows.", ()
        )
        self._last_pull = self._gauge(
            "last_pull_workflows_duration_seconds", "Finding and leasing, last pull."
        )
        self._leased = self._histogram(
            "workflow_leased", "Workflows leased by one pull.", (), _COUNT_BUCKETS
        )
        self._worker_active: _Children[str, Gauge] = _Children(
            self._gauge("worker_workflow_active", "Workflows in memory.", ["workflow_name"]).labels
        )
        self._cpu_smoothed = self._histogram(
            "cpu_usage_smoothed", "CPU in use, smoothed, share of 1.", (), _SHARE_BUCKETS
        )
        self._shedding = self._histogram(
            "load_shedding_ratio", "Share of due work this worker takes.", (), _SHARE_BUCKETS
        )

    def _define_workflows(self) -> None:
        self._dispatched: _Children[tuple[str, str], Counter] = _Children(
            self._counter(
                "workflow_dispatched",
                "Workflows created; the parent is empty for those not started by a workflow.",
                ["parent_workflow_name", "workflow_name"],
            ).labels
        )
        self._dispatch: _Children[str, Histogram] = _Children(
            self._histogram(
                "workflow_dispatch_duration_seconds", "Storing one dispatch.", ["workflow_name"]
            ).labels
        )
        self._find: _Children[str, Histogram] = _Children(
            self._histogram(
                "find_workflows_duration_seconds", "Finding by name and tags.", ["workflow_name"]
            ).labels
        )
        self._wake_delta: _Children[str, Histogram] = _Children(
            self._histogram(
                "workflow_wake_delta_seconds",
                "From a wake condition (deadlines apart) to the lease.",
                ["workflow_name"],
                _MICRO_BUCKETS,
            ).labels
        )
        self._complete: _Children[str, Histogram] = _Children(
            self._histogram(
                "complete_workflow_duration_seconds", "Storing an end.", ["workflow_name"]
            ).labels
        )
        self._commit: _Children[str, Histogram] = _Children(
            self._histogram(
                "commit_workflow_duration_seconds", "Putting a run to sleep.", ["workflow_name"]
            ).labels
        )
        self._workflow_errors: _Children[tuple[str, str], Counter] = _Children(
            self._counter(
                "workflow_errors",
                "Runs that ended with an error, by type of error.",
                ["workflow_name", "error"],
            ).labels
        )

    def _define_steps(self) -> None:
        names = ["workflow_name", "activity_name"]
        self._activity: _Children[tuple[str, str], Histogram] = _Children(
            self._histogram(
                "activity_duration_seconds", "One attempt of an activity.", names
            ).labels
        )
        self._activity_errors: _Children[tuple[str, str, str], Counter] = _Children(
            self._counter(
                "activity_errors", "Failed attempts, by type of error.", [*names, "error"]
            ).labels
        )
        self._loop_commit: _Children[str, Histogram] = _Children(
            self._histogram(
                "loop_commit_duration_seconds",
                "Storing a loop's progress.",
                ["workflow_name"],
                _MICRO_BUCKETS,
            ).labels
        )
        self._loop_iteration: _Children[str, Histogram] = _Children(
            self._histogram(
                "loop_iteration_duration_seconds", "One iteration of a loop.", ["workflow_name"]
            ).labels
        )

    def _define_signals_and_messages(self) -> None:
        signal = ["workflow_name", "signal_name"]
        message = ["workflow_name", "message_name"]
        self._signal_published: _Children[tuple[str, str], Counter] = _Children(
            self._counter("signal_published", "Signals sent, by sending workflow.", signal).labels
        )
        self._signal_send: _Children[tuple[str, str], Histogram] = _Children(
            self._histogram("signal_send_duration_seconds", "Storing one signal.", signal).labels
        )
        self._signal_lag: _Children[tuple[str, str], Histogram] = _Children(
            self._histogram("signal_recv_lag_seconds", "From sending to receiving.", signal).labels
        )
        self._message_published: _Children[tuple[str, str], Counter] = _Children(
            self._counter("message_published", "Messages sent.", message).labels
        )

    def _define_operations(self) -> None:
        name = ["operation_name"]
        self._operation_pending: _Children[str, Gauge] = _Children(
            self._gauge("operation_pending", "Operations in progress.", name).labels
        )
        self._operation: _Children[str, Histogram] = _Children(
            self._histogram("operation_duration_seconds", "One operation.", name).labels
        )
        self._operation_errors: _Children[tuple[str, str], Counter] = _Children(
            self._counter("operation_errors", "Failed operations.", [*name, "error"]).labels
        )

    # Worker -------------------------------------------------------------------------------------

    def pinged(self, now: int) -> None:
        """This worker wrote its ping at `now` (ms since the epoch)."""
        self._last_ping.set(now / 1000)

    def gauges_published(self, now: int) -> None:
        """This worker, holding the metrics chore, exposed the store's gauges at `now` (ms)."""
        self._last_publish.set(now / 1000)

    def bumped(self, count: int) -> None:
        """One poll handled `count` wake-up messages."""
        self._bumps.observe(count)

    def pulled(self, leased: int, seconds: float) -> None:
        """One pull leased `leased` workflows. Loading them is the transaction `load`."""
        self._leased.observe(leased)
        self._pull.observe(seconds)
        self._last_pull.set(seconds)

    def workflow_in_memory(self, workflow: str, change: int) -> None:
        """A run started (+1) or left memory (-1) in this worker."""
        count = self.in_memory[workflow] = self.in_memory.get(workflow, 0) + change
        self._worker_active[workflow].set(count)

    def load_sampled(self, cpu: float, ratio: float) -> None:
        """Smoothed CPU in use, and the share of due work taken: each 0 to 1."""
        self._cpu_smoothed.observe(cpu)
        self._shedding.observe(ratio)

    # Workflows ----------------------------------------------------------------------------------

    def dispatched(self, workflow: str, seconds: float, parent: str = "") -> None:
        """A workflow was created, by the workflow `parent` or from outside."""
        self._dispatched[parent, workflow].inc()
        self._dispatch[workflow].observe(seconds)

    def found(self, workflow: str, seconds: float) -> None:
        """A search by name and tags ended."""
        self._find[workflow].observe(seconds)

    def woken(self, workflow: str, seconds: float) -> None:
        """A workflow was leased `seconds` after its wake condition was stored."""
        self._wake_delta[workflow].observe(seconds)

    def ended(self, workflow: str, seconds: float) -> None:
        """The end of a workflow (result, death, cancel) was stored in `seconds`."""
        self._complete[workflow].observe(seconds)

    def suspended(self, workflow: str, seconds: float) -> None:
        """A run was put to sleep; storing that took `seconds`."""
        self._commit[workflow].observe(seconds)

    def workflow_failed(self, workflow: str, error: str) -> None:
        """A run ended with an error. `error` is its type or code, never its text."""
        self._workflow_errors[workflow, error].inc()

    # Steps --------------------------------------------------------------------------------------

    def activity_finished(self, workflow: str, activity: str, seconds: float) -> None:
        """One attempt of an activity ended, well or not."""
        self._activity[workflow, activity].observe(seconds)

    def activity_failed(self, workflow: str, activity: str, error: str) -> None:
        """One attempt failed. `error` is its type or code, never its text."""
        self._activity_errors[workflow, activity, error].inc()

    def loop_committed(self, workflow: str, seconds: float) -> None:
        """A loop's progress was stored."""
        self._loop_commit[workflow].observe(seconds)

    def loop_iterated(self, workflow: str, seconds: float) -> None:
        """One iteration of a loop ran."""
        self._loop_iteration[workflow].observe(seconds)

    # Signals and messages -----------------------------------------------------------------------

    def signal_sent(self, signal: str, seconds: float, workflow: str = "") -> None:
        """A signal was stored, sent by `workflow` or from outside."""
        self._signal_published[workflow, signal].inc()
        self._signal_send[workflow, signal].observe(seconds)

    def signal_received(self, workflow: str, signal: str, lag: float) -> None:
        """`workflow` received a signal `lag` seconds after it was sent."""
        self._signal_lag[workflow, signal].observe(lag)

    def message_sent(self, message: str, workflow: str = "") -> None:
        """A message was published."""
        self._message_published[workflow, message].inc()

    # Operations ---------------------------------------------------------------------------------

    def operation_started(self, operation: str) -> None:
        """An operation began; `operation_finished` must follow."""
        self._operation_pending[operation].inc()

    def operation_finished(self, operation: str, seconds: float, error: str | None = None) -> None:
        """An operation ended. `error` is its type or code if it failed."""
        self._operation_pending[operation].dec()
        self._operation[operation].observe(seconds)
        if error is not None:
            self._operation_errors[operation, error].inc()
