"""Slots that follow memory and processor: the controllers, the rule, and what is measured."""

from __future__ import annotations

import asyncio
import importlib
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import (
    FixedSizeSlotSupplier,
    ResourceBasedSlotConfig,
    ResourceBasedSlotSupplier,
    ResourceBasedTunerConfig,
    Worker,
    WorkerTuner,
)
from tests.temporal.support import sample

from perdure.temporal.errors import PackageMissing
from perdure.temporal.slots.contexts import SlotDeploymentVersion, SlotReserveCtx
from perdure.temporal.slots.dealer import Dealer
from perdure.temporal.slots.resource_based import ResourceSlots, SlotBounds
from perdure.temporal.slots.resource_control import (
    PidController,
    ResourceControl,
    Targets,
    Usage,
)
from perdure.temporal.slots.system_resources import SystemResources


@pytest.mark.parametrize(
    ("gains", "measured", "answers"),
    [
        ({}, [0.5, 0.5], [1.5, 1.5]),
        ({}, [0.5, 0.7, 0.9], [1.5, 0.3, -0.7]),
        ({}, [0.9, 0.5], [-0.5, 1.9]),
        ({"integral": 1.0}, [0.5, 0.5, 0.5], [1.8, 2.1, 2.4]),
        ({"limit": 1.0}, [0.0, 5.0], [1.0, -1.0]),
        ({"proportional": 0.0}, [0.1, 0.4, 0.2], [0.0, -0.3, 0.2]),
    ],
)
def test_controllers(gains: Any, measured: list[float], answers: list[float]) -> None:
    controller = PidController(0.8, **gains)
    assert [controller.next(value) for value in measured] == pytest.approx(answers)


@pytest.mark.parametrize(
    ("memory", "cpu", "room"),
    [
        (0.0, 0.0, True),
        (0.74, 0.85, True),
        (0.76, 0.0, False),
        (0.0, 0.895, False),
        (0.85, 0.0, False),
        (0.0, 1.0, False),
    ],
)
def test_room_is_where_both_are_well_below_their_targets(
    memory: float, cpu: float, room: bool
) -> None:
    control = ResourceControl(Targets(0.8, 0.9), lambda: Usage(memory, cpu))
    assert control.has_room() == room


def test_memory_that_rises_quickly_stops_sooner() -> None:
    values = iter([0.2, 0.7])
    control = ResourceControl(Targets(0.8, 0.9), lambda: Usage(next(values), 0.0))
    assert control.has_room()
    assert not control.has_room()


def test_what_is_measured_is_shown() -> None:
    shown: dict[str, float] = {}
    control = ResourceControl(Targets(0.8, 0.9), lambda: Usage(0.3, 0.5), shown.__setitem__)
    control.has_room()
    first = dict(shown)
    shown.clear()
    control.has_room()
    assert not shown, "once a second is enough"
    assert first == pytest.approx(
        {
            "resource_slots_mem_usage": 30.0,
            "resource_slots_cpu_usage": 50.0,
            "resource_slots_mem_pid_output": 2.5,
            "resource_slots_cpu_pid_output": 2.0,
        }
    )


@pytest.mark.parametrize(
    ("used", "alike", "since_last", "room", "granted"),
    [
        (0, None, 0.0, False, True),
        (1, None, 0.0, False, True),
        (2, None, 0.04, True, False),
        (2, None, 0.05, True, True),
        (2, None, 0.05, False, False),
        (4, None, 0.05, True, True),
        (5, None, 1.0, True, False),
        (3, 0, 0.0, False, True),
        (3, 1, 0.0, False, False),
        (5, 0, 1.0, True, False),
    ],
)
def test_slots_between_their_bounds(
    used: int, alike: int | None, since_last: float, room: bool, granted: bool
) -> None:
    bounds = SlotBounds(minimum=2, maximum=5, ramp=0.05)
    assert bounds.grants(used, alike, since_last, lambda: room) == granted


class Machine:
    """A machine whose load a test sets."""

    def __init__(self) -> None:
        self.usage = Usage(0.0, 0.0)
        self.asked = 0

    def sample(self) -> Usage:
        self.asked += 1
        return self.usage

    def full(self) -> None:
        self.usage = Usage(1.0, 1.0)


def context(sticky: bool) -> SlotReserveCtx:
    return SlotReserveCtx("workflow", "q", "me", "b", SlotDeploymentVersion("", "b"), sticky)


def dealer(machine: Machine, bounds: SlotBounds, *, by_stickiness: bool = False) -> Dealer:
    control = ResourceControl(Targets(0.8, 0.8), machine.sample)
    return Dealer(ResourceSlots(control, bounds, by_stickiness=by_stickiness), context)


async def test_who_waits_gets_a_slot_when_there_is_room() -> None:
    machine = Machine()
    machine.full()
    slots = dealer(machine, SlotBounds(1, 10, 0.0))
    permits = [await slots.reserve()]
    waiting = [asyncio.create_task(slots.reserve()) for _ in range(2)]
    await asyncio.sleep(0.03)
    assert machine.asked > 2
    assert not any(task.done() for task in waiting)
    machine.usage = Usage(0.0, 0.0)
    permits += [await task for task in waiting]
    for permit in permits:
        permit.release()
    assert slots.out == 0


