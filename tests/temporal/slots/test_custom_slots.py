"""Slot suppliers of the SDK's users: the calls they get, and what they may do to a worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
)

from perdure.temporal.slots import custom
from perdure.temporal.slots.contexts import (
    ActivitySlotInfo,
    SlotDeploymentVersion,
    SlotReserveCtx,
)
from perdure.temporal.slots.custom import CustomSlots
from perdure.temporal.slots.dealer import Dealer, Permit
from perdure.temporal.telemetry.logs import Log

LIVENESS = 30.0


def context(sticky: bool) -> SlotReserveCtx:
    return SlotReserveCtx(
        "workflow", "queue", "me", "build", SlotDeploymentVersion("", "build"), sticky
    )


class Recording:
    """What the SDK wraps around a supplier of its user."""

    def __init__(self, *, fails: int = 0) -> None:
        self.calls: list[Any] = []
        self.fails = fails
        self.gate = asyncio.Event()
        self.gate.set()

    async def reserve_slot(self, ctx: SlotReserveCtx, reserved: Callable[[Any], None]) -> str:
        if self.fails:
            self.fails -= 1
            raise RuntimeError("no")
        task = asyncio.ensure_future(self.own_reserve(ctx))
        reserved(task)
        return await task

    async def own_reserve(self, ctx: SlotReserveCtx) -> str:
        await self.gate.wait()
        return f"permit for {ctx.slot_type}"

    def try_reserve_slot(self, ctx: SlotReserveCtx) -> str | None:
        return "now" if ctx.is_sticky else None

    def mark_slot_used(self, ctx: Any) -> None:
        self.calls.append((ctx.slot_info, ctx.permit))

    def release_slot(self, ctx: Any) -> None:
        self.calls.append(("released", ctx.slot_info, ctx.permit))


class Refusing(Recording):
    """Fails in everything that must not fail."""

    def try_reserve_slot(self, ctx: SlotReserveCtx) -> str | None:
        raise RuntimeError("no")

    def mark_slot_used(self, ctx: Any) -> None:
        raise RuntimeError("no")

    def release_slot(self, ctx: Any) -> None:
        raise RuntimeError("no")


class Stubborn(Recording):
    """Does not end when it is cancelled, and has a permit in the end all the same."""

    async def own_reserve(self, ctx: SlotReserveCtx) -> str:
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                continue
        return "late"


def dealer(inner: Any) -> Dealer:
    return Dealer(CustomSlots(inner, Log(None)), context)


async def test_a_supplier_is_told_everything() -> None:
    inner = Recording()
    slots = dealer(inner)
    info = ActivitySlotInfo("greet")
    permit = await slots.reserve()
    permit.mark_used(info)
    permit.release()
    (await slots.reserve()).release()
    assert inner.calls == [
        (info, "permit for workflow"),
        ("released", info, "permit for workflow"),
        ("released", None, "permit for workflow"),
    ]
    assert slots.try_reserve() is None
    assert slots.try_reserve(sticky=True) is not None


async def test_a_failing_reserve_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "_PAUSES", (0.0, 0.001))
    inner = Recording(fails=5)
    assert await dealer(inner).reserve() is not None
    assert inner.fails == 0


async def test_failures_cost_neither_the_worker_nor_a_slot() -> None:
    slots = dealer(Refusing())
    assert slots.try_reserve() is None
    permit = await slots.reserve()
    permit.mark_used(ActivitySlotInfo("greet"))
    permit.release()
    assert (slots.out, slots.used) == (0, 0)


async def test_even_none_is_a_permit() -> None:
    class Nothing(Recording):
        async def own_reserve(self, ctx: SlotReserveCtx) -> Any:
            return None

    inner = Nothing()
    slots = dealer(inner)
    (await slots.reserve()).release()
    assert (slots.out, inner.calls) == (0, [("released", None, None)])


async def give_up(reserving: asyncio.Task[Permit]) -> None:
    reserving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reserving


async def test_who_gives_up_cancels_the_reserve() -> None:
    inner = Recording()
    inner.gate.clear()
    slots = dealer(inner)
    reserving = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0.01)
    before = asyncio.all_tasks()
    await give_up(reserving)
    await asyncio.sleep(0.01)
    assert not {task for task in before if not task.done()} - {asyncio.current_task()}
    assert (slots.out, inner.calls) == (0, [])


async def test_a_permit_that_nobody_takes_comes_back() -> None:
    """The user's reserve and the giving up happen in the same moment."""
    inner = Recording()
    inner.gate.clear()
    slots = dealer(inner)
    reserving = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0.01)
    inner.gate.set()
    await asyncio.sleep(0)
    await give_up(reserving)
    await asyncio.sleep(0.01)
    assert inner.calls == [("released", None, "permit for workflow")]


async def test_nobody_waits_for_a_reserve_that_does_not_end() -> None:
    inner = Stubborn()
    inner.gate.clear()
    slots = dealer(inner)
    reserving = asyncio.create_task(slots.reserve())
    await asyncio.sleep(0.01)
    await give_up(reserving)
    assert inner.calls == []
    inner.gate.set()
    await asyncio.sleep(0.01)
    assert inner.calls == [("released", None, "late")]


