"""How a client reaches a server: TLS, proxies, names, compression, pings, sizes and time-outs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetSystemInfoRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import (
    DnsLoadBalancingConfig,
    GrpcCompression,
    HttpConnectProxyConfig,
    KeepAliveConfig,
    RPCError,
    RPCStatusCode,
    TLSConfig,
)
from tests.temporal.support.wire import DATA, PING, StubServer, frames, relay, stub_server

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()
CLIENTS = trustme.CA()
ROOT = AUTHORITY.cert_pem.bytes()


def pair(certificate: trustme.LeafCert) -> tuple[bytes, bytes]:
    """Key and chain."""
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    return certificate.private_key_pem.bytes(), chain


KEY, CHAIN = pair(CLIENTS.issue_cert("client.example"))


@asynccontextmanager
async def secure_server(*names: str, mutual: bool = False) -> AsyncIterator[StubServer]:
    credentials = grpc.ssl_server_credentials(
        [pair(AUTHORITY.issue_cert(*names))], CLIENTS.cert_pem.bytes() if mutual else None, mutual
    )
    async with stub_server(credentials) as server:
        yield server


async def refused(
    match: str, target: str, error: type[Exception] = RuntimeError, **tls: Any
) -> None:
    with pytest.raises(error, match=match):
        await Client.connect(target, tls=TLSConfig(**tls))


async def test_a_root_certificate_of_ones_own_is_trusted() -> None:
    async with secure_server("127.0.0.1") as server:
        await Client.connect(server.address, tls=TLSConfig(server_root_ca_cert=ROOT))
        wrong = STRANGER.cert_pem.bytes()
        flaw = "server_root_ca_cert of the TLS configuration holds no certificate in PEM form"
        for roots in (b"no certificate", b"/etc/ssl/ca.pem", b""):
            await refused(flaw, server.address, server_root_ca_cert=roots)
        for authority in (wrong, None):
            await refused(
                "Failed client connect: Server connection error",
                server.address,
                server_root_ca_cert=authority,
            )


async def test_without_one_the_roots_of_the_system_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roots.pem").write_bytes(ROOT)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
    async with secure_server("127.0.0.1") as server:
        await Client.connect(server.address, tls=True)
        await Client.connect(server.address, api_key="an API key turns TLS on")
        assert server.last.metadata["authorization"] == "Bearer an API key turns TLS on"
        monkeypatch.delenv("SSL_CERT_FILE")
        await refused("Server connection error", server.address)
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        await Client.connect(server.address, tls=True)


async def test_the_name_in_the_certificate_must_be_the_one_asked_for() -> None:
    async with secure_server("only.example") as server:
        target = server.address
        await refused("Server connection error", target, server_root_ca_cert=ROOT)
        await Client.connect(target, tls=TLSConfig(server_root_ca_cert=ROOT, domain="only.example"))
        assert server.last.auth["ssl_requested_server_name"] == [b"only.example"]
        await refused(
            "Server connection error", target, server_root_ca_cert=ROOT, domain="other.example"
        )


async def test_a_verification_name_stands_above_the_domain() -> None:
    async with secure_server("only.example") as server:
        tls = TLSConfig(
            server_root_ca_cert=ROOT,
            domain="other.example",
            verification_server_name="only.example",
        )
        await Client.connect(server.address, tls=tls)
        await refused(
            "Must have server root CA cert when verification server name is set",
            server.address,
            ValueError,
            verification_server_name="only.example",
        )
        await refused(
            "Invalid verification server name",
            server.address,
            ValueError,
            server_root_ca_cert=ROOT,
            verification_server_name="no name!",
        )


async def test_a_client_shows_its_certificate() -> None:
    async with secure_server("127.0.0.1", mutual=True) as server:
        tls = TLSConfig(server_root_ca_cert=ROOT, client_cert=CHAIN, client_private_key=KEY)
        await Client.connect(server.address, tls=tls)
        assert server.last.auth["x509_subject_alternative_name"] == [b"client.example"]
        await refused("Failed client connect", server.address, server_root_ca_cert=ROOT)
        other_key, _ = pair(CLIENTS.issue_cert("other.example"))
        for chain, key, problem in (
            (b"nothing", KEY, "client_cert of the TLS configuration holds no certificate"),
            (CHAIN, b"nothing", "client_private_key of the TLS configuration holds no private key"),
            (CHAIN, other_key, ""),
        ):
            await refused(
                f"Server connection error: {problem}",
                server.address,
                server_root_ca_cert=ROOT,
                client_cert=chain,
                client_private_key=key,
            )


@pytest.mark.parametrize("half", [{"client_cert": CHAIN}, {"client_private_key": KEY}])
async def test_a_certificate_needs_its_key(half: dict[str, bytes]) -> None:
    await refused("both client cert and private key or neither", "localhost:1", ValueError, **half)


async def test_tls_and_plain_text_do_not_mix() -> None:
    async with stub_server() as plain, secure_server("127.0.0.1") as secure:
        await refused("Server connection error", plain.address)
        with pytest.raises(RuntimeError, match="Failed client connect"):
            await Client.connect(secure.address)


@pytest.mark.parametrize("login", [None, ("user", "p@ss:word/ü")])
async def test_a_proxy_is_asked_to_connect(login: tuple[str, str] | None) -> None:
    async with stub_server() as server, relay(login=login) as proxy:
        config = HttpConnectProxyConfig(target_host=proxy.address, basic_auth=login)
        target = f"localhost:{server.port}"
        client = await Client.connect(target, http_connect_proxy_config=config)
        await client.workflow_service.get_system_info(GetSystemInfoRequest())
        assert proxy.heads[0].startswith(f"CONNECT {target} HTTP/1.")
        assert len(proxy.heads) == len(proxy.sent) == 1


async def test_a_proxy_that_refuses_is_an_error() -> None:
    async with stub_server() as server, relay(login=("user", "right")) as proxy:
        config = HttpConnectProxyConfig(proxy.address, basic_auth=("user", "wrong"))
        with pytest.raises(RuntimeError, match="Failed client connect: Server connection error"):
            await Client.connect(server.address, http_connect_proxy_config=config)
        assert server.calls == []


async def test_tls_passes_through_a_proxy() -> None:
    async with secure_server("127.0.0.1") as server, relay() as proxy:
        client = await Client.connect(
            server.address,
            tls=TLSConfig(server_root_ca_cert=ROOT),
            http_connect_proxy_config=HttpConnectProxyConfig(proxy.address),
            dns_load_balancing_config=DnsLoadBalancingConfig(),
        )
        await client.workflow_service.get_system_info(GetSystemInfoRequest())
        assert len(proxy.sent) == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    async with stub_server() as server:
        await Client.connect(server.address)


async def sent(compression: GrpcCompression) -> tuple[bytes, bytes]:
    """All that is sent for a call with a request that compresses well, and its DATA frames."""
    async with stub_server() as server, relay(server.address) as wire:
        client = await Client.connect(wire.address, grpc_compression=compression)
        request = SignalWorkflowExecutionRequest(namespace="n", signal_name="x" * 2000)
        await client.workflow_service.signal_workflow_execution(request)
        data = b"".join(data for kind, data in frames(wire.sent[0]) if kind == DATA)
        return bytes(wire.sent[0]), data


async def test_messages_are_compressed_unless_told_otherwise() -> None:
    everything, data = await sent(GrpcCompression.GZIP)
    assert b"\x1f\x8b" in data
    assert len(data) < 500
    assert b"identity, gzip" in everything
    everything, data = await sent(GrpcCompression.NONE)
    assert data.endswith(b"x" * 2000)
    assert b"gzip" not in everything


async def test_an_idle_connection_is_kept_alive() -> None:
    async with stub_server() as server, relay(server.address) as wire:
        config = KeepAliveConfig(interval_millis=1000, timeout_millis=5000)
        client = await Client.connect(wire.address, keep_alive_config=config)

        def pings() -> int:
            return sum(kind == PING and data != bytes(8) for kind, data in frames(wire.sent[0]))

        before = pings()
        async with asyncio.timeout(20):
            while pings() < before + 2:  # noqa: ASYNC110 - the relay only records
                await asyncio.sleep(0.05)
        await client.workflow_service.get_system_info(GetSystemInfoRequest())


async def test_answers_may_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = DescribeNamespaceResponse(failover_version=1)
    answer.namespace_info.description = "x" * 5_000_000
    raw = answer.SerializeToString()

    async def ask(server: StubServer) -> DescribeNamespaceResponse:
        client = await Client.connect(server.address)
        server.script = [raw]
        return await client.workflow_service.describe_namespace(DescribeNamespaceRequest())

    async with stub_server() as server:
        assert await ask(server) == answer
        monkeypatch.setenv("TEMPORAL_MAX_INCOMING_GRPC_BYTES", "1000")
        with pytest.raises(RPCError) as failed:
            await ask(server)
        assert failed.value.status == RPCStatusCode.OUT_OF_RANGE
        assert "message length too large" in failed.value.message
        monkeypatch.setenv("TEMPORAL_MAX_INCOMING_GRPC_BYTES", "no number")
        assert await ask(server) == answer


async def test_a_server_that_accepts_and_is_silent_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RuntimeError, match=r"Server connection error: no connection within"):
            await Client.connect(target, connect_timeout=timedelta(milliseconds=100))


async def test_a_connect_time_out_is_no_limit_for_calls() -> None:
    async with stub_server() as server:
        client = await Client.connect(server.address, connect_timeout=timedelta(milliseconds=500))
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest())
        assert server.last.seconds is not None
        assert server.last.seconds > 20


async def test_an_ipv6_server_is_reached() -> None:
    async with stub_server(address="[::1]:0") as server:
        await Client.connect(f"[::1]:{server.port}")
        assert server.last.peer.startswith("ipv6:")


async def test_a_socket_file_is_reached(tmp_path: Path) -> None:
    async with stub_server(address=f"unix:{tmp_path}/server") as server:
        with pytest.warns(UserWarning, match="no longer supported"):
            await Client.connect(f"unix://{tmp_path}/server")
        assert server.last.peer.startswith("unix:")


async def test_a_url_is_taken_with_a_warning() -> None:
    async with stub_server() as plain, secure_server("127.0.0.1") as secure:
        with pytest.warns(UserWarning, match="no longer supported"):
            await Client.connect(f"http://{plain.address}/path?query#fragment")
        tls = TLSConfig(server_root_ca_cert=ROOT)
        with pytest.warns(UserWarning, match="no longer supported"):
            await Client.connect(f"https://{secure.address}", tls=tls)
        with (
            pytest.warns(UserWarning, match="no longer supported"),
            pytest.raises(RuntimeError, match="an https URL needs a TLS configuration"),
        ):
            await Client.connect(f"https://{secure.address}")


@pytest.mark.parametrize(
    "target", ["", "a b:1", "localhost:99999", "localhost:x", "::1:7233", "user:word@localhost:1"]
)
async def test_an_address_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="invalid target URL"):
        await Client.connect(target)


async def test_a_host_may_be_called_like_a_scheme() -> None:
    with pytest.raises(RuntimeError, match="Server connection error"):
        await Client.connect("unix:7233")


async def test_a_server_that_comes_back_is_found_again() -> None:
    async with stub_server() as server:
        client = await Client.connect(server.address)
        address = server.address
    request = GetSystemInfoRequest()
    with pytest.raises(RPCError) as failed:
        await client.workflow_service.get_system_info(request)
    assert failed.value.status == RPCStatusCode.UNAVAILABLE
    async with stub_server(address=address) as server:
        await client.workflow_service.get_system_info(request, retry=True)
        assert len(server.calls) == 1


async def test_a_name_with_other_addresses_is_connected_to_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls that are under way stay where they are; a name that cannot be found changes nothing."""
    addresses: list[str] = ["10.0.0.1"]
    lookups: list[int] = []

    def look_up(*_: Any, **__: Any) -> list[Any]:
        lookups.append(len(addresses))
        if not addresses:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 1)) for each in addresses]

    async with asyncio.timeout(60), stub_server() as server:
        client = await Client.connect(
            f"localhost:{server.port}", dns_load_balancing_config=DnsLoadBalancingConfig(1)
        )

        async def peer() -> str:
            await client.workflow_service.get_system_info(GetSystemInfoRequest())
            return server.last.peer

        async def several_lookups() -> None:
            lookups.clear()
            while len(lookups) < 3:
                await peer()

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        await several_lookups()
        before = await peer()
        addresses.clear()
        await several_lookups()
        assert await peer() == before
        held = asyncio.Event()
        server.script = [held]
        waiting = asyncio.create_task(
            client.workflow_service.describe_namespace(DescribeNamespaceRequest())
        )
        addresses[:] = ["10.0.0.1", "10.0.0.2"]
        while await peer() == before:
            pass
        held.set()
        await waiting
