"""Prints what a server sees of calls, and what a caller sees of answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import typing
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import grpc
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetWorkflowExecutionHistoryRequest,
)
from temporalio.bridge import services_generated
from temporalio.client import Client
from temporalio.service import RPCError
from tests.temporal.support.wire import StubServer, stub_server

SERVICES = ("Workflow", "Operator", "Cloud", "Test", "Health")
METADATA: list[Any] = [
    {"key": b"bytes"},
    {"key-bin": "text"},
    {"K-Bin": "text"},
    {"K": b"bytes"},
    {"key": "a\nb"},
    {"key": "a\x00"},
    {"key": "\x7f"},
    {"a key": "text"},
    {"": "text"},
    {"ä": "text"},
    {"k:": "text"},
    {":path": "/x"},
    {"a/b": "text"},
    {"(": "text"},
    {"key": ""},
    {"key": " around "},
    {"K-BIN": b"\x00\xff"},
    {"key-bin": b""},
    {"key-bin": bytearray(b"x")},
    {"Mixed_Case.key": "text"},
    {"key": 1},
    {"key": None},
    {1: "text"},
]
LAYERS: list[dict[str, Any]] = [
    {},
    {"one": "own", "binary-bin": b"own"},
    {"ONE": "own", "New": "own"},
    {"authorization": "own", "client-name": "own", "client-version": "own"},
    {"temporal-namespace": "own"},
    {"grpc-timeout": "5S"},
]
DETAILED = GrpcStatus(code=5, message="inner")
DETAILED.details.add(type_url="type.googleapis.com/x", value=b"abc")
STATUSES: list[Any] = [
    *((code, f"text of {code.name}") for code in grpc.StatusCode if code.value[0]),
    (grpc.StatusCode.NOT_FOUND, "outer", ("grpc-status-details-bin", DETAILED.SerializeToString())),
    (grpc.StatusCode.NOT_FOUND, "ünï\n%"),
    (grpc.StatusCode.NOT_FOUND, ""),
]


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        await call
    except RPCError as error:
        return ["RPCError", error.status, error.message, repr(error.raw_grpc_status)]
    except Exception as error:
        kind = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
        return [kind.__name__, None if kind is TypeError else str(error)]
    return "ok"


def seen(server: StubServer) -> Any:
    if not server.calls:
        return None
    call = server.last
    headers = {key: repr(value) for key, value in call.metadata.items() if key != "user-agent"}
    seconds = None if call.seconds is None else round(call.seconds)
    server.calls.clear()
    return [call.method, headers, seconds]


async def every_rpc(client: Client, server: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SERVICES:
        declared = getattr(services_generated, f"{name}Service")
        service = getattr(client.service_client, f"{name.lower()}_service")
        for rpc, function in inspect.getmembers(declared, inspect.isfunction):
            if rpc.startswith("_"):
                continue
            request = typing.get_type_hints(function)["req"]()
            field = request.DESCRIPTOR.fields_by_name.get("namespace")
            if field is not None and field.type == field.TYPE_STRING:
                request.namespace = "space"
            for retry in (False, True):
                await getattr(service, rpc)(request, retry=retry)
                found[f"{name} {rpc} retry={retry}"] = seen(server)
    return found


async def deadlines(client: Client, server: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    service = client.workflow_service
    for wait in (False, True):
        request = GetWorkflowExecutionHistoryRequest(namespace="n", wait_new_event=wait)
        await service.get_workflow_execution_history(request, retry=True)
        found[f"history {wait}"] = seen(server)
    for seconds in (0, 7, 60):
        timeout = timedelta(seconds=seconds)
        await service.describe_namespace(DescribeNamespaceRequest(), timeout=timeout)
        found[f"{seconds} seconds"] = seen(server)
    return found


async def metadata(client: Client, server: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    service = client.workflow_service

    async def record(label: str, own: Any) -> None:
        call = service.describe_namespace(DescribeNamespaceRequest(namespace="n"), metadata=own)
        found[label] = [await outcome(call), seen(server)]

    async def update(values: Any) -> None:
        client.rpc_metadata = values

    for case in METADATA:
        await record(f"call {case}", case)
        found[f"update {case}"] = await outcome(update(case))
        await record(f"after update {case}", {})
        connecting = Client.connect(server.address, rpc_metadata=case)
        found[f"connect {case}"] = await outcome(connecting)
        seen(server)
        client.rpc_metadata = {}
    client.rpc_metadata = {"one": "client", "Two": "client", "binary-bin": b"client"}
    client.api_key = "secret"
    for layer in LAYERS:
        await record(f"layer {layer}", layer)
    client.rpc_metadata = {"authorization": "client", "client-name": "client"}
    await record("authorization of the client", {})
    client.rpc_metadata = {"temporal-namespace": "client"}
    await record("namespace of the client", {})
    for key in (None, "other", "", "a\nb"):
        client.api_key = key
        await record(f"key {key}", {})
    return found


async def statuses(client: Client, server: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in STATUSES:
        server.script = [status]
        call = client.workflow_service.describe_namespace(DescribeNamespaceRequest())
        found[repr(status)] = await outcome(call)
    server.calls.clear()
    return found


async def main() -> None:
    async with stub_server() as server:
        client = await Client.connect(server.address)
        found = {}
        for part in (every_rpc, deadlines, metadata, statuses):
            found[part.__name__] = await part(client, server)
        json.dump(found, sys.stdout)


asyncio.run(main())
