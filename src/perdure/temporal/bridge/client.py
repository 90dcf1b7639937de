"""The connection to a Temporal server: every RPC by name, with metadata, deadlines and retries.

Bytes in, bytes out: requests and answers are never parsed here except to find the namespace for
the routing header. One instance may be used from several event loops and by several workers.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from perdure.core.status_codes import CANCELLED, OUT_OF_RANGE, UNIMPLEMENTED
from perdure.temporal.bridge.client_workers import ClientWorkers
from perdure.temporal.connection.channel import CannotConnect, Channels
from perdure.temporal.connection.headers import (
    Headers,
    InvalidMetadata,
    Metadata,
    call_metadata,
    deadline_of,
)
from perdure.temporal.connection.kept_answer import kept_answer
from perdure.temporal.connection.payload_guard import PayloadGuard
from perdure.temporal.connection.retry import CALLS, POLLS, Backoff, Retries, is_completion_lost
from perdure.temporal.connection.retry_log import log_retry
from perdure.temporal.connection.rpcs import TASK_POLLS, Rpc, find
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.telemetry.log_filter import WARN

if TYPE_CHECKING:
    from temporalio.bridge.client import ClientConfig, ClientRetryConfig, RpcCall

    from perdure.temporal.bridge.runtime import RuntimeRef
    from perdure.temporal.worker.presence.namespace_worker import NamespaceWorker

__all__ = ["ClientRef", "connect_client"]

_LONG_DEADLINE = 70.0
_DEADLINE = 30.0
# By how much a deadline may be over and yet be ours: gRPC counts in milliseconds on another clock.
_CLOCK_STEP = 0.01
_TOO_LARGE = re.compile(r"CLIENT: .*message larger than max \((\d+) vs\. (\d+)\)")
_TARGET = "temporalio_client"


class ClientRef:
    """A connected client, as the SDK holds it."""

    def __init__(self, runtime: RuntimeRef, config: ClientConfig) -> None:
        import temporalio.api.workflowservice.v1 as messages

        self.runtime = runtime
        self.identity = config.identity
        self.config = config
        self.connect_timeout = (
            None if not config.connect_timeout_millis else config.connect_timeout_millis / 1000
        )
        self.capabilities: Any = messages.GetSystemInfoResponse.Capabilities()
        self.workers = ClientWorkers()
        self.namespace_workers: dict[tuple[str, asyncio.AbstractEventLoop], NamespaceWorker] = {}
        self.guard = PayloadGuard(config, runtime.log)
        self.channels = Channels(config)
        self._backoff = _backoff(config.retry_config)
        self._headers = Headers(config.client_name, config.client_version)
        self.update_metadata(config.metadata)
        self.update_api_key(config.api_key)

    def update_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Replace the metadata of all later calls; ValueError when a key or value is illegal."""
        self._headers.update_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """Replace the API key of all later calls."""
        if not self._headers.update_api_key(api_key):
            text = "The API key holds characters no header may hold; it is not sent"
            self.runtime.log.write(WARN, _TARGET, text)

    def call_workflow_service(self, call: RpcCall) -> Awaitable[bytes]:
        return self._called("workflow", call)

    def call_operator_service(self, call: RpcCall) -> Awaitable[bytes]:
        return self._called("operator", call)

    def call_cloud_service(self, call: RpcCall) -> Awaitable[bytes]:
        return self._called("cloud", call)

    def call_test_service(self, call: RpcCall) -> Awaitable[bytes]:
        return self._called("test", call)

    def call_health_service(self, call: RpcCall) -> Awaitable[bytes]:
        return self._called("health", call)

    def _called(self, service: str, call: RpcCall) -> Awaitable[bytes]:
        self.runtime.process.check("use client")
        rpc = find(service, call.rpc)
        own = call_metadata(call.metadata)
        if call.retry:
            self.guard.look_at(rpc, call.req)
        timeout = None if call.timeout_millis is None else call.timeout_millis / 1000
        make = self._start_workflow if rpc.name == "start_workflow_execution" else self.call
        return asyncio.get_running_loop().create_task(
            make(rpc, call.req, retry=call.retry, timeout=timeout, metadata=own)
        )

    async def _start_workflow(
        self,
        rpc: Rpc,
        raw: bytes,
        *,
        retry: bool,
        timeout: float | None,
        metadata: Metadata,
    ) -> bytes:
        """Start a workflow, eagerly when that is asked for and a worker has a slot."""
        import temporalio.api.workflowservice.v1 as messages

        request = messages.StartWorkflowExecutionRequest.FromString(raw)
        if not request.request_eager_execution:
            return await self.call(rpc, raw, retry=retry, timeout=timeout, metadata=metadata)
        found = self.workers.reserve(request.namespace, request.task_queue.name)
        if found is None:
            request.request_eager_execution = False
        else:
            worker, settings, permit = found
            options = settings.deployment_options()
            if options is not None:
                request.eager_worker_deployment_options.CopyFrom(options)
        raw = request.SerializeToString()
        try:
            answer = await self.call(rpc, raw, retry=retry, timeout=timeout, metadata=metadata)
        except BaseException:
            if found is not None:
                permit.release()
            raise
        if found is not None:
            response = messages.StartWorkflowExecutionResponse.FromString(answer)
            if response.HasField("eager_workflow_task"):
                worker.deliver_workflow(response.eager_workflow_task, permit)
            else:
                permit.release()
        return answer

    async def call(
        self,
        rpc: Rpc,
        request: bytes,
        *,
        retry: bool,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        namespace: str | None = None,
    ) -> bytes:
        """Make one call, with retries when asked; raises `RPCError`.

        `timeout` is in seconds for each attempt, by default what the RPC needs: long polls are
        those that are also made again. `namespace` saves looking for it in the request.
        """
        namespace = namespace or rpc.namespace(request)
        own = metadata or []
        headers = self._headers.of_call(own, namespace)
        long = retry and rpc.long(request)
        deadline = timeout or deadline_of(own) or (_LONG_DEADLINE if long else _DEADLINE)
        poll = rpc.name in TASK_POLLS
        retries = Retries(
            POLLS if poll else self._backoff, poll=poll, now=time.monotonic(), random=random.random
        )
        record = self.runtime.request_metrics.start(
            rpc, request, namespace=namespace, long=long or poll
        )
        while True:
            record.attempt()
            try:
                answer = await self._attempt(rpc, request, headers, deadline, keep=poll)
            except RPCError as error:
                record.failed(error)
                delay = retries.after(error.code, error.message, time.monotonic())
                if not retry or delay is None or is_completion_lost(error.details):
                    raise
                log_retry(self.runtime.log, rpc.name, retries, error)
                await asyncio.sleep(delay)
            else:
                record.succeeded()
                return answer

    async def _attempt(
        self, rpc: Rpc, request: bytes, headers: Metadata, deadline: float, *, keep: bool
    ) -> bytes:
        """`keep` says that an answer goes before a cancellation."""
        channel = self.channels.get()
        started = time.monotonic()
        try:
            call = channel.unary_unary(rpc.path)(request, timeout=deadline, metadata=headers)
            answer: bytes = await (kept_answer(call) if keep else call)
        except grpc.aio.AioRpcError as error:
            expired = time.monotonic() - started >= deadline - _CLOCK_STEP
            raise _rpc_error(error, expired=expired) from None
        return answer


