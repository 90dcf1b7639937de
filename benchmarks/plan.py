"""What every measurement is told: where to write, and how much time to spend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CACHE", "MEASUREMENTS", "ROOT", "Plan"]

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".bench"
"""Data folders and the peer's environment: on the repository's disk, ignored by git."""

MEASUREMENTS = ("raw", "kv", "engine_steps", "engine_sleepers", "engine_memory", "peer_dbos")
"""Module names, in the order they run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of one run. `folder` is fresh and belongs to this measurement alone."""

    folder: Path
    quick: bool

    @property
    def seconds(self) -> float:
        """How long one cell of a table is loaded."""
        return 1.0 if self.quick else 3.0

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """How many workflows run at once."""
        return (1, 50) if self.quick else (1, 50, 500)

    @property
    def activities(self) -> tuple[int, ...]:
        """How many activities one workflow calls, one after the other."""
        return (1, 10)

    @property
    def sleepers(self) -> tuple[int, ...]:
        """How many sleeping workflows are stored while others run; growing."""
        return (0, 10_000) if self.quick else (0, 10_000, 1_000_000)

    @property
    def memory_workflows(self) -> int:
        """How many workflows the memory measurement divides by."""
        return 1_000 if self.quick else 5_000
