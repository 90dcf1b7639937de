"""The ratios the project promises, computed from the figures of one run. Pure.

A ratio whose two sides were not both measured is left out of the table, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.figures import Figure, Section

__all__ = ["Ratio", "ratios"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """`value` = `over` divided by `under`; `goal` says what we want it to be."""

    name: str
    value: float
    goal: str


def ratios(figures: Iterable[Figure]) -> list[Ratio]:
    """All ratios that `figures` allow, in the order of the report."""
    table = {figure.key: figure.value for figure in figures}
    rows = [key.split("/")[1] for key in table if key.startswith(f"{Section.STEPS}/")]
    return [
        *_against_peer(table, list(dict.fromkeys(rows))),
        *_against_floor(table),
        *_with_sleepers(table),
    ]


def _against_peer(table: Mapping[str, float], rows: list[str]) -> Iterator[Ratio]:
    for row in rows:
        ours = table.get(f"{Section.STEPS}/{row}/steps/s")
        theirs = [
            table[key]
            for section in (Section.DBOS, Section.DBOS_TUNED)
            if (key := f"{section}/{row}/steps/s") in table
        ]
        if ours is not None and theirs:
            name = f"perdure / best DBOS, steps/s, {row}"
            yield Ratio(name, ours / max(theirs), "higher is better")


def _against_floor(table: Mapping[str, float]) -> Iterator[Ratio]:
    pairs = (
        (
            "perdure.kv / bare RocksDB, 50 at once",
            f"{Section.KV}/50 concurrent/transactions/s",
            f"{Section.ROCKSDB}/groups of 50/writes/s",
            "higher is better",
        ),
        (
            "perdure steps/s 500 x 10 / bare RocksDB, groups of 500",
            f"{Section.STEPS}/500 x 10/steps/s",
            f"{Section.ROCKSDB}/groups of 500/writes/s",
            "higher is better",
        ),
        (
            "perdure steps/s 50 x 10 / perdure.kv, 50 at once",
            f"{Section.STEPS}/50 x 10/steps/s",
            f"{Section.KV}/50 concurrent/transactions/s",
            "higher is better",
        ),
        (
            "perdure step p50, one workflow / one fdatasync p50",
            f"{Section.STEPS}/1 x 10/step p50",
            f"{Section.APPEND}/groups of 1/group p50",
            "at most 2",
        ),
    )
    for name, over, under, goal in pairs:
        if over in table and under in table:
            yield Ratio(name, table[over] / table[under], goal)


def _with_sleepers(table: Mapping[str, float]) -> Iterator[Ratio]:
    empty = table.get(f"{Section.SLEEPERS}/0/workflows/s")
    if empty is None:
        return
    prefix, suffix = f"{Section.SLEEPERS}/", "/workflows/s"
    for key, value in table.items():
        if key.startswith(prefix) and key.endswith(suffix) and key != f"{prefix}0{suffix}":
            count = key.removeprefix(prefix).removesuffix(suffix)
            yield Ratio(f"workflows/s beside {count} sleepers / beside none", value / empty, "1")
