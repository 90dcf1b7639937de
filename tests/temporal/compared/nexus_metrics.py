"""Metrics of Nexus tasks, and of slots that follow the resources of the machine.

Prints names and labels, without values: what a processor does is nobody's to say beforehand.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

import nexusrpc
import nexusrpc.handler
from temporalio import workflow
from temporalio.api.nexus.v1 import EndpointSpec, EndpointTarget
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest
from temporalio.client import Client
from temporalio.exceptions import NexusOperationError
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerTuner


@nexusrpc.service
class Service:
    good: nexusrpc.Operation[str, str]
    refused: nexusrpc.Operation[str, str]
    failed: nexusrpc.Operation[str, str]
    slow: nexusrpc.Operation[str, str]


@nexusrpc.handler.service_handler(service=Service)
class Handler:
    @nexusrpc.handler.sync_operation
    async def good(self, _context: nexusrpc.handler.StartOperationContext, word: str) -> str:
        return word

    @nexusrpc.handler.sync_operation
    async def refused(self, _context: nexusrpc.handler.StartOperationContext, _word: str) -> str:
        raise nexusrpc.HandlerError("no", type=nexusrpc.HandlerErrorType.BAD_REQUEST)

    @nexusrpc.handler.sync_operation
    async def failed(self, _context: nexusrpc.handler.StartOperationContext, _word: str) -> str:
        raise nexusrpc.OperationError("no", state=nexusrpc.OperationErrorState.FAILED)

    @nexusrpc.handler.sync_operation
    async def slow(self, _context: nexusrpc.handler.StartOperationContext, word: str) -> str:
        await asyncio.sleep(5)
        return word


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, endpoint: str) -> None:
        client: Any = workflow.create_nexus_client(service=Service, endpoint=endpoint)
        await client.execute_operation(Service.good, "x")
        for operation in (Service.refused, Service.failed):
            with suppress(NexusOperationError):
                await client.execute_operation(operation, "x")
        limit = timedelta(seconds=3)
        with suppress(NexusOperationError):
            await client.execute_operation(Service.slow, "x", schedule_to_close_timeout=limit)


async def main() -> None:
    buffer = MetricBuffer(100_000)
    runtime = Runtime(
        telemetry=TelemetryConfig(metrics=buffer, logging=None), worker_heartbeat_interval=None
    )
    client = await Client.connect(sys.argv[1], runtime=runtime)
    queue = f"queue-{uuid.uuid4()}"
    target = EndpointTarget(worker=EndpointTarget.Worker(namespace="default", task_queue=queue))
    spec = EndpointSpec(name=queue, target=target)
    await client.operator_service.create_nexus_endpoint(CreateNexusEndpointRequest(spec=spec))
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Calls],
        nexus_service_handlers=[Handler()],
        workflow_runner=UnsandboxedWorkflowRunner(),
        tuner=WorkerTuner.create_resource_based(target_memory_usage=0.9, target_cpu_usage=0.9),
    ):
        await client.execute_workflow(Calls.run, queue, id=queue, task_queue=queue)
    shown = {
        json.dumps([update.metric.name, update.metric.kind, *sorted(_labels(update, queue))])
        for update in buffer.retrieve_updates()
        if any(part in update.metric.name for part in ("nexus", "slots", "pollers"))
    }
    sys.stdout.write(json.dumps(sorted(shown)))


def _labels(update: Any, queue: str) -> list[str]:
    return [f"{key}={value}".replace(queue, "QUEUE") for key, value in update.attributes.items()]


if __name__ == "__main__":
    asyncio.run(main())
