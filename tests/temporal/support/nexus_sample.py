"""Nexus services of every kind, and a workflow that calls them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import nexusrpc
from nexusrpc.handler import (
    CancelOperationContext,
    OperationHandler,
    StartOperationContext,
    StartOperationResultAsync,
    operation_handler,
    service_handler,
    sync_operation,
)
from temporalio import nexus, workflow
from temporalio.exceptions import ApplicationError

__all__ = ["WORKFLOWS", "Ask", "Call", "Desk", "Order", "SendOrder", "Threads"]


@workflow.defn
class Order:
    """What an operation starts. Ends as its input says, or as it is told to."""

    def __init__(self) -> None:
        self._end = ""

    @workflow.run
    async def run(self, end: str) -> str:
        if end == "fail":
            raise ApplicationError("sold out", type="SoldOut", non_retryable=True)
        if end == "wait":
            await self._told()
        elif end == "ignore cancel":
            try:
                await self._told()
            except asyncio.CancelledError:
                await self._told()
        return self._end or f"order of {end}"

    async def _told(self) -> None:
        await workflow.wait_condition(lambda: bool(self._end))

    @workflow.signal
    def finish(self, end: str) -> None:
        self._end = end


@dataclass
class Ask:
    """One call of an operation by a workflow. Times are in seconds."""

    endpoint: str
    operation: str
    input: Any = None
    service: str = "Desk"
    cancellation_type: str = "WAIT_COMPLETED"
    cancel: str = ""
    """When the caller cancels: "before" the operation is scheduled, or when it is "started"."""
    schedule_to_close: float = 60
    schedule_to_start: float | None = None
    start_to_close: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    linger: bool = False
    """Wait for a signal before the end, whatever became of the operation."""


@workflow.defn
class Call:
    def __init__(self) -> None:
        self._go_on = False
        self._resolved = False

    @workflow.run
    async def run(self, ask: Ask) -> Any:
        try:
            return await self._call(ask)
        finally:
            self._resolved = True
            if ask.linger:
                await workflow.wait_condition(lambda: self._go_on)

    async def _call(self, ask: Ask) -> Any:
        client: Any = workflow.create_nexus_client(service=ask.service, endpoint=ask.endpoint)
        starting = asyncio.create_task(
            client.start_operation(
                ask.operation,
                ask.input,
                schedule_to_close_timeout=timedelta(seconds=ask.schedule_to_close),
                schedule_to_start_timeout=_duration(ask.schedule_to_start),
                start_to_close_timeout=_duration(ask.start_to_close),
                cancellation_type=workflow.NexusOperationCancellationType[ask.cancellation_type],
                headers=ask.headers,
            )
        )
        if ask.cancel == "before":
            await asyncio.sleep(0)
            starting.cancel()
        handle = await starting
        if ask.cancel == "started":
            handle.cancel()
        return await handle

    @workflow.signal
    def go_on(self) -> None:
        self._go_on = True

    @workflow.query
    def resolved(self) -> bool:
        return self._resolved


@workflow.defn
class SendOrder:
    """Signals an order, which is started for it: the server's own Nexus service does that."""

    @workflow.run
    async def run(self, id: str, end: str) -> None:
        await workflow.signal_with_start_workflow(
            Order.run,
            "wait",
            id=id,
            task_queue=workflow.info().task_queue,
            signal=Order.finish,
            signal_args=[end],
        )


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


class _Door(OperationHandler[str, str]):
    """Never ends by itself; a cancel is taken, and leads to nothing, or is refused."""

    async def start(self, ctx: StartOperationContext, input: str) -> StartOperationResultAsync:
        return StartOperationResultAsync(input)

    async def cancel(self, ctx: CancelOperationContext, token: str) -> None:
        if token == "locked":
            raise nexusrpc.HandlerError(
                "no way out", type=nexusrpc.HandlerErrorType.NOT_FOUND, retryable_override=False
            )


