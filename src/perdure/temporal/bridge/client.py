"""The connection to a Temporal server: every RPC by name, with metadata, deadlines and retries.

Bytes in, bytes out: requests and answers are never parsed here except to find the namespace for
the routing header. One instance may be used from several event loops and by several workers.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from perdure.temporal.bridge.channel import Channels
from perdure.temporal.bridge.client_workers import ClientWorkers
from perdure.temporal.bridge.errors import RPCError
from perdure.temporal.bridge.retry import CALLS, POLLS, Backoff, Retries
from perdure.temporal.bridge.rpcs import TASK_POLLS, Rpc, find

if TYPE_CHECKING:
    from temporalio.bridge.client import ClientConfig, ClientRetryConfig, RpcCall

    from perdure.temporal.bridge.runtime import RuntimeRef

__all__ = ["ClientRef", "connect_client"]

_LONG_DEADLINE = 70.0
_DEADLINE = 30.0
_UNIMPLEMENTED = 12


class ClientRef:
    """A connected client, as the SDK holds it."""

    def __init__(self, runtime: RuntimeRef, config: ClientConfig) -> None:
        self.runtime = runtime
        self.identity = config.identity
        self.config = config
        self.capabilities: Any = None
        self.workers = ClientWorkers()
        self._channels = Channels(config)
        self._backoff = _backoff(config.retry_config)
        self._api_key = config.api_key
        self._fixed = (
            ("client-name", config.client_name),
            ("client-version", config.client_version),
        )
        self._metadata: list[tuple[str, str | bytes]] = []
        self.update_metadata(config.metadata)

    def update_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Replace the metadata of all later calls; ValueError when a key or value is illegal."""
        self._metadata = _checked(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._api_key = api_key

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
        own = _checked(call.metadata)
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
        metadata: list[tuple[str, str | bytes]],
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
        metadata: list[tuple[str, str | bytes]] | None = None,
        namespace: str | None = None,
    ) -> bytes:
        """Make one call, with retries when asked; raises `RPCError`.

        `timeout` is in seconds for each attempt, by default what the RPC needs. `namespace` saves
        looking for it in the request.
        """
        headers = self._headers(metadata or [], namespace or rpc.namespace(request))
        long = rpc.long(request)
        deadline = timeout or (_LONG_DEADLINE if long else _DEADLINE)
        poll = rpc.name in TASK_POLLS
        retries = Retries(
            POLLS if poll else self._backoff, poll=poll, now=time.monotonic(), random=random.random
        )
        record = self.runtime.request_metrics.start(rpc, request)
        while True:
            record.attempt()
            try:
                answer = await self._attempt(rpc, request, headers, deadline)
            except RPCError as error:
                record.failed(error.code)
                delay = retries.after(error.code, error.message, time.monotonic())
                if not retry or delay is None:
                    raise
                await asyncio.sleep(delay)
            else:
                record.succeeded()
                return answer

    async def _attempt(
        self, rpc: Rpc, request: bytes, headers: list[tuple[str, str | bytes]], deadline: float
    ) -> bytes:
        call = self._channels.get().unary_unary(rpc.path)
        try:
            answer: bytes = await call(request, timeout=deadline, metadata=headers)
        except grpc.aio.AioRpcError as error:
            raise _rpc_error(error) from None
        return answer

    def _headers(
        self, own: list[tuple[str, str | bytes]], namespace: str | None
    ) -> list[tuple[str, str | bytes]]:
        taken = {key for key, _ in own}
        headers = [*own, *(pair for pair in self._metadata if pair[0] not in taken)]
        taken.update(key for key, _ in headers)
        headers += [pair for pair in self._fixed if pair[0] not in taken]
        if namespace and "temporal-namespace" not in taken:
            headers.append(("temporal-namespace", namespace))
        if self._api_key is not None and "authorization" not in taken:
            headers.append(("authorization", f"Bearer {self._api_key}"))
        return headers


def connect_client(runtime: RuntimeRef, config: ClientConfig) -> Awaitable[ClientRef]:
    """A client whose server has answered; RuntimeError when it does not."""
    runtime.process.check("create client")
    client = ClientRef(runtime, config)
    return asyncio.get_running_loop().create_task(_connect(client))


async def _connect(client: ClientRef) -> ClientRef:
    import temporalio.api.workflowservice.v1 as messages

    millis = client.config.connect_timeout_millis
    rpc = find("workflow", "get_system_info")
    request = messages.GetSystemInfoRequest().SerializeToString()
    answer = messages.GetSystemInfoResponse()
    try:
        raw = await client.call(
            rpc, request, retry=False, timeout=None if millis is None else millis / 1000
        )
    except RPCError as error:
        if error.code != _UNIMPLEMENTED:
            raise RuntimeError(
                f"Failed client connect: Server connection error: code {error.code}, "
                f"{error.message}"
            ) from None
    else:
        answer.ParseFromString(raw)
    client.capabilities = answer.capabilities
    return client


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


def _checked(metadata: Mapping[str, str | bytes]) -> list[tuple[str, str | bytes]]:
    """Metadata as gRPC wants it; ValueError with the texts the SDK's users know."""
    pairs: list[tuple[str, str | bytes]] = []
    for key, value in metadata.items():
        if not key or not all(char.isascii() and (char.isalnum() or char in "-_.") for char in key):
            raise ValueError(f"Invalid metadata key '{key}': invalid HTTP header name")
        if key.lower().endswith("-bin") != isinstance(value, bytes):
            kind, form = ("binary", "bytes") if key.lower().endswith("-bin") else ("ASCII", "str")
            raise ValueError(
                f"Invalid metadata value for {kind} key '{key}': expected {form}, "
                f"got {type(value).__name__}"
            )
        if isinstance(value, str) and not all(" " <= char <= "~" or char == "\t" for char in value):
            raise ValueError(
                f"Invalid metadata value for ASCII key '{key}': failed to parse metadata value"
            )
        pairs.append((key.lower(), value))
    return pairs


def _rpc_error(error: grpc.aio.AioRpcError) -> RPCError:
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            details = value if isinstance(value, bytes) else value.encode()
    return RPCError(error.code().value[0], error.details() or "", details)
