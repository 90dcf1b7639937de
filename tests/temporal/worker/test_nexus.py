"""Nexus against a real server: callers, handlers, and workers that stop meanwhile."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, NexusOperationFailureError, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError, NexusOperationError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerTuner,
)
from tests.core.support.official import needs_official_core
from tests.temporal.support.nexus_sample import WORKFLOWS, Ask, Call, Desk, SendOrder, Threads
from tests.temporal.support.nexus_stories import (
    STORIES,
    Told,
    create_endpoint,
    replay_all,
    tell,
    until,
    wait_for,
)

ROOT = Path(__file__).parents[3]
BY_CANCEL = "Nexus operation cancelled after starting"


@pytest.fixture
def queue() -> str:
    return str(uuid.uuid4())


def nexus_worker(client: Client, queue: str, desk: Desk, **options: Any) -> Worker:
    return Worker(
        client, task_queue=queue, workflows=WORKFLOWS, nexus_service_handlers=[desk], **options
    )


@needs_official_core
async def test_every_call_ends_as_on_the_compiled_core(server: str, client: Client) -> None:
    """Rows nexus_basic, nexus_async, nexus_cancel_before_start and nexus_cancellation_types.

    Each core then replays the histories that the other one has left.
    """
    compiled = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.temporal.support.nexus_stories",
        server,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert compiled.stdout is not None
    ours = await tell(client)
    theirs = Told(**json.loads(await compiled.stdout.readline()))
    assert ours.ends == theirs.ends
    assert set(ours.reasons) <= {"TIMED_OUT"}
    assert await replay_all(theirs.histories) == len(STORIES)
    replayed, _ = await compiled.communicate(json.dumps(ours.histories).encode() + b"\n")
    assert json.loads(replayed) == len(STORIES)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("ABANDON", "completed"),
        ("ABANDON", "canceled"),
        ("ABANDON", "timed_out"),
        ("TRY_CANCEL", "completed"),
        ("TRY_CANCEL", "canceled"),
    ],
)
async def test_what_comes_after_an_immediate_cancel_is_swallowed(
    client: Client, queue: str, kind: str, end: str
) -> None:
    """The caller has its answer and still runs when the operation really ends."""
    endpoint = await create_endpoint(client, queue)
    order = f"order-{queue}"
    ask = Ask(
        endpoint,
        "order",
        [order, "ignore cancel" if end == "completed" else "wait"],
        cancel="started",
        cancellation_type=kind,
        schedule_to_close=5 if end == "timed_out" else 60,
        linger=True,
    )
    async with nexus_worker(client, queue, Desk()):
        handle = await client.start_workflow(Call.run, ask, id=queue, task_queue=queue)
        await wait_for(handle, "nexus_operation_started")
        await until(lambda: handle.query(Call.resolved))
        if end == "completed":
            await client.get_workflow_handle(order).signal("finish", "after all")
        elif (kind, end) == ("ABANDON", "canceled"):
            await client.get_workflow_handle(order).cancel()
        await wait_for(handle, f"nexus_operation_{end}")
        await handle.signal(Call.go_on)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert isinstance(caught.value.cause, NexusOperationError)
    assert str(caught.value.cause) == BY_CANCEL
    names = [event.WhichOneof("attributes") for event in (await handle.fetch_history()).events]
    assert "workflow_task_failed_event_attributes" not in names


async def test_callers_and_handlers_are_linked(client: Client, queue: str) -> None:
    endpoint = await create_endpoint(client, queue)
    order = f"order-{queue}"
    async with nexus_worker(client, queue, Desk()):
        caller = await client.start_workflow(
            Call.run, Ask(endpoint, "order", [order, "links"]), id=queue, task_queue=queue
        )
        await caller.result()
    events = (await caller.fetch_history()).events
    (started,) = [e for e in events if e.HasField("nexus_operation_started_event_attributes")]
    (link,) = started.links
    assert link.workflow_event.workflow_id == order
    handler = (await client.get_workflow_handle(order).fetch_history()).events[0]
    (callback,) = handler.workflow_execution_started_event_attributes.completion_callbacks
    (back,) = callback.links
    assert back.workflow_event.workflow_id == queue
    assert back.workflow_event.run_id == caller.result_run_id


async def test_a_workflow_signals_and_starts_another_one(client: Client, queue: str) -> None:
    """The endpoint of the server itself, which answers without any worker."""
    order = f"order-{queue}"
    async with nexus_worker(client, queue, Desk()):
        await client.execute_workflow(
            SendOrder.run, args=[order, "sent"], id=queue, task_queue=queue
        )
        assert await client.get_workflow_handle(order).result() == "sent"


async def test_nexus_must_complete_task_to_shutdown(client: Client, queue: str) -> None:
    """Row nexus_must_complete_task_to_shutdown: without a grace period handlers are cancelled."""
    endpoint = await create_endpoint(client, queue)
    desk = Desk()
    async with nexus_worker(client, queue, desk):
        handle = await client.start_workflow(
            Call.run, Ask(endpoint, "wait"), id=queue, task_queue=queue
        )
        await desk.began.wait()
    assert desk.reasons == ["WORKER_SHUTDOWN"]
    await handle.terminate()


async def test_operations_end_by_themselves_in_the_grace_period(client: Client, queue: str) -> None:
    endpoint = await create_endpoint(client, queue)
    desk = Desk()
    async with nexus_worker(client, queue, desk, graceful_shutdown_timeout=timedelta(minutes=1)):
        handle = await client.start_workflow(
            Call.run, Ask(endpoint, "until_closing"), id=queue, task_queue=queue
        )
        await desk.began.wait()
    async with nexus_worker(client, queue, Desk()):
        assert await handle.result() == "closing: True"


async def test_nexus_and_workflows_in_workers_of_their_own(client: Client, queue: str) -> None:
    endpoint = await create_endpoint(client, queue)
    async with (
        Worker(client, task_queue=queue, nexus_service_handlers=[Desk()]) as desk_worker,
        Worker(client, task_queue=queue, workflows=WORKFLOWS),
    ):
        with pytest.raises(RuntimeError, match="overlapping worker task types"):
            Worker(client, task_queue=queue, nexus_service_handlers=[Desk()])
        desk_worker.client = await Client.connect(client.service_client.config.target_host)
        ask = Ask(endpoint, "greet", "you")
        result = await client.execute_workflow(Call.run, ask, id=queue, task_queue=queue)
        assert result == "hello you"


class Broken(ThreadPoolExecutor):
    def submit(self, *args: Any, **kwargs: Any) -> Any:
        raise BrokenThreadPool("no more threads")


async def test_a_broken_executor_ends_the_worker(client: Client, queue: str) -> None:
    endpoint = await create_endpoint(client, queue)
    worker = Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        nexus_service_handlers=[Threads()],
        nexus_task_executor=Broken(1),
    )
    ask = Ask(endpoint, "greet", "you", service="Threads")
    handle = await client.start_workflow(Call.run, ask, id=queue, task_queue=queue)
    with pytest.raises(RuntimeError, match="Nexus worker failed"):
        await worker.run()
    await handle.terminate()


async def test_standalone_operations(client: Client, queue: str) -> None:
    """Operations that a client starts, without a workflow."""
    endpoint = await create_endpoint(client, queue)
    desk: Any = client.create_nexus_client("Desk", endpoint)
    limit = {"schedule_to_close_timeout": timedelta(seconds=60)}
    async with nexus_worker(client, queue, Desk()):
        assert await desk.execute_operation("greet", "you", id=f"1-{queue}", **limit) == "hello you"
        order = [f"order-1-{queue}", "books"]
        result = await desk.execute_operation("order", order, id=f"2-{queue}", **limit)
        assert result == "order of books"
        with pytest.raises(NexusOperationFailureError) as failed:
            await desk.execute_operation("fail", "failed", id=f"3-{queue}", **limit)
        assert isinstance(failed.value.cause, ApplicationError)
        order = [f"order-2-{queue}", "wait"]
        handle = await desk.start_operation("order", order, id=f"4-{queue}", **limit)
        await until(lambda: has_started(handle))
        await handle.cancel()
        with pytest.raises(NexusOperationFailureError) as cancelled:
            await handle.result()
        assert isinstance(cancelled.value.cause, CancelledError)


async def has_started(operation: Any) -> bool:
    return bool((await operation.describe()).operation_token)


async def test_the_time_skipping_server_knows_nexus() -> None:
    """It does not skip to the time-outs of operations, whatever the core."""
    async with await WorkflowEnvironment.start_time_skipping() as environment:
        client, queue = environment.client, str(uuid.uuid4())
        endpoint = (await environment.create_nexus_endpoint("endpoint", queue)).spec.name
        async with nexus_worker(client, queue, Desk()):
            ask = Ask(endpoint, "order", ["order", "books"])
            result = await client.execute_workflow(Call.run, ask, id=queue, task_queue=queue)
            assert result == "order of books"


class Watched(CustomSlotSupplier):
    """Gives every slot, and writes down what happens to them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        self.seen.append(ctx.slot_type)
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        self.seen.append(ctx.slot_info)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        if ctx.slot_info is not None:
            self.seen.append("released")