# With a worker


class Watching(CustomSlotSupplier):
    """Counts out permits, and keeps what it is told."""

    def __init__(self, slots: int) -> None:
        self.contexts: list[SlotReserveContext] = []
        self.used: list[str] = []
        self.cancelled = 0
        self.free = asyncio.Semaphore(slots)
        self.out = 0
        self.asked = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        self.contexts.append(ctx)
        if len(self.contexts) == 3:
            self.asked.set()
        try:
            await self.free.acquire()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.out += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        self.contexts.append(ctx)
        return None

    def mark_slot_used(self, ctx: Any) -> None:
        self.used.append(type(ctx.slot_info).__name__)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        self.out -= 1
        self.free.release()


@activity.defn
async def step() -> None:
    """Nothing to do."""


@workflow.defn
class BothKinds:
    @workflow.run
    async def run(self) -> None:
        timeout = timedelta(seconds=20)
        await workflow.execute_activity(step, start_to_close_timeout=timeout)
        await workflow.execute_local_activity(step, start_to_close_timeout=timeout)


def composite(supplier: CustomSlotSupplier) -> WorkerTuner:
    return WorkerTuner.create_composite(
        workflow_supplier=supplier,
        activity_supplier=supplier,
        local_activity_supplier=supplier,
        nexus_supplier=FixedSizeSlotSupplier(1),
    )


def both_kinds(client: Client, supplier: CustomSlotSupplier, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue=str(uuid.uuid4()),
        workflows=[BothKinds],
        activities=[step],
        tuner=composite(supplier),
        **options,
    )


async def run(client: Client, worker: Worker) -> None:
    await client.execute_workflow(BothKinds.run, id=str(uuid.uuid4()), task_queue=worker.task_queue)


async def test_one_supplier_for_everything(client: Client) -> None:
    """The calls are those of the compiled core: also local activities are reserved for ahead."""
    supplier = Watching(20)
    version = WorkerDeploymentVersion(deployment_name="deployment", build_id="1")
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=False)
    async with asyncio.timeout(LIVENESS):
        async with both_kinds(client, supplier, deployment_config=config) as worker:
            await run(client, worker)
    assert {context.slot_type for context in supplier.contexts} == {
        "workflow",
        "activity",
        "local-activity",
    }
    sticky = {(context.slot_type, context.is_sticky) for context in supplier.contexts}
    assert sticky >= {("workflow", True), ("workflow", False)}
    assert not sticky & {("activity", True), ("local-activity", True)}
    for context in supplier.contexts:
        assert context.task_queue == worker.task_queue
        assert context.worker_build_id == "1"
        deployment: Any = context.worker_deployment_version
        assert deployment == {"deployment_name": "deployment", "build_id": "1"}
        assert (deployment.deployment_name, deployment.build_id) == ("deployment", "1")
    assert sorted(supplier.used) == [
        "ActivitySlotInfo",
        "LocalActivitySlotInfo",
        "WorkflowSlotInfo",
        "WorkflowSlotInfo",
    ]
    assert supplier.out == 0


class Numbered(SlotPermit):
    def __init__(self, number: int) -> None:
        self.number = number


class Slow(Watching):
    """Takes its time, and knows which permits came back."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.given = 0
        self.returned: list[int] = []

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        await asyncio.sleep(0.01)
        self.given += 1
        return Numbered(self.given)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        assert isinstance(ctx.permit, Numbered)
        self.returned.append(ctx.permit.number)


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.0095, 0.0105, 0.015, 0.02])
async def test_every_permit_comes_back_once(client: Client, pause: float) -> None:
    """Whenever the worker stops: also one that was given in the moment of the stop."""
    supplier = Slow()
    async with asyncio.timeout(LIVENESS):
        async with both_kinds(client, supplier) as worker:
            await run(client, worker)
            await asyncio.sleep(pause)
    await asyncio.sleep(0.02)
    assert sorted(supplier.returned) == list(range(1, supplier.given + 1))


async def test_a_worker_stops_while_it_waits_for_slots(client: Client) -> None:
    supplier = Watching(0)
    async with asyncio.timeout(LIVENESS):
        async with both_kinds(client, supplier):
            await supplier.asked.wait()
    await asyncio.sleep(0)
    assert supplier.cancelled == len(supplier.contexts)
    assert supplier.out == 0


class Unreliable(Watching):
    """Every second reserve fails, and whatever else can."""

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        if len(self.contexts) % 2 == 0:
            self.contexts.append(ctx)
            raise ValueError("no slot")
        return await super().reserve_slot(ctx)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        raise ValueError("no slot")

    def mark_slot_used(self, ctx: Any) -> None:
        raise ValueError("unused")

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        super().release_slot(ctx)
        raise ValueError("not released")


async def test_an_unreliable_supplier_slows_down_only(client: Client) -> None:
    supplier = Unreliable(20)
    async with asyncio.timeout(LIVENESS):
        async with both_kinds(client, supplier) as worker:
            await run(client, worker)
    assert supplier.out == 0
