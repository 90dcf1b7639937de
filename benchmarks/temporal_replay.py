"""Replay of long histories by the official Replayer, on both cores."""

from __future__ import annotations

from benchmarks.figures import Section, emit, note, section_note
from benchmarks.plan import Plan
from benchmarks.temporal_cores import CORES, run_case

__all__ = ["measure"]

_HISTORIES = {"rounds": "one by one", "batches": "50 at once"}
_RUNNERS = ("unsandboxed", "sandboxed")


def measure(plan: Plan) -> None:
    """Report events per second of both cores for each kind of history and runner."""
    section_note(
        Section.REPLAY,
        f"Histories of about {plan.replayed_events:,} events. One by one: an activity, a timer and "
        "a signal per round, each with a workflow task. 50 at once: batches of activities. "
        f"The best of {plan.replays} replays; processes of each core in turn: {plan.alternations}.",
    )
    for history, title in _HISTORIES.items():
        for runner in _RUNNERS:
            row = f"{title}, {runner}"
            note(row)
            best = dict.fromkeys(CORES, 0.0)
            for _ in range(plan.alternations):
                for core in CORES:
                    found = run_case(
                        core,
                        "replay",
                        history,
                        runner,
                        plan.replayed_events,
                        plan.replays // plan.alternations,
                    )
                    best[core] = max(best[core], found["events"] / found["seconds"])
            for core in CORES:
                emit(Section.REPLAY, row, f"{core} events/s", best[core], "/s")
