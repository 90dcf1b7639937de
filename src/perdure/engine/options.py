"""What can be set about an engine, with defaults that suit one process and one store."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.engine.errors import InvalidOption

__all__ = ["EngineOptions"]

_INTERVALS = ("poll_interval", "ping_interval", "lost_after", "metrics_interval", "prune_interval")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of an engine and its worker. Times are in seconds. Raises `InvalidOption`.

    `linger`: how long a waiting run stays in memory before it goes to sleep.
    `poll_interval`: the safety net; work normally starts because a doorbell rings or a timer fires.
    `max_running`: how many workflows one worker holds in memory at once.
    `pull_batch`: how many workflows one transaction leases.
    `threads`, `processes`: size of the pools for sync activities; None is one per CPU.
    `ping_interval`, `lost_after`: liveness; a worker silent for `lost_after` loses its leases.
    `metrics_interval`: how often one worker publishes the gauges of the whole store.
    `shutdown`: how long a graceful shutdown waits for running steps.
    `version`: of several workers that serve a workflow name, only the highest version pulls it.
    `prune_after`: closed workflows older than this are pruned; None never prunes.
    `prune_interval`: how often one worker looks for them.
    `shed_load`: whether a worker with a busy CPU leaves a part of the due work to others.
    """

    linger: float = 1.0
    poll_interval: float = 4.0
    max_running: int = 1000
    pull_batch: int = 100
    threads: int = 16
    processes: int | None = None
    ping_interval: float = 10.0
    lost_after: float = 30.0
    metrics_interval: float = 20.0
    shutdown: float = 30.0
    version: int = 0
    prune_after: float | None = 7 * 86_400.0
    prune_interval: float = 3_600.0
    shed_load: bool = True

    def __post_init__(self) -> None:
        # Written so that NaN fails every rule.
        for name in ("max_running", "pull_batch", "threads", "processes"):
            count = getattr(self, name)
            if count is not None and not count >= 1:
                raise InvalidOption(name, count, "at least 1")
        for name in _INTERVALS:
            if not getattr(self, name) > 0:
                raise InvalidOption(name, getattr(self, name), "more than 0 seconds")
        if self.lost_after <= 2 * self.ping_interval:
            raise InvalidOption("lost_after", self.lost_after, "more than two ping intervals")
        for name in ("linger", "shutdown", "prune_after"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds >= 0:
                raise InvalidOption(name, seconds, "not negative")
