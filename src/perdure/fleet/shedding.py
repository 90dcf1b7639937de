"""Load shedding: how much of the due work a busy node takes.

The curve is flat at `full` until `full_until`, falls in a straight line to `floor` at `floor_from`,
and is flat again. It never reaches zero unless asked to: with a single node somebody has to make
progress. Work that is shed stays in the store and goes to the understudies (see `assignment`).

The curve is checked when it is made, so it cannot fail while running.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.fleet.errors import InvalidSetting

__all__ = ["SheddingCurve"]


@dataclass(frozen=True, slots=True)
class SheddingCurve:
    """All four are fractions of one: CPU usage for the two bounds, work taken for the two levels.

    Raises `InvalidSetting`.
    """

    full_until: float = 0.70
    floor_from: float = 0.90
    full: float = 1.0
    floor: float = 0.05

    def __post_init__(self) -> None:
        # Written so that NaN fails every rule.
        if not 0 <= self.full_until < self.floor_from:
            rule = "it must be at least 0 and less than floor_from"
            raise InvalidSetting("full_until", self.full_until, rule)
        if not self.floor_from <= 1:
            raise InvalidSetting("floor_from", self.floor_from, "it must be at most 1")
        if not 0 <= self.full <= 1:
            raise InvalidSetting("full", self.full, "it must be between 0 and 1")
        if not 0 <= self.floor <= self.full:
            raise InvalidSetting("floor", self.floor, "it must be between 0 and full")

    def ratio(self, cpu: float) -> float:
        """Return the fraction of due work to take at this CPU usage (1 = all that we may use)."""
        if cpu <= self.full_until:
            return self.full
        if cpu >= self.floor_from:
            return self.floor
        fall = (self.full - self.floor) / (self.floor_from - self.full_until)
        return self.full - (cpu - self.full_until) * fall

    def keeps(self, cpu: float, chance: float) -> bool:
        """Return whether to take one item; `chance` is a random number in [0, 1), new each time."""
        return chance < self.ratio(cpu)
