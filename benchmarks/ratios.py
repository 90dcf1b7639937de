"""The ratios the project promises, computed from the figures of one run. Pure.

A ratio whose two sides were not both measured is left out of the table, never guessed. One whose
sides saw different machines (see `probe`) says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.figures import Figure, Section

__all__ = ["Ratio", "ratios"]

_SAME_MACHINE = 1.5
"""Two probes that differ by less than this factor count as the same machine."""

_MORE = "higher is better"


@dataclass(frozen=True, slots=True)
class Ratio:
    """`value` is what the name says; `goal` what we want it to be; `caution` why to doubt it."""

    name: str
    value: float
    goal: str
    caution: str = ""


def ratios(figures: Iterable[Figure]) -> list[Ratio]:
    """All ratios that `figures` allow, in the order of the report."""
    table = {figure.key: figure.value for figure in figures}
    return [
        *_against_peer(table),
        *_against_floor(table),
        *_with_sleepers(table),
        *_against_compiled_core(table),
    ]


def _against_peer(table: Mapping[str, float]) -> Iterator[Ratio]:
    for row in _rows(table, Section.STEPS):
        theirs = [
            (table[key], section)
            for section in (Section.DBOS, Section.DBOS_TUNED)
            if (key := f"{section}/{row}/steps/s") in table
        ]
        if theirs:
            best, peer = max(theirs)
            value = table[f"{Section.STEPS}/{row}/steps/s"] / best
            name = f"perdure / best DBOS, steps/s, {row}"
            yield Ratio(name, value, _MORE, _drift(table, Section.STEPS, row, peer, row))


def _against_floor(table: Mapping[str, float]) -> Iterator[Ratio]:
    pairs = (
        (
            "perdure.kv / bare RocksDB, 50 at once",
            f"{Section.KV}/50 concurrent/transactions/s",
            f"{Section.ROCKSDB}/groups of 50/writes/s",
            _MORE,
        ),
        (
            "perdure steps/s 500 x 10 / bare RocksDB, groups of 500",
            f"{Section.STEPS}/500 x 10/steps/s",
            f"{Section.ROCKSDB}/groups of 500/writes/s",
            _MORE,
        ),
        (
            "perdure steps/s 50 x 10 / perdure.kv, 50 at once",
            f"{Section.STEPS}/50 x 10/steps/s",
            f"{Section.KV}/50 concurrent/transactions/s",
            _MORE,
        ),
        (
            "perdure step p50, one workflow / fdatasync p50 beside it",
            f"{Section.STEPS}/1 x 10/step p50",
            f"{Section.STEPS}/1 x 10/fdatasync",
            "at most 2",
        ),
    )
    for name, over, under, goal in pairs:
        if over in table and under in table:
            yield Ratio(name, table[over] / table[under], goal)


def _with_sleepers(table: Mapping[str, float]) -> Iterator[Ratio]:
    for row in _rows(table, Section.SLEEPERS):
        if row != "0":
            speeds = [table.get(f"{Section.SLEEPERS}/{each}/workflows/s") for each in (row, "0")]
            if speeds[0] is not None and speeds[1] is not None:
                name = f"workflows/s beside {row} sleepers / beside none"
                caution = _drift(table, Section.SLEEPERS, row, Section.SLEEPERS, "0")
                yield Ratio(name, speeds[0] / speeds[1], "at least 0.9", caution)


def _against_compiled_core(table: Mapping[str, float]) -> Iterator[Ratio]:
    for section, column, goal in (
        (Section.REPLAY, "events/s", "at least 1"),
        (Section.LIVE, "workflows/s", _MORE),
        (Section.LIVE, "CPU", "lower is better"),
    ):
        for key, ours in table.items():
            found, row, name = key.split("/", 2)
            theirs = table.get(f"{section}/{row}/compiled {column}")
            if found == section and name == f"perdure {column}" and theirs is not None:
                yield Ratio(f"perdure / compiled core, {column}, {row}", ours / theirs, goal)
    for column in ("per 1,000 workflows", "import"):
        sides = [table.get(f"{Section.SIZE}/{core}/{column}") for core in ("perdure", "compiled")]
        if sides[0] is not None and sides[1]:
            name = f"perdure / compiled core, {column}"
            yield Ratio(name, sides[0] / sides[1], "lower is better")


def _rows(table: Mapping[str, float], section: Section) -> list[str]:
    """The rows of one section that have been measured to their end."""
    return [
        row
        for key in table
        for found, row, column in [key.split("/", 2)]
        if found == section and column == "fdatasync"
    ]


def _drift(
    table: Mapping[str, float], ours: Section, our_row: str, theirs: Section, their_row: str
) -> str:
    ours_took = table[f"{ours}/{our_row}/fdatasync"]
    theirs_took = table[f"{theirs}/{their_row}/fdatasync"]
    drift = ours_took / theirs_took
    if 1 / _SAME_MACHINE < drift < _SAME_MACHINE:
        return ""
    return f"fdatasync took {ours_took:.2f} ms above the line, {theirs_took:.2f} ms below"