@service_handler
class Desk:
    """Operations of every kind. `reasons` are the cancellations its handlers were told of."""

    def __init__(self) -> None:
        self.reasons: list[str | None] = []
        self.began = asyncio.Event()
        self.let_go = asyncio.Event()

    @sync_operation
    async def greet(self, ctx: StartOperationContext, input: str) -> str:
        return f"hello {input}"

    @sync_operation
    async def headers(self, ctx: StartOperationContext, input: None) -> list[list[str]]:
        return sorted([name, value] for name, value in ctx.headers.items() if name.startswith("x-"))

    @sync_operation
    async def surroundings(self, ctx: StartOperationContext, input: str) -> dict[str, Any]:
        """What a handler sees when the workflow named by its input calls it."""
        info = nexus.info()
        caller = await nexus.client().get_workflow_handle(input).describe()
        nexus.metric_meter().create_counter("nexus-visits").add(1)
        return {
            "info": [info.endpoint, info.namespace, info.task_queue],
            "caller": caller.workflow_type,
            "in operation": nexus.in_operation(),
            "worker stops": nexus.is_worker_shutdown(),
            "has a deadline": ctx.request_deadline is not None,
            "has a request id": bool(ctx.request_id),
            "has a callback": bool(ctx.callback_url),
            "links": [link.type for link in ctx.inbound_links],
        }

    @sync_operation
    async def fail(self, ctx: StartOperationContext, input: str) -> None:
        match input:
            case "failed":
                raise nexusrpc.OperationError(
                    "it failed", state=nexusrpc.OperationErrorState.FAILED
                ) from ApplicationError("reason", {"detail": 1}, type="Reason")
            case "canceled":
                raise nexusrpc.OperationError(
                    "it was canceled", state=nexusrpc.OperationErrorState.CANCELED
                )
            case "application":
                raise ApplicationError("bad luck", "detail", type="Luck", non_retryable=True)
            case "bug":
                raise ValueError("a bug")
            case handler_error:
                raise nexusrpc.HandlerError(
                    f"refused as {handler_error}",
                    type=nexusrpc.HandlerErrorType[handler_error],
                    retryable_override=False,
                ) from RuntimeError("why")

    @sync_operation
    async def wait(self, ctx: StartOperationContext, input: None) -> str:
        """Until `let_go`, or for ever."""
        self.began.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.reasons.append(ctx.task_cancellation.cancellation_reason())
            raise
        return "waited"

    @sync_operation
    async def until_closing(self, ctx: StartOperationContext, input: None) -> str:
        self.began.set()
        await nexus.wait_for_worker_shutdown()
        return f"closing: {nexus.is_worker_shutdown()}"

    @nexus.workflow_run_operation
    async def order(
        self, ctx: nexus.WorkflowRunOperationContext, input: list[str]
    ) -> nexus.WorkflowHandle[str]:
        id, end = input
        return await ctx.start_workflow(Order.run, end, id=id)

    @nexus.temporal_operation
    async def errand(
        self,
        ctx: nexus.TemporalStartOperationContext,
        client: nexus.TemporalNexusClient,
        input: list[str],
    ) -> nexus.TemporalOperationResult[str]:
        id, end = input
        return await client.start_workflow(Order.run, end, id=id)

    @operation_handler
    def door(self) -> OperationHandler[str, str]:
        return _Door()


@service_handler
class Threads:
    """Operations that run in a thread pool."""

    def __init__(self) -> None:
        self.reasons: list[str | None] = []

    @sync_operation
    def greet(self, ctx: StartOperationContext, input: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"hello {input} of {nexus.info().namespace}"

    @sync_operation
    def wait(self, ctx: StartOperationContext, input: None) -> str:
        if ctx.task_cancellation.wait_until_cancelled_sync(30):
            self.reasons.append(ctx.task_cancellation.cancellation_reason())
        return "waited"


WORKFLOWS: list[type] = [Call, Order, SendOrder]
