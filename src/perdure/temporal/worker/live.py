"""A worker on a server: pollers, slots, the workflow stream and activities, put together.

Nothing starts before lang's first poll of a kind, because everything lives on the loop that polls.

Shutdown, in order: no new work is asked for; the server is told, so that it ends polls that are
under way and gives sticky tasks to other workers; the workflow stream and the activities finish
what they have; lang's polls end with `PollShutdownError`; `finalize_shutdown` waits for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from temporalio.api.namespace.v1 import NamespaceInfo as ServerNamespaceInfo
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.bridge.proto import ActivityHeartbeat, ActivityTaskCompletion, NamespaceInfo
from temporalio.bridge.proto.nexus import NexusTaskCompletion
from temporalio.bridge.proto.workflow_activation import RemoveFromCache

from perdure.core import outcomes
from perdure.core.local_activities import is_local_token
from perdure.core.outcomes import DeploymentVersion
from perdure.core.payload_limits import Limits
from perdure.core.task import MalformedTask
from perdure.temporal.bridge.errors import PollShutdownError, RPCError
from perdure.temporal.bridge.slot_suppliers import Suppliers
from perdure.temporal.bridge.slots import (
    Dealer,
    Permit,
    SlotDeploymentVersion,
    SlotReserveCtx,
)
from perdure.temporal.worker.activities import ActivityShell
from perdure.temporal.worker.local_activities import LocalActivityShell
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.nexus import NexusShell
from perdure.temporal.worker.presence import Presence
from perdure.temporal.worker.service import GrpcService, NamespaceLimits
from perdure.temporal.worker.settings import (
    stream_settings,
    worker_settings,
)
from perdure.temporal.worker.tally import TalliedMetrics
from perdure.temporal.worker.workflow_polls import WorkflowPolls
from perdure.temporal.worker.workflows import WorkflowShell

if TYPE_CHECKING:
    from temporalio.bridge.worker import WorkerConfig

    from perdure.temporal.bridge.client import ClientRef

__all__ = ["LiveWorker"]

_PERMITS_RETURN = 1.0
_TARGET = "temporalio_sdk_core::worker"


class LiveWorker:
    """See the module."""

    def __init__(self, client: ClientRef, config: WorkerConfig) -> None:
        self._config = config
        self._settings = settings = worker_settings(
            config,
            client.identity,
            server_knows_build_ids=client.capabilities.build_id_based_versioning,
        )
        self._client = client
        self._service = GrpcService(client, settings.namespace)
        self._log = client.runtime.log
        self._metrics = TalliedMetrics(
            client.runtime.core_metrics.labelled(
                namespace=settings.namespace, task_queue=settings.task_queue
            )
        )
        self._capabilities = ServerNamespaceInfo.Capabilities()
        self._activity_mailbox = Mailbox()
        self._stopping = False
        self._stopped: asyncio.Task[None] | None = None
        self._workflow_polls: WorkflowPolls | None = None
        tuner = config.tuner
        self._suppliers = Suppliers(tuner, self._log, self._metrics.resources)
        self._workflow_slots = self._dealer(
            "workflow",
            tuner.workflow_slot_supplier,
            limit=max(2, settings.max_cached_workflows) if settings.sticky_queue else None,
        )
        self._local_slots = self._dealer("local-activity", tuner.local_activity_slot_supplier)
        self._activity_slots = self._dealer("activity", tuner.activity_slot_supplier)
        self._nexus_slots = self._dealer("nexus", tuner.nexus_slot_supplier)
        self._workflows: WorkflowShell | None = None
        self._activities: ActivityShell | None = None
        if settings.enable_activities:
            self._activities = ActivityShell(
                settings,
                self._service,
                self._activity_slots,
                self._activity_mailbox,
                log=self._log,
                metrics=self._metrics,
                failed=self._activity_poll_failed,
                on_finished=self._activities_finished,
            )
        if settings.enable_workflows:
            self._workflows = self._workflow_shell(config)
            self._workflow_polls = WorkflowPolls(
                settings,
                self._service,
                self._workflow_slots,
                self._workflows,
                metrics=self._metrics,
                failed=self._workflow_poll_failed,
            )
        self._nexus: NexusShell | None = None
        if settings.enable_nexus:
            self._nexus = NexusShell(
                settings,
                self._service,
                self._nexus_slots,
                log=self._log,
                metrics=self._metrics,
                failed=self._nexus_poll_failed,
            )
        self._workflows_over = self._workflows is None
        self._activities_over = self._activities is None
        self._local_over = self._workflows is None or self._workflows.local is None
        self._presence = Presence(
            client,
            self._service,
            config,
            settings,
            self._metrics.tally,
            cancel_activity=self._cancel_activity,
        )
        client.workers.register(self, settings)
        self._metrics.worker_started()

    def _workflow_shell(self, config: WorkerConfig) -> WorkflowShell:
        settings = self._settings
        sdk_metadata = bool(self._client.capabilities.sdk_metadata)
        shell = WorkflowShell(
            stream_settings(config, settings, has_sdk_metadata=sdk_metadata),
            self._service,
            on_finished=self._workflows_finished,
            metrics=self._metrics,
            on_unusable=self._task_unusable,
        )
        if settings.enable_local_activities:
            shell.local = LocalActivityShell(
                self._local_slots, self._activity_mailbox, shell.feed, self._metrics
            )
        if self._activities is not None:
            shell.eager = self._activities
        return shell

    # What lang asks

    async def validate(self) -> bytes:
        """The namespace as the SDK wants to know it; RuntimeError when there is none."""
        request = DescribeNamespaceRequest(namespace=self._settings.namespace)
        try:
            answer = await self._service.describe_namespace(request)
        except RPCError as error:
            raise RuntimeError(
                f"Worker validation failed: namespace {self._settings.namespace!r} cannot be "
                f"described: code {error.code}, {error.message}"
            ) from None
        self._capabilities.CopyFrom(answer.namespace_info.capabilities)
        limits = answer.namespace_info.limits
        self._service.limits = NamespaceLimits(
            payloads=Limits()
            if self._config.disable_payload_error_limit
            else Limits(limits.blob_size_limit_error, limits.memo_size_limit_error),
            completion=limits.workflow_task_completion_size_limit_error,
            takes_pages=self._capabilities.workflow_task_completion_pagination,
        )
        if not self._stopping:
            self._presence.announce(self._capabilities)
        return NamespaceInfo(
            limits=NamespaceInfo.Limits(
                blob_size_limit_error=limits.blob_size_limit_error,
                memo_size_limit_error=limits.memo_size_limit_error,
            )
        ).SerializeToString()

    def poll_workflow_activation(self) -> asyncio.Future[bytes]:
        if self._workflows is None or self._workflow_polls is None:
            return _failed(PollShutdownError())
        if not self._stopping and not self._workflow_polls.started:
            self._workflow_polls.start(suggests=self._capabilities.poller_autoscaling)
            if self._settings.enable_local_activities:
                self._local_slots.show()
        return self._workflows.mailbox.poll()

    def poll_activity_task(self) -> asyncio.Future[bytes]:
        if self._activities is not None and not self._stopping:
            self._activities.start(suggests=self._capabilities.poller_autoscaling)
        if self._workflows is not None and self._workflows.local and not self._stopping:
            self._workflows.local.start()
        return self._activity_mailbox.poll()

    def poll_nexus_task(self) -> asyncio.Future[bytes]:
        if self._nexus is None:
            return _failed(PollShutdownError())
        if not self._stopping:
            self._nexus.start(suggests=self._capabilities.poller_autoscaling)
        return self._nexus.mailbox.poll()

    def complete_workflow_activation(self, raw: bytes) -> None:
        assert self._workflows is not None, "lang completes what it has polled"
        self._workflows.complete(raw)

    def complete_activity_task(self, raw: bytes) -> None:
        completion = ActivityTaskCompletion.FromString(raw)
        if is_local_token(completion.task_token):
            if self._workflows is not None and self._workflows.local is not None:
                self._workflows.local.complete(completion.task_token, completion.result)
        elif self._activities is not None:
            self._activities.complete(completion)

    def complete_nexus_task(self, raw: bytes) -> None:
        completion = NexusTaskCompletion.FromString(raw)
        assert self._nexus is not None, "lang completes what it has polled"
        self._nexus.complete(completion)

    def record_activity_heartbeat(self, raw: bytes) -> None:
        if self._activities is not None:
            self._activities.heartbeat(ActivityHeartbeat.FromString(raw))

    def request_workflow_eviction(self, run_id: str) -> None:
        if self._workflows is not None:
            reason = RemoveFromCache.EvictionReason.LANG_REQUESTED
            self._workflows.feed(
                outcomes.EvictionRequested(run_id, "Eviction explicitly requested by lang", reason)
            )

    def replace_client(self, client: ClientRef) -> None:
        """Use another connection to the same server from the next call on."""
        self._client.workers.forget(self)
        self._client = client
        self._service.client = client
        client.workers.register(self, self._settings)
        self._presence.move(client)

    # What its client asks

    def try_reserve_workflow(self) -> Permit | None:
        """A slot for the first task of a workflow; only for a worker that lang polls."""
        if self._stopping or self._workflow_polls is None or not self._workflow_polls.started:
            return None
        return self._workflow_slots.try_reserve()

    def deliver_workflow(self, task: PollWorkflowTaskQueueResponse, permit: Permit) -> None:
        assert self._workflows is not None, "only workers with pollers reserve"
        if self._stopping:
            permit.release()
        else:
            self._workflows.new_task(task, permit)

    # What the server asks

    def _cancel_activity(self, task_token: bytes) -> None:
        if self._activities is not None:
            self._activities.cancel(task_token)

    # Shutdown

    def initiate_shutdown(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._client.workers.forget(self)
        self._stopped = asyncio.get_running_loop().create_task(self._stop())

    async def finalize_shutdown(self) -> None:
        self.initiate_shutdown()
        assert self._stopped is not None
        await self._stopped
        if self._workflows is not None:
            await self._workflows.idle()
        if self._activities is not None:
            await self._activities.idle()
        if self._nexus is not None:
            await self._nexus.over()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PERMITS_RETURN):
                for slots in (
                    self._workflow_slots,
                    self._local_slots,
                    self._activity_slots,
                    self._nexus_slots,
                ):
                    await slots.all_returned()

    async def _stop(self) -> None:
        if self._workflow_polls is not None:
            self._workflow_polls.stop()
        if self._activities is not None:
            self._activities.stop()
        if self._nexus is not None:
            self._nexus.stop()
        if self._workflows is not None:
            self._workflows.feed(outcomes.ShutdownRequested())
        await self._presence.end()
        by_server = self._capabilities.worker_poll_complete_on_shutdown
        if self._workflow_polls is not None:
            await self._workflow_polls.ended(by_server=by_server)
        if self._workflows is not None:
            self._workflows.feed(outcomes.PollersStopped())
        if self._activities is not None:
            await self._activities.polls_ended(by_server=by_server)
        if self._nexus is not None:
            await self._nexus.polls_ended(by_server=by_server)
        self._close_activities_if_over()

    def _workflows_finished(self) -> None:
        self._workflows_over = True
        if self._workflows is not None and self._workflows.local is not None:
            self._workflows.local.when_idle(self._local_finished)
        self._close_activities_if_over()

    def _local_finished(self) -> None:
        self._local_over = True
        self._close_activities_if_over()

    def _activities_finished(self) -> None:
        self._activities_over = True
        self._close_activities_if_over()

    def _close_activities_if_over(self) -> None:
        if self._stopping and self._activities_over and self._local_over:
            self._activity_mailbox.close(PollShutdownError())

    # Polls

    def _task_unusable(self, error: MalformedTask) -> None:
        message = "Server returned an unparseable workflow task"
        self._log.write(40, _TARGET, message, error=error.message)

    def _workflow_poll_failed(self, error: Exception) -> None:
        assert self._workflows is not None
        self._workflows.mailbox.fail(_poll_failure(error))
        self.initiate_shutdown()

    def _activity_poll_failed(self, error: Exception) -> None:
        self._activity_mailbox.fail(_poll_failure(error))
        self.initiate_shutdown()

    def _nexus_poll_failed(self, error: Exception) -> None:
        assert self._nexus is not None
        self._nexus.mailbox.fail(_poll_failure(error))
        self.initiate_shutdown()

    def _dealer(self, kind: str, config: object, limit: int | None = None) -> Dealer:
        settings = self._settings
        versioning = settings.versioning
        name = versioning.deployment_name if isinstance(versioning, DeploymentVersion) else ""
        version = SlotDeploymentVersion(name, versioning.build_id)

        def context(sticky: bool) -> SlotReserveCtx:
            return SlotReserveCtx(
                slot_type=kind,
                task_queue=settings.task_queue,
                worker_identity=settings.identity,
                worker_build_id=settings.build_id,
                worker_deployment_version=version,
                is_sticky=sticky,
            )

        return Dealer(
            self._suppliers.make(config, kind=kind),
            context,
            limit,
            on_change=lambda used, available: self._metrics.slots(kind, used, available),
        )


def _failed(error: Exception) -> asyncio.Future[bytes]:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _poll_failure(error: Exception) -> RuntimeError:
    if isinstance(error, RPCError):
        return RuntimeError(f"Poll failure: Unhandled grpc error when polling: {error.status}")
    return RuntimeError(f"Poll failure: {error}")
