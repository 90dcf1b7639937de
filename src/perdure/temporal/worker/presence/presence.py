"""How one worker is known to the server while it runs, and how it takes its leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import ShutdownWorkerRequest

from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.presence.heartbeat import Host, WorkerPulse
from perdure.temporal.worker.presence.namespace_worker import NamespaceWorker, namespace_worker
from perdure.temporal.worker.presence.tally import Tally
from perdure.temporal.worker.service import GrpcService
from perdure.temporal.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from temporalio.bridge.worker import WorkerConfig

    from perdure.temporal.bridge.client import ClientRef

__all__ = ["Presence"]


class Presence:
    """Nothing is said before `announce`, and nothing ever without an interval for heartbeats."""

    def __init__(
        self,
        client: ClientRef,
        service: GrpcService,
        config: WorkerConfig,
        settings: WorkerSettings,
        tally: Tally,
        *,
        cancel_activity: Callable[[bytes], None],
    ) -> None:
        self._client = client
        self._service = service
        self._settings = settings
        self._capabilities = NamespaceInfo.Capabilities()
        self._group: NamespaceWorker | None = None
        self._moving: set[asyncio.Task[None]] = set()
        self._pulse: WorkerPulse | None = None
        self.cancel_activity = cancel_activity
        if client.runtime.worker_heartbeat_interval_millis:
            self._pulse = WorkerPulse(
                config, settings, tally, with_environment=client.runtime.tells_environment
            )

    def beat(self, host: Host) -> WorkerHeartbeat:
        """The next heartbeat of this worker."""
        assert self._pulse is not None, "without a pulse it has joined nothing"
        return self._pulse.beat(host)

    def announce(self, capabilities: NamespaceInfo.Capabilities) -> None:
        """The worker begins; `capabilities` are those of its namespace."""
        self._capabilities = capabilities
        if self._pulse is None or not capabilities.worker_heartbeats or self._group is not None:
            return
        self._group = namespace_worker(
            self._client, self._settings.namespace, has_commands=capabilities.worker_commands
        )
        self._group.join(self)
        self._service.command_queue = self._group.queue

    def move(self, client: ClientRef) -> None:
        """The worker has another client."""
        self._client = client
        group, self._group = self._group, None
        if group is None:
            return
        group.leave(self)
        moving = asyncio.get_running_loop().create_task(group.end_if_left())
        self._moving.add(moving)
        moving.add_done_callback(self._moving.discard)
        self.announce(self._capabilities)

    async def end(self, within: float) -> bool:
        """The worker takes no more work: tell the server so, and say whether it has heard.

        It has so many seconds for that.
        """
        group, self._group = self._group, None
        request = self._goodbye()
        if group is not None and self._pulse is not None:
            group.leave(self)
            request.worker_heartbeat.CopyFrom(self._pulse.beat(group.host(), shutting_down=True))
        heard = True
        try:
            await self._service.shutdown_worker(request, within)
        except RPCError as error:
            heard = False
            Journal(self._client.runtime.log).server_not_told(error)
        if group is not None:
            await group.end_if_left()
        if self._moving:
            await asyncio.wait(list(self._moving))
        return heard

    def _goodbye(self) -> ShutdownWorkerRequest:
        settings = self._settings
        types = []
        if settings.enable_workflows:
            types.append(TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        if settings.enable_activities:
            types.append(TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
        if settings.enable_nexus:
            types.append(TaskQueueType.TASK_QUEUE_TYPE_NEXUS)
        return ShutdownWorkerRequest(
            namespace=settings.namespace,
            sticky_task_queue=settings.sticky_queue or "",
            identity=settings.identity,
            reason="graceful shutdown",
            worker_instance_key=settings.instance_key,
            task_queue=settings.task_queue,
            task_queue_types=types,
        )
