"""The connection, through the official client, against a real server."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest, ListNamespacesRequest
from temporalio.bridge.client import RpcCall
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode


async def test_the_server_is_healthy(client: Client) -> None:
    assert await client.service_client.check_health()


async def test_rpcs_are_called_by_name(client: Client) -> None:
    service = client.workflow_service
    answer = await service.get_system_info(GetSystemInfoRequest())
    assert answer.capabilities.sdk_metadata
    namespaces = await service.list_namespaces(ListNamespacesRequest())
    assert "default" in [n.namespace_info.name for n in namespaces.namespaces]


async def test_an_error_has_code_text_and_details(client: Client) -> None:
    with pytest.raises(RPCError) as failed:
        await client.get_workflow_handle("nobody").describe()
    assert failed.value.status == RPCStatusCode.NOT_FOUND
    assert "nobody" in failed.value.message
    assert "NotFoundFailure" in failed.value.grpc_status.details[0].type_url


async def test_an_unknown_rpc_is_refused(client: Client) -> None:
    bridge = await client.service_client._connected_client()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="Unknown RPC call no_such_rpc"):
        bridge._ref.call_workflow_service(RpcCall("no_such_rpc", b"", False, {}, None))


@pytest.mark.parametrize("value", ["tab\t", "ü"])
async def test_metadata_is_printable_ascii(client: Client, value: str) -> None:
    """gRPC sends nothing else; the compiled core also sends tabs and UTF-8."""
    with pytest.raises(ValueError, match="failed to parse metadata value"):
        await client.workflow_service.get_system_info(
            GetSystemInfoRequest(), metadata={"key": value}
        )
    with pytest.raises(ValueError, match="Invalid ASCII header value for key 'key'"):
        client.rpc_metadata = {"key": value}


async def test_nobody_listening_is_an_error_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(RuntimeError, match="Failed client connect"):
        await Client.connect(f"127.0.0.1:{port}")


async def test_a_lazy_client_connects_with_its_first_call(server: str) -> None:
    client = await Client.connect(server, lazy=True)
    assert client.service_client._bridge_client is None  # type: ignore[attr-defined]
    assert await client.service_client.check_health()


async def test_one_client_serves_several_loops(client: Client) -> None:
    healthy: list[bool] = []

    def other_loop() -> None:
        healthy.append(asyncio.run(client.service_client.check_health()))

    thread = threading.Thread(target=other_loop)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert healthy == [True]
    assert await client.service_client.check_health()