async def test_slots_and_metrics_of_operations(server: str, queue: str) -> None:
    buffer = MetricBuffer(10_000)
    client = await Client.connect(
        server, runtime=Runtime(telemetry=TelemetryConfig(metrics=buffer))
    )
    endpoint = await create_endpoint(client, queue)
    slots, fixed = Watched(), FixedSizeSlotSupplier(5)
    tuner = WorkerTuner.create_composite(
        workflow_supplier=fixed,
        activity_supplier=fixed,
        local_activity_supplier=fixed,
        nexus_supplier=slots,
    )
    async with nexus_worker(client, queue, Desk(), tuner=tuner):
        for input in ("BAD_REQUEST", "failed"):
            with pytest.raises(WorkflowFailureError):
                await client.execute_workflow(
                    Call.run,
                    Ask(endpoint, "fail", input),
                    id=str(uuid.uuid4()),
                    task_queue=queue,
                )
    assert set(slots.seen[:5]) == {"nexus"}
    (used, *_) = [seen for seen in slots.seen if not isinstance(seen, str)]
    assert (used.service, used.operation) == ("Desk", "fail")
    assert slots.seen.count("released") == 2
    updates = buffer.retrieve_updates()
    reasons = [
        update.attributes["failure_reason"]
        for update in updates
        if update.metric.name == "temporal_nexus_task_execution_failed"
    ]
    assert reasons == ["handler_error_BAD_REQUEST", "operation_failed"]
    names = {update.metric.name for update in updates}
    for latency in ("schedule_to_start", "execution", "endtoend"):
        assert f"temporal_nexus_task_{latency}_latency" in names
