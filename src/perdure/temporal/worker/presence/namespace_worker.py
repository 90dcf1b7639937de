"""What the workers of one client in one namespace do together: heartbeats and commands.

One call tells the server of all of them at every interval, and one poll waits for commands to any
of them, where the namespace has commands. It begins with the first worker and ends with the last.
A client is shared by event loops, so there is one of these for each loop as well.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Final, Protocol

from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RecordWorkerHeartbeatRequest,
    ShutdownWorkerRequest,
)

from perdure.core.status_codes import UNIMPLEMENTED
from perdure.temporal.connection.retry import POLLS, Retries
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.slots.system_resources import SystemResources
from perdure.temporal.telemetry.log_filter import DEBUG, WARN
from perdure.temporal.worker.presence.heartbeat import Host
from perdure.temporal.worker.presence.worker_commands import answer_command, command_queue
from perdure.temporal.worker.service import GrpcService

if TYPE_CHECKING:
    from perdure.temporal.bridge.client import ClientRef

__all__ = ["Member", "NamespaceWorker", "namespace_worker"]

_POLL: Final = 70.0
_STOP: Final = 1.0
_HEARING: Final = 5.0
_TARGET: Final = "temporalio_sdk_core::worker::heartbeat"


class Member(Protocol):
    """A worker, as the others of its namespace know it."""

    def beat(self, host: Host) -> WorkerHeartbeat:
        """Its next heartbeat."""

    def cancel_activity(self, task_token: bytes) -> None:
        """Cancel an activity, if it has it."""


class NamespaceWorker:
    """See the module."""

    def __init__(self, client: ClientRef, namespace: str, *, has_commands: bool) -> None:
        self.grouping_key = str(uuid.uuid4())
        self._client = client
        self._namespace = namespace
        self._key = (namespace, asyncio.get_running_loop())
        self._service = GrpcService(client, namespace)
        self._interval = (client.runtime.worker_heartbeat_interval_millis or 0) / 1000
        self._instance_key = str(uuid.uuid4())
        self._resources = SystemResources()
        self._members: list[Member] = []
        self._beats: asyncio.Task[None] | None = None
        self._commands: asyncio.Task[None] | None = None
        self.queue = command_queue(namespace, self.grouping_key) if has_commands else ""

    def host(self) -> Host:
        """Where the workers run, and how it is there now."""
        return Host(self.grouping_key, self._resources.sample())

    def join(self, member: Member) -> None:
        """Speak for this worker as well from now on."""
        self._members.append(member)
        loop = asyncio.get_running_loop()
        if self._beats is None:
            self._beats = loop.create_task(self._beat())
        if self._commands is None and self.queue:
            self._commands = loop.create_task(self._obey())

    def leave(self, member: Member) -> None:
        """Be silent about this worker from now on."""
        self._members.remove(member)
        if not self._members:
            self._client.namespace_workers.pop(self._key, None)
            if self._beats is not None:
                self._beats.cancel()

    async def end_if_left(self) -> None:
        """After the last worker has left, end what it still did."""
        if self._members:
            return
        if self._beats is not None:
            await asyncio.wait([self._beats])
        commands, self._commands = self._commands, None
        if commands is not None:
            await self._end_commands(commands)

    async def _beat(self) -> None:
        while True:
            host = self.host()
            request = RecordWorkerHeartbeatRequest(
                namespace=self._namespace,
                identity=self._client.identity,
                worker_heartbeat=[member.beat(host) for member in self._members],
            )
            try:
                await self._service.record_worker_heartbeat(request)
            except RPCError as error:
                level = DEBUG if error.code == UNIMPLEMENTED else WARN
                self._log(level, "Worker heartbeats were not recorded", error)
                if error.code == UNIMPLEMENTED:
                    return
            await asyncio.sleep(self._interval)

    async def _obey(self) -> None:
        request = PollNexusTaskQueueRequest(
            namespace=self._namespace,
            identity=self._client.identity,
            worker_instance_key=self._instance_key,
            task_queue=TaskQueue(
                name=self.queue, kind=TaskQueueKind.TASK_QUEUE_KIND_WORKER_COMMANDS
            ),
        )
        while self._members:
            try:
                task = await self._poll(request)
            except RPCError as error:
                self._log(WARN, "Worker commands cannot be polled for", error)
                return
            if task.task_token:
                await self._answer(task)

    async def _poll(self, request: PollNexusTaskQueueRequest) -> PollNexusTaskQueueResponse:
        """What the server says, however often it must be asked."""
        now = asyncio.get_running_loop().time
        retries = Retries(POLLS, poll=True, now=now(), random=random.random)
        while True:
            try:
                return await self._service.poll_nexus(request, _POLL)
            except RPCError as error:
                pause = retries.after(error.code, error.message, now())
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _answer(self, task: PollNexusTaskQueueResponse) -> None:
        answer = answer_command(
            task,
            self._cancel_activity,
            namespace=self._namespace,
            identity=self._client.identity,
        )
        try:
            await self._service.answer_nexus(answer)
        except RPCError as error:
            self._log(WARN, "The answer to a worker command was not taken", error)

    def _cancel_activity(self, task_token: bytes) -> None:
        for member in self._members:
            member.cancel_activity(task_token)

    async def _end_commands(self, commands: asyncio.Task[None]) -> None:
        """The server ends the poll when it is told; one that does not is not waited for."""
        request = ShutdownWorkerRequest(
            namespace=self._namespace,
            identity=self._client.identity,
            reason="graceful shutdown",
            worker_instance_key=self._instance_key,
            task_queue=self.queue,
            task_queue_types=[TaskQueueType.TASK_QUEUE_TYPE_NEXUS],
        )
        try:
            await self._service.shutdown_worker(request, _HEARING)
        except RPCError as error:
            self._log(DEBUG, "ShutdownWorker failed", error)
        await asyncio.wait([commands], timeout=_STOP)
        commands.cancel()
        await asyncio.wait([commands])

    def _log(self, level: int, message: str, error: RPCError) -> None:
        self._client.runtime.log.write(level, _TARGET, message, error=error.status)


def namespace_worker(client: ClientRef, namespace: str, *, has_commands: bool) -> NamespaceWorker:
    """The one of this client and event loop, made when it is first asked for."""
    key = (namespace, asyncio.get_running_loop())
    found = client.namespace_workers.get(key)
    if found is None:
        found = NamespaceWorker(client, namespace, has_commands=has_commands)
        client.namespace_workers[key] = found
    return found
