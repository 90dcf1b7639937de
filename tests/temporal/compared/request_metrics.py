"""What is measured of calls that fail, are made again, and never leave."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import grpc.aio
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetSystemInfoRequest,
    GetSystemInfoResponse,
)
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.service import RPCError

SERVICE = "temporal.api.workflowservice.v1.WorkflowService"


class Moody:
    """A server that refuses the first two times."""

    def __init__(self) -> None:
        self._calls = 0

    async def info(self, _request: Any, _context: Any) -> GetSystemInfoResponse:
        return GetSystemInfoResponse()

    async def describe(self, _request: Any, context: Any) -> DescribeNamespaceResponse:
        self._calls += 1
        if self._calls < 3:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return DescribeNamespaceResponse()


async def main() -> None:
    server, moody = grpc.aio.server(), Moody()
    methods = {
        "GetSystemInfo": grpc.unary_unary_rpc_method_handler(
            moody.info, GetSystemInfoRequest.FromString, GetSystemInfoResponse.SerializeToString
        ),
        "DescribeNamespace": grpc.unary_unary_rpc_method_handler(
            moody.describe,
            DescribeNamespaceRequest.FromString,
            DescribeNamespaceResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    buffer = MetricBuffer(1000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer, logging=None))
    client = await Client.connect(f"127.0.0.1:{port}", runtime=runtime)
    request = DescribeNamespaceRequest(namespace="some-namespace")
    await client.workflow_service.describe_namespace(request, retry=True)
    await server.stop(None)
    try:
        await client.workflow_service.describe_namespace(request, retry=False)
    except RPCError:
        shown = [
            [update.metric.name, *sorted(update.attributes.items())]
            for update in buffer.retrieve_updates()
        ]
        sys.stdout.write(json.dumps(shown))


if __name__ == "__main__":
    asyncio.run(main())
