"""Whether the machine can bear one more task: two controllers and their rule, without a clock.

Each controller looks at one resource and answers with a number that falls as its use comes near
the target, sooner when the use rises quickly. A slot may be handed out while both numbers are above
their thresholds and the memory is not above its target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["PidController", "ResourceControl", "Targets", "Usage"]

_MEMORY_THRESHOLD = 0.25
_CPU_THRESHOLD = 0.05
_SHOW_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Targets:
    """The use that is aimed at, as parts of the whole (0 to 1)."""

    memory: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What is in use, as parts of the whole (0 to 1), and when that was measured, in seconds."""

    memory: float
    cpu: float
    at: float = field(default=0.0, compare=False)


class PidController:
    """Proportional, integral and derivative parts, each and in sum within `limit` of zero.

    The derivative is of the measurement, not of the error, so that a new target makes no kick.
    """

    def __init__(
        self,
        target: float,
        *,
        proportional: float = 5.0,
        integral: float = 0.0,
        derivative: float = 1.0,
        limit: float = 100.0,
    ) -> None:
        self._target = target
        self._gains = (proportional, integral, derivative)
        self._limit = limit
        self._sum = 0.0
        self._last: float | None = None

    def next(self, measured: float) -> float:
        """The answer to the next measurement; measurements come at equal intervals."""
        proportional, integral, derivative = self._gains
        error = self._target - measured
        self._sum = self._bound(self._sum + integral * error)
        rise = 0.0 if self._last is None else measured - self._last
        self._last = measured
        parts = self._bound(proportional * error) + self._sum - self._bound(derivative * rise)
        return self._bound(parts)

    def _bound(self, value: float) -> float:
        return max(-self._limit, min(self._limit, value))


class ResourceControl:
    """The decision for all slots of one worker; what it sees is shown once a second at most."""

    def __init__(
        self,
        targets: Targets,
        sample: Callable[[], Usage],
        show: Callable[[str, float], None] = lambda _name, _value: None,
    ) -> None:
        self._targets = targets
        self._sample = sample
        self._show = show
        self._memory = PidController(targets.memory)
        self._cpu = PidController(targets.cpu)
        self._shown_at = float("-inf")

    def has_room(self) -> bool:
        """Whether one more task fits now."""
        usage = self._sample()
        memory, cpu = self._memory.next(usage.memory), self._cpu.next(usage.cpu)
        if usage.at - self._shown_at >= _SHOW_PAUSE:
            self._shown_at = usage.at
            self._show("resource_slots_mem_usage", usage.memory * 100)
            self._show("resource_slots_cpu_usage", usage.cpu * 100)
            self._show("resource_slots_mem_pid_output", memory)
            self._show("resource_slots_cpu_pid_output", cpu)
        return (
            memory > _MEMORY_THRESHOLD
            and cpu > _CPU_THRESHOLD
            and usage.memory <= self._targets.memory
        )