async def test_nothing_is_measured_while_nobody_waits() -> None:
    machine = Machine()
    machine.full()
    slots = dealer(machine, SlotBounds(1, 10, 0.0))
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    (await waiting).release()
    asked = machine.asked
    await asyncio.sleep(0.03)
    assert machine.asked == asked


async def test_a_cancelled_wait_takes_nothing() -> None:
    machine = Machine()
    machine.full()
    slots = dealer(machine, SlotBounds(1, 10, 0.0))
    permit = await slots.reserve()
    waiting = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0)
    permit.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = slots.try_reserve()
    assert again is not None
    again.release()
    assert slots.out == 0


async def test_each_kind_of_poll_keeps_a_slot() -> None:
    machine = Machine()
    machine.full()
    slots = dealer(machine, SlotBounds(1, 10, 0.0), by_stickiness=True)
    assert slots.try_reserve(sticky=False) is not None
    assert slots.try_reserve(sticky=False) is None
    assert slots.try_reserve(sticky=True) is not None
    assert slots.try_reserve(sticky=True) is None


async def test_a_measurement_that_fails_is_told_to_who_waits() -> None:
    def broken() -> Usage:
        raise OSError("gone")

    slots = Dealer(
        ResourceSlots(ResourceControl(Targets(0.8, 0.8), broken), SlotBounds(1, 10, 0.01)), context
    )
    await slots.reserve()
    with pytest.raises(OSError, match="gone"):
        await slots.reserve()


# What is measured


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def test_the_limits_of_the_nearest_group_count(tmp_path: Path) -> None:
    group(tmp_path, memory_max="100\n", cpu_max="50000 100000\n")
    outer = group(
        tmp_path / "outer",
        memory_max="1000\n",
        memory_current="600\n",
        memory_stat="anon 1\ninactive_file 100\n",
        cpu_max="200000 100000\n",
        cpu_stat="usage_usec 5000000\nuser_usec 1\n",
    )
    group(outer / "own", memory_max="max\n", cpu_max="max 100000\n")
    (tmp_path / "membership").write_text("12:pids:/x\n0::/outer/own\n")
    clock = Clock()
    resources = SystemResources(tmp_path, tmp_path / "membership", clock)
    assert resources.sample() == Usage(0.5, 0.0)
    (outer / "cpu.stat").write_text("usage_usec 6000000\n")
    (outer / "memory.current").write_text("800\n")
    clock.now = 0.05
    assert resources.sample() == Usage(0.5, 0.0), "the last measurement is young"
    clock.now = 1.0
    assert resources.sample() == Usage(0.7, 0.5)


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    group(tmp_path / "own", memory_max="max\n")
    (tmp_path / "membership").write_text("0::/own\n")
    clock = Clock()
    resources = SystemResources(tmp_path, tmp_path / "membership", clock)
    clock.now = 1000.0
    usage = resources.sample()
    assert 0.0 < usage.memory < 1.0
    assert 0.0 <= usage.cpu <= 1.0


def test_without_psutil_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PackageMissing, match=r"pip install 'perdure\[temporal\]'"):
        SystemResources()


# With a worker


def follows(memory: float, cpu: float, **config: Any) -> ResourceBasedSlotSupplier:
    return ResourceBasedSlotSupplier(
        ResourceBasedSlotConfig(**config), ResourceBasedTunerConfig(memory, cpu)
    )


def worker(client: Client, tuner: WorkerTuner) -> Worker:
    return Worker(
        client,
        task_queue=str(uuid.uuid4()),
        workflows=[sample.ManySteps],
        activities=[sample.greet],
        tuner=tuner,
    )


async def test_a_worker_that_follows_resources(client: Client) -> None:
    tuner = WorkerTuner.create_resource_based(
        target_memory_usage=0.0,
        target_cpu_usage=0.0,
        workflow_config=ResourceBasedSlotConfig(minimum_slots=1, maximum_slots=4),
    )
    async with asyncio.timeout(30), worker(client, tuner) as running:
        handles = [
            client.execute_workflow(
                sample.ManySteps.run, args=[2, 1], id=str(uuid.uuid4()), task_queue=queue
            )
            for queue in [running.task_queue] * 5
        ]
        assert await asyncio.gather(*handles) == [3] * 5


async def test_all_suppliers_of_a_worker_have_the_same_targets(client: Client) -> None:
    tuner = WorkerTuner.create_composite(
        workflow_supplier=follows(0.5, 0.5),
        activity_supplier=FixedSizeSlotSupplier(5),
        local_activity_supplier=follows(0.5, 0.6),
        nexus_supplier=FixedSizeSlotSupplier(5),
    )
    text = "All resource-based slot suppliers must have the same ResourceBasedTunerOptions"
    with pytest.raises(ValueError, match=f"^{text}$"):
        worker(client, tuner)


async def test_negative_numbers_are_refused(client: Client) -> None:
    tuner = WorkerTuner.create_composite(
        workflow_supplier=follows(0.5, 0.5, minimum_slots=-1),
        activity_supplier=FixedSizeSlotSupplier(5),
        local_activity_supplier=FixedSizeSlotSupplier(5),
        nexus_supplier=FixedSizeSlotSupplier(5),
    )
    with pytest.raises(TypeError, match=r"^failed to extract field WorkerConfig\.tuner$"):
        worker(client, tuner)
