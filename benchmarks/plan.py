"""What every measurement is told: where to write, and how much time to spend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CACHE", "MEASUREMENTS", "ROOT", "Plan"]

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".bench"
"""Data folders and the peer's environment: on the repository's disk, ignored by git."""

MEASUREMENTS = (
    "raw",
    "kv",
    "engine_steps",
    "engine_sleepers",
    "engine_memory",
    "peer_dbos",
    "temporal_replay",
    "temporal_live",
    "temporal_size",
)
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

    @property
    def replayed_events(self) -> int:
        """How long the history is that both Temporal cores replay."""
        return 2_000 if self.quick else 10_000

    @property
    def replays(self) -> int:
        """How often each core replays it, over all processes."""
        return 2 if self.quick else 6

    @property
    def alternations(self) -> int:
        """In how many processes each core replays, taking turns with the other one."""
        return 1 if self.quick else 2

    @property
    def cached_workflows(self) -> int:
        """How many workflows a Temporal worker caches: fewer drown in what the allocators do."""
        return 1_000
