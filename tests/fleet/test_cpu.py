"""CPU usage: the right source, the right share, smoothed by time and not by questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.clock import VirtualClock
from perdure.fleet import CpuMeter
from perdure.fleet.cpu import CpuSource, find_source


@dataclass
class FakeCpu:
    seconds: float = 100.0

    def used(self) -> float:
        return self.seconds


def run_busy(clock: VirtualClock, cpu: FakeCpu, meter: CpuMeter, share: float, step: int) -> float:
    """Six seconds in steps of `step` ms at `share` of two CPUs."""
    for _ in range(6000 // step):
        clock.advance(step)
        cpu.seconds += share * 2 * step / 1000
        usage = meter.usage()
    return usage


def test_usage_is_a_share_of_what_is_available() -> None:
    clock, cpu = VirtualClock(), FakeCpu()
    meter = CpuMeter(clock, CpuSource("fake", cpu.used, cpus=2))
    assert meter.usage() == 0
    assert run_busy(clock, cpu, meter, 0.8, 150) == pytest.approx(0.8 * (1 - 0.95**40))


def test_smoothing_does_not_depend_on_how_often_it_is_asked() -> None:
    results = []
    for step in (150, 300, 1500, 6000):
        clock, cpu = VirtualClock(), FakeCpu()
        meter = CpuMeter(clock, CpuSource("fake", cpu.used, cpus=2))
        results.append(run_busy(clock, cpu, meter, 0.5, step))
    assert results == pytest.approx([results[0]] * 4)


def test_source_is_asked_at_most_every_150_ms() -> None:
    clock, asked = VirtualClock(), []

    def used() -> float:
        asked.append(clock.now())
        return 0.0

    meter = CpuMeter(clock, CpuSource("fake", used, cpus=1))
    for _ in range(30):
        clock.advance(10)
        meter.usage()
    assert len(asked) == 1 + 2


def test_counter_that_goes_back_counts_as_idle() -> None:
    clock, cpu = VirtualClock(), FakeCpu()
    meter = CpuMeter(clock, CpuSource("fake", cpu.used, cpus=1))
    clock.advance(1000)
    cpu.seconds = 0
    assert meter.usage() == 0


def test_vanished_source_is_replaced_and_the_past_kept(caplog: pytest.LogCaptureFixture) -> None:
    clock, cpu = VirtualClock(), FakeCpu()
    broken = False

    def used() -> float:
        if broken:
            raise OSError("gone")
        return cpu.used()

    meter = CpuMeter(clock, CpuSource("fake", used, cpus=2))
    before = run_busy(clock, cpu, meter, 0.8, 150)
    broken = True
    clock.advance(1000)
    assert meter.usage() == before
    assert meter.source.name != "fake"
    assert "cannot read fake (gone)" in caplog.text


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_v2_with_the_smallest_quota_on_the_way_up(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "0::/pod/app\n")
    write(root / "pod/app/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    write(root / "pod/app/cpu.max", "max 100000\n")
    write(root / "pod/cpu.max", "150000 100000\n")
    source = find_source(groups=groups, root=root, host_cpus=8)
    assert (source.name, source.used(), source.cpus) == ("cgroup v2", 2.5, 1.5)


def test_cgroup_v2_seen_from_inside_a_container(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "0::/host/path/not/mounted/here\n")
    write(root / "cpu.stat", "usage_usec 1000000\n")
    write(root / "cpu.max", "max 100000\n")
    source = find_source(groups=groups, root=root, host_cpus=4)
    assert (source.name, source.used(), source.cpus) == ("cgroup v2", 1.0, 4)


def test_root_group_of_a_host_is_not_ours(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "0::/\n")
    write(root / "cpu.stat", "usage_usec 1000000\n")
    assert find_source(groups=groups, root=root, host_cpus=4).name == "process"


def test_cgroup_v1_with_quota(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "4:cpu,cpuacct:/box\n0::/nothing\n")
    write(root / "cpuacct/box/cpuacct.usage", "3000000000\n")
    write(root / "cpu/box/cpu.cfs_quota_us", "50000\n")
    write(root / "cpu/box/cpu.cfs_period_us", "100000\n")
    source = find_source(groups=groups, root=root, host_cpus=4)
    assert (source.name, source.used(), source.cpus) == ("cgroup v1", 3.0, 0.5)


def test_cgroup_v1_without_quota_of_our_own_group(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "2:cpuacct:/box\n1:cpu:/box\n")
    write(root / "cpuacct/box/cpuacct.usage", "1000000000\n")
    write(root / "cpu/box/cpu.cfs_quota_us", "-1\n")
    write(root / "cpu/box/cpu.cfs_period_us", "100000\n")
    source = find_source(groups=groups, root=root, host_cpus=4)
    assert (source.name, source.cpus) == ("cgroup v1", 4)


def test_damaged_group_files_fall_back_to_the_process(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    write(groups, "0::/app\n")
    write(root / "app/cpu.stat", "user_usec 1\n")
    source = find_source(groups=groups, root=root, host_cpus=4)
    assert source.name == "process"
    assert source.used() > 0


def test_this_machine_has_a_source() -> None:
    source = find_source()
    assert source.cpus > 0
    assert source.used() >= 0
