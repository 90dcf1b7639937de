"""How busy this node is, as a smoothed fraction of the CPU time it may use.

In a container the host's load says nothing: what counts is the time used by our control group over
the time its quota allows. So the source is, in this order, cgroup v2, cgroup v1, the process
itself; and what is available is the smallest quota on the way up, and never more than the CPUs we
may run on. Without a control group of our own the process is the measure, not the host: shedding
because of a stranger's load would not make the stranger lighter.

The smoothing is an exponential moving average with weight 0.95 per 150 ms, scaled to the time that
really passed, so that the result does not depend on how often somebody asks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.clock import Clock

__all__ = ["CpuMeter", "CpuSource", "find_source"]

logger = logging.getLogger(__name__)

SAMPLE_INTERVAL: Final = 0.150
"""Seconds; within it the last answer is repeated."""

BETA: Final = 0.95
"""Weight of the past after one sample interval."""


@dataclass(frozen=True, slots=True)
class CpuSource:
    """Where usage comes from: `used()` in CPU seconds since any start, `cpus` that may be used."""

    name: str
    used: Callable[[], float]
    cpus: float


class CpuMeter:
    """Smoothed CPU usage; 1.0 means all that this node may use."""

    def __init__(self, clock: Clock, source: CpuSource | None = None) -> None:
        self.source = source or find_source()
        self._clock = clock
        self._smoothed = 0.0
        self._sampled_at = clock.monotonic()
        self._used = self.source.used()

    def usage(self) -> float:
        """Return the smoothed usage. It starts at 0, so a new node takes work at once."""
        now = self._clock.monotonic()
        elapsed = now - self._sampled_at
        if elapsed < SAMPLE_INTERVAL:
            return self._smoothed
        self._sampled_at = now
        try:
            used = self.source.used()
        except (OSError, ValueError) as error:
            self._start_over(error)
            return self._smoothed
        current = max(used - self._used, 0.0) / elapsed / self.source.cpus
        past = BETA ** (elapsed / SAMPLE_INTERVAL)
        self._smoothed = past * self._smoothed + (1 - past) * current
        self._used = used
        return self._smoothed

    def _start_over(self, error: Exception) -> None:
        """Find a source again: the process was moved out of its control group."""
        lost = self.source.name
        self.source = find_source()
        self._used = self.source.used()
        logger.warning("cannot read %s (%s), now measuring by %s", lost, error, self.source.name)


def find_source(
    *,
    groups: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
    host_cpus: int | None = None,
) -> CpuSource:
    """Find the best source on this machine. The arguments are for tests."""
    cpus = float(host_cpus or _host_cpus())
    return _cgroup_v2(groups, root, cpus) or _cgroup_v1(groups, root, cpus) or _process(cpus)


def _host_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


def _process(cpus: float) -> CpuSource:
    return CpuSource("process", time.process_time, cpus)


def _cgroup_v2(groups: Path, root: Path, cpus: float) -> CpuSource | None:
    folder = _group_folder(groups, "", root)
    if folder is None or (folder == root and not (root / "cpu.max").exists()):
        # The root group of a host covers every process there is, not ours.
        return None
    stat = folder / "cpu.stat"

    def used() -> float:
        for line in stat.read_text().splitlines():
            field, _, value = line.partition(" ")
            if field == "usage_usec":
                return int(value) / 1e6
        raise ValueError(f"{stat} has no usage_usec")

    for group in _upwards(folder, root):
        limit = _read_words(group / "cpu.max")
        if len(limit) == 2 and limit[0] != "max":
            cpus = min(cpus, int(limit[0]) / int(limit[1]))
    return _working(CpuSource("cgroup v2", used, cpus))


def _cgroup_v1(groups: Path, root: Path, cpus: float) -> CpuSource | None:
    accounting = _group_folder(groups, "cpuacct", root / "cpuacct")
    scheduling = _group_folder(groups, "cpu", root / "cpu")
    if accounting is None or scheduling is None:
        return None
    quotas = []
    for group in _upwards(scheduling, root / "cpu"):
        quota = _read_words(group / "cpu.cfs_quota_us")
        period = _read_words(group / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            quotas.append(int(quota[0]) / int(period[0]))
    if accounting == root / "cpuacct" and not quotas:
        return None
    usage = accounting / "cpuacct.usage"
    return _working(
        CpuSource("cgroup v1", lambda: int(usage.read_text()) / 1e9, min([cpus, *quotas]))
    )


def _group_folder(groups: Path, controller: str, root: Path) -> Path | None:
    """Return the folder of our group for a v1 controller, or for v2 (controller "")."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = root / path.lstrip("/")
            # Inside a container the path may be the host's, while only our own part is mounted.
            return folder if folder.is_dir() else root if root.is_dir() else None
    return None


def _upwards(folder: Path, root: Path) -> list[Path]:
    return [group for group in (folder, *folder.parents) if group.is_relative_to(root)]


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _working(source: CpuSource) -> CpuSource | None:
    try:
        source.used()
    except (OSError, ValueError):
        return None
    return source
