"""Histories that several tests share, each the smallest that shows its shape."""

from __future__ import annotations

from tests.core.support.history_builder import HistoryBuilder

__all__ = [
    "failed_task",
    "local_activity_heartbeats",
    "local_activity_markers",
    "parallel_timers",
    "sequential_timers",
    "single_activity",
    "single_signal",
    "single_timer",
    "timed_out_task",
    "two_signals",
]


def single_timer(seq: int = 1) -> HistoryBuilder:
    """1 started, 2-4 task, 5 timer started, 6 fired, 7-8 task started."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timer = built.timer_started(seq)
    built.timer_fired(timer, seq)
    built.task_scheduled_and_started()
    return built


def sequential_timers(count: int, *, end: bool = True) -> HistoryBuilder:
    """`count` tasks with one timer each, then the task that completes the workflow."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for seq in range(1, count + 1):
        timer = built.timer_started(seq)
        built.timer_fired(timer, seq)
        built.full_task()
    if end:
        built.completed()
    return built


def parallel_timers(*seqs: int) -> HistoryBuilder:
    """All timers in the first task; they fire in this order."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    timers = [(built.timer_started(seq), seq) for seq in seqs]
    for timer, seq in timers:
        built.timer_fired(timer, seq)
    built.task_scheduled_and_started()
    return built


def single_activity(activity_id: str = "1") -> HistoryBuilder:
    """1 started, 2-4 task, 5 scheduled, 6 started, 7 completed, 8-9 task started."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    scheduled = built.activity_scheduled(activity_id)
    started = built.activity_started(scheduled)
    built.activity_completed(scheduled, started, "done")
    built.task_scheduled_and_started()
    return built


def single_signal() -> HistoryBuilder:
    """A task without commands, a signal, a started task."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled("signal-1")
    built.task_scheduled_and_started()
    return built


def two_signals() -> HistoryBuilder:
    """A task without commands, two signals, a started task."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled("signal-1")
    built.signaled("signal-2")
    built.task_scheduled_and_started()
    return built


def failed_task(seq: int = 1) -> HistoryBuilder:
    """As `single_timer`, but the task after the timer fails once and is started again."""
    built = single_timer(seq)
    built.task_failed()
    built.task_scheduled_and_started()
    return built


def timed_out_task(seq: int = 1) -> HistoryBuilder:
    """As `single_timer`, but the task after the timer times out once and is started again."""
    built = single_timer(seq)
    built.task_timed_out()
    built.task_scheduled_and_started()
    return built


def local_activity_markers(count: int) -> HistoryBuilder:
    """One task that ran `count` local activities and completed the workflow."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for seq in range(1, count + 1):
        built.local_activity_marker(seq, f"result-{seq}", activation_index=seq)
    built.completed()
    return built


def local_activity_heartbeats(count: int) -> HistoryBuilder:
    """A local activity so long that `count` tasks were only heartbeats; then marker and end."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    for _ in range(count):
        built.full_task()
    built.local_activity_marker(1, "done", activation_index=1)
    built.completed()
    return built
