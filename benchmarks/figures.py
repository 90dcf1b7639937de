"""What a measurement hands back: figures, and the line protocol that carries them.

A measurement runs in a child process and writes one line per figure to its standard output as soon
as it is known, so a measurement that fails half way still shows what it found. Lines without one
of our marks are somebody's log and are passed on untouched. Standard library only: the peer's
script imports this in a virtual environment that has none of our dependencies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

__all__ = ["Figure", "Note", "Section", "emit", "note", "parse_line", "percentile", "section_note"]

_FIGURE_MARK = "@figure "
_NOTE_MARK = "@note "
_PROGRESS_MARK = "@progress "


class Section(StrEnum):
    """The tables of the report, in the order they are printed."""

    APPEND = "append"
    ROCKSDB = "rocksdb"
    KV = "kv"
    STEPS = "perdure"
    DBOS = "dbos"
    DBOS_TUNED = "dbos-tuned"
    SLEEPERS = "sleepers"
    MEMORY = "memory"
    REPLAY = "temporal-replay"
    LIVE = "temporal-live"
    SIZE = "temporal-size"

    @property
    def heading(self) -> str:
        return _HEADINGS[self]


_HEADINGS = {
    Section.APPEND: "Raw limit: append 300 bytes per record, one fdatasync per group",
    Section.ROCKSDB: "Raw limit: bare RocksDB loop, one WAL fsync per group (300-byte values)",
    Section.KV: "perdure.kv on RocksDB: transactions that get one key and set one (300 bytes)",
    Section.STEPS: "perdure on RocksDB (fsync on)",
    Section.DBOS: "DBOS on SQLite, as it comes",
    Section.DBOS_TUNED: "DBOS on SQLite, tuned in its favour",
    Section.SLEEPERS: "perdure beside stored sleeping workflows",
    Section.MEMORY: "Memory of one perdure process",
    Section.REPLAY: "Replay by the official Temporal SDK, on perdure's core and the compiled one",
    Section.LIVE: "The official Temporal SDK on a dev server, on both cores",
    Section.SIZE: "A Temporal worker of each core",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number: the cell (`row`, `column`) of the table `section`."""

    section: Section
    row: str
    column: str
    value: float
    unit: str

    @property
    def key(self) -> str:
        return f"{self.section}/{self.row}/{self.column}"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark to print under the table of `section` (settings, caveats)."""

    section: Section
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A line for the person who waits."""

    text: str


def emit(section: Section, row: str, column: str, value: float, unit: str) -> None:
    """Report one figure to the parent process."""
    _write(_FIGURE_MARK, json.dumps(asdict(Figure(section, row, column, value, unit))))


def section_note(section: Section, text: str) -> None:
    """Report a remark that belongs under the table of `section`."""
    _write(_NOTE_MARK, json.dumps(asdict(Note(section, text))))


def note(text: str) -> None:
    """Report progress."""
    _write(_PROGRESS_MARK, text)


def parse_line(line: str) -> Figure | Note | Progress | None:
    """The report in `line`, or None when the line is not ours."""
    if line.startswith(_FIGURE_MARK):
        fields = json.loads(line.removeprefix(_FIGURE_MARK))
        return Figure(**{**fields, "section": Section(fields["section"])})
    if line.startswith(_NOTE_MARK):
        fields = json.loads(line.removeprefix(_NOTE_MARK))
        return Note(section=Section(fields["section"]), text=fields["text"])
    if line.startswith(_PROGRESS_MARK):
        return Progress(line.removeprefix(_PROGRESS_MARK).rstrip("\n"))
    return None


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0..1) of the samples do not exceed.

    Raises ValueError when there is no sample: a missing measurement must not read as zero.
    """
    if not samples:
        raise ValueError("no samples were taken: the measurement ran too short or did nothing")
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _write(mark: str, text: str) -> None:
    sys.stdout.write(f"{mark}{text}\n")
    sys.stdout.flush()
