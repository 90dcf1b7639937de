"""How much memory and processor time is in use, of what this process may use.

A container's limits count where control groups (version 2) set them: the nearest group upwards with
a limit decides, for each resource by itself. Without one it is the whole machine, measured with
psutil. Measurements are at least a tenth of a second apart; who asks sooner gets the last one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.temporal.errors import PackageMissing
from perdure.temporal.slots.resource_control import Usage

__all__ = ["SystemResources"]

_PAUSE = 0.1
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


class SystemResources:
    """Measures; see the module. Raises `PackageMissing` without psutil."""

    def __init__(
        self,
        groups: Path = _GROUPS,
        own_group: Path = _OWN_GROUP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._psutil = _psutil()
        ancestry = _ancestry(groups, own_group)
        self._memory_group = _nearest(ancestry, "memory.max")
        self._cpu_group = _nearest(ancestry, "cpu.max")
        self._measured_at = clock()
        self._cpu_used = self._cpu_time()
        self._last = Usage(self._memory(), 0.0, self._measured_at)

    def sample(self) -> Usage:
        """The use now, or a moment ago."""
        now = self._clock()
        passed = now - self._measured_at
        if passed >= _PAUSE:
            used = self._cpu_time()
            cpu = (used - self._cpu_used) / (passed * self._processors())
            self._last = Usage(self._memory(), max(0.0, min(1.0, cpu)), now)
            self._measured_at, self._cpu_used = now, used
        return self._last

    def _memory(self) -> float:
        if self._memory_group is None:
            return float(self._psutil.virtual_memory().percent) / 100
        limit = int((self._memory_group / "memory.max").read_text())
        used = int((self._memory_group / "memory.current").read_text())
        # Pages of files that were not used lately are given back before anything is refused.
        used -= _field(self._memory_group / "memory.stat", "inactive_file")
        return max(0.0, used / limit) if limit else 1.0

    def _cpu_time(self) -> float:
        """Seconds of processor time used so far."""
        if self._cpu_group is not None:
            return _field(self._cpu_group / "cpu.stat", "usage_usec") / 1e6
        times = self._psutil.cpu_times()
        return float(sum(times) - times.idle - getattr(times, "iowait", 0.0)) - _guests(times)

    def _processors(self) -> float:
        """Seconds of processor time that can be used in a second."""
        if self._cpu_group is None:
            return float(self._psutil.cpu_count() or 1)
        quota, period = (self._cpu_group / "cpu.max").read_text().split()
        return int(quota) / int(period)


def _guests(times: Any) -> float:
    """Time of guests, which the system counts as time of their hosts as well."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


def _psutil() -> Any:
    try:
        return importlib.import_module("psutil")
    except ImportError:
        raise PackageMissing("measuring the use of memory and processor", "psutil") from None


def _ancestry(groups: Path, own_group: Path) -> list[Path]:
    """This process's group and all above it."""
    if not own_group.exists():
        return []
    for line in own_group.read_text().splitlines():
        if line.startswith("0::"):
            group = groups / line[3:].strip("/")
            return [group, *(parent for parent in group.parents if parent.is_relative_to(groups))]
    return []


def _nearest(ancestry: list[Path], name: str) -> Path | None:
    for group in ancestry:
        file = group / name
        if file.exists() and not file.read_text().startswith("max"):
            return group
    return None


def _field(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