def connect_client(runtime: RuntimeRef, config: ClientConfig) -> Awaitable[ClientRef]:
    """A client whose server has answered; RuntimeError when it does not or cannot be asked."""
    runtime.process.check("create client")
    try:
        client = ClientRef(runtime, config)
    except InvalidMetadata as error:
        raise RuntimeError(f"Failed client connect: Invalid headers: {error}") from None
    return asyncio.get_running_loop().create_task(_connect(client))


async def _connect(client: ClientRef) -> ClientRef:
    import temporalio.api.workflowservice.v1 as messages

    answer = messages.GetSystemInfoResponse()
    request = messages.GetSystemInfoRequest().SerializeToString()
    try:
        await client.channels.connect(client.connect_timeout)
        answer.ParseFromString(
            await client.call(find("workflow", "get_system_info"), request, retry=False)
        )
    except CannotConnect as error:
        fault = f"Server connection error: {error}"
    except RPCError as error:
        if error.code == UNIMPLEMENTED:
            return client
        fault = (
            "`get_system_info` call error after connection: "
            f"Status {{ code: {error.code}, message: {json.dumps(error.message)} }}"
            if client.channels.connected
            else f"Server connection error: {error.message}"
        )
    else:
        client.capabilities = answer.capabilities
        return client
    await client.channels.close()
    raise RuntimeError(f"Failed client connect: {fault}")


def _backoff(config: ClientRetryConfig | None) -> Backoff:
    if config is None:
        return CALLS
    elapsed = config.max_elapsed_time_millis
    return Backoff(
        initial=config.initial_interval_millis / 1000,
        factor=config.multiplier,
        longest=config.max_interval_millis / 1000,
        jitter=config.randomization_factor,
        elapsed=None if elapsed is None else elapsed / 1000,
        retries=config.max_retries,
    )


def _rpc_error(error: grpc.aio.AioRpcError, *, expired: bool) -> RPCError:
    """The error as the SDK knows it.

    A time-out of ours is a cancelled call, not a late answer; an answer too large for us is out of
    range, because the server has not run out of anything.
    """
    if expired and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RPCError(CANCELLED, "Timeout expired", b"")
    too_large = _TOO_LARGE.search(error.details() or "")
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and too_large:
        found, limit = too_large.groups()
        return RPCError(
            OUT_OF_RANGE,
            f"Error, decoded message length too large: found {found} bytes, the limit is: {limit} "
            "bytes",
            b"",
        )
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            details = value if isinstance(value, bytes) else value.encode()
    return RPCError(error.code().value[0], error.details() or "", details)
