"""The proof that kills left no mark: pure checks over what was observed from outside.

Three witnesses that do not know of each other: the trace file (a line at every start of an
activity, written by the activity itself), the histories in the store (which results were recorded,
read after each kill while no worker runs), and a plain scan of the same files without any engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stdlib_index.source import Totals

__all__ = ["Check", "Kill", "Start", "checks", "read_starts"]


@dataclass(frozen=True)
class Start:
    """An activity began to read `path` in process `pid`."""

    pid: int
    path: str


@dataclass(frozen=True)
class Kill:
    """The world right after a kill at instant `at` (ms).

    `starts` is how many starts were traced by then, `recorded` are the files with a stored result,
    `running` the ids of the package workflows that had begun and not ended.
    """

    at: int
    starts: int
    recorded: frozenset[str]
    running: frozenset[str]


@dataclass(frozen=True)
class Check:
    """One statement and whether it holds; `detail` gives the numbers."""

    statement: str
    holds: bool
    detail: str


def read_starts(runs_log: Path) -> list[Start]:
    """All starts, in the order in which they were written."""
    lines = runs_log.read_text().splitlines() if runs_log.exists() else []
    return [Start(int(pid), path) for pid, path in (line.split("\t", 1) for line in lines)]


def interruptions(kills: Sequence[Kill], starts: Sequence[Start]) -> Counter[str]:
    """How many kills hit each file: started by the killed worker, but no result recorded."""
    hit = Counter[str]()
    begin = 0
    for kill in kills:
        hit.update({start.path for start in starts[begin : kill.starts]} - kill.recorded)
        begin = kill.starts
    return hit


def checks(
    *,
    paths: Sequence[str],
    starts: Sequence[Start],
    kills: Sequence[Kill],
    recorded: Mapping[str, int],
    reported: Totals,
    scanned: Totals,
) -> list[Check]:
    """Hold the witnesses against each other.

    `paths` are all files of the scan, `recorded` says how many results the histories hold for each
    file, `reported` and `scanned` are the totals of the workflow and of the plain scan.
    """
    missing = set(paths) - set(recorded)
    surplus = sum(count - 1 for count in recorded.values()) + len(set(recorded) - set(paths))
    repeated = [
        start.path
        for kill in kills
        for start in starts[kill.starts :]
        if start.path in kill.recorded
    ]
    kept = len(frozenset[str]().union(*(kill.recorded for kill in kills)))
    hit = interruptions(kills, starts)
    repetitions = Counter(start.path for start in starts) - Counter(set(paths))
    unexplained = repetitions - hit
    return [
        Check(
            "every file has exactly one recorded result",
            not missing and not surplus,
            f"{len(recorded):,} of {len(paths):,}, {len(missing)} missing, {surplus} too many",
        ),
        Check(
            "no finished activity ran twice",
            not repeated,
            f"{kept:,} results recorded before a kill, {len(repeated)} of them started again",
        ),
        Check(
            "only what was in flight at a kill ran again",
            not unexplained,
            f"{hit.total()} in flight, {repetitions.total()} ran again, "
            f"{unexplained.total()} without a reason",
        ),
        Check(
            "the totals equal those of a plain scan",
            reported == scanned,
            f"{reported.files:,} files, {reported.lines:,} lines, "
            f"{reported.definitions:,} definitions, checksum {reported.checksum[:12]}",
        ),
    ]
