"""Retries, time-outs and cancellation of calls, with the official client on a scripted server."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import grpc
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import RetryConfig, RPCError, RPCStatusCode
from tests.temporal.support.wire import StubServer, stub_server

AWAY = (grpc.StatusCode.UNAVAILABLE, "away")
WRONG = (grpc.StatusCode.INVALID_ARGUMENT, "wrong")


async def connect(server: StubServer, runtime: Runtime | None = None, **retry: int) -> Client:
    config = RetryConfig(initial_interval_millis=1, max_interval_millis=5, **retry)
    client = await Client.connect(server.address, retry_config=config, runtime=runtime)
    server.calls.clear()
    return client


async def describe(
    client: Client, *, retry: bool = True, timeout: timedelta | None = None
) -> RPCError | None:
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(), retry=retry, timeout=timeout
        )
    except RPCError as error:
        return error
    return None


async def test_a_call_is_made_again_until_it_succeeds() -> None:
    async with stub_server() as server:
        client = await connect(server)
        server.script = [AWAY] * 3
        assert await describe(client) is None
        assert len(server.calls) == 4


async def test_only_calls_that_may_be_retried_are() -> None:
    async with stub_server() as server:
        client = await connect(server)
        server.script = [AWAY]
        error = await describe(client, retry=False)
        assert error is not None
        assert error.status == RPCStatusCode.UNAVAILABLE
        server.script = [WRONG]
        error = await describe(client)
        assert error is not None
        assert error.status == RPCStatusCode.INVALID_ARGUMENT
        assert len(server.calls) == 2


async def test_the_number_of_attempts_is_bounded() -> None:
    async with stub_server() as server:
        client = await connect(server, max_retries=3)
        server.script = [AWAY] * 9
        error = await describe(client)
        assert error is not None
        assert error.message == "away"
        assert len(server.calls) == 3


async def test_a_time_out_cancels_the_call() -> None:
    async with stub_server() as server:
        client = await connect(server)
        server.script = [asyncio.Event()]
        error = await describe(client, timeout=timedelta(milliseconds=50))
        assert error is not None
        assert (error.status, error.message) == (RPCStatusCode.CANCELLED, "Timeout expired")
        await asyncio.wait_for(server.cancelled.wait(), 10)
        assert len(server.calls) == 1


async def test_a_server_that_is_late_itself_says_so() -> None:
    async with stub_server() as server:
        client = await connect(server)
        server.script = [(grpc.StatusCode.DEADLINE_EXCEEDED, "the server gave up")]
        error = await describe(client)
        assert error is not None
        assert error.status == RPCStatusCode.DEADLINE_EXCEEDED
        assert error.message == "the server gave up"


async def test_a_cancelled_caller_cancels_the_call() -> None:
    async with stub_server() as server:
        client = await connect(server)
        server.script = [asyncio.Event()]
        waiting = asyncio.create_task(describe(client))
        while not server.calls:  # noqa: ASYNC110 - the server only records
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(server.cancelled.wait(), 10)


async def test_many_retries_are_logged() -> None:
    texts: list[str] = []
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())
            if "retried 8 times" in texts[-1]:
                loop.call_soon_threadsafe(arrived.set)

    logger = logging.Logger("forwarded")  # noqa: LOG001
    logger.addHandler(Handler())
    forwarding = LogForwardingConfig(logger)
    telemetry = TelemetryConfig(logging=LoggingConfig("WARN", forwarding=forwarding))
    async with stub_server() as server:
        client = await connect(server, Runtime(telemetry=telemetry), max_retries=0)
        server.script = [AWAY] * 8
        assert await describe(client) is None
        await asyncio.wait_for(arrived.wait(), 10)
    assert [text.split("] ")[1].split(" {")[0] for text in texts] == [
        f"gRPC call describe_namespace retried {times} times" for times in (6, 7, 8)
    ]


async def test_a_key_that_no_header_can_hold_is_left_out() -> None:
    async with stub_server() as server:
        client = await connect(server)
        client.api_key = "read from a file\n"
        await describe(client)
        assert "authorization" not in server.last.metadata
