"""A worker on a server: pollers, slots, the workflow stream and activities, put together.

Nothing starts before lang's first poll of a kind, because everything lives on the loop that polls.
How it ends is in `worker.ending`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.bridge.proto import ActivityHeartbeat, ActivityTaskCompletion, NamespaceInfo
from temporalio.bridge.proto.nexus import NexusTaskCompletion
from temporalio.bridge.proto.workflow_activation import RemoveFromCache

from perdure.core.inputs import EvictionRequested
from perdure.core.local_activities.tasks import is_local_token
from perdure.core.payload_limits import Limits
from perdure.temporal.sdk_errors import PollShutdownError, RPCError
from perdure.temporal.slots.dealer import Permit
from perdure.temporal.worker.activities import ActivityShell
from perdure.temporal.worker.dealers import Dealers
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.ending import WorkerEnding, WorkerParts
from perdure.temporal.worker.local_activities import LocalActivityShell
from perdure.temporal.worker.mailbox import Mailbox
from perdure.temporal.worker.nexus import NexusShell
from perdure.temporal.worker.polling.workflow_polls import WorkflowPolls
from perdure.temporal.worker.presence.presence import Presence
from perdure.temporal.worker.presence.tally import TalliedMetrics
from perdure.temporal.worker.service import GrpcService, NamespaceLimits
from perdure.temporal.worker.settings import (
    stream_settings,
    worker_settings,
)
from perdure.temporal.worker.workflows import WorkflowShell

if TYPE_CHECKING:
    from temporalio.bridge.worker import WorkerConfig

    from perdure.temporal.bridge.client import ClientRef

__all__ = ["LiveWorker"]


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
        self._journal = journal = Journal(
            self._log, namespace=settings.namespace, task_queue=settings.task_queue
        )
        self._metrics = TalliedMetrics(
            client.runtime.core_metrics.labelled(
                namespace=settings.namespace, task_queue=settings.task_queue
            )
        )
        show = client.runtime.core_metrics.show
        dealers = Dealers(config.tuner, settings, self._log, self._metrics, show)
        self._parts = parts = WorkerParts(dealers)
        self._presence = Presence(
            client,
            self._service,
            config,
            settings,
            self._metrics.tally,
            cancel_activity=self._cancel_activity,
        )
        self._ending = WorkerEnding(journal, parts, self._presence.end)
        if settings.enable_activities:
            self._make_activities(dealers)
        if settings.enable_workflows:
            self._make_workflows(dealers)
        if settings.enable_nexus:
            self._make_nexus(dealers)
        client.workers.register(self, settings)
        self._metrics.worker_started()
        journal.created()
        if settings.enable_workflows and config.max_cached_workflows and not settings.sticky_queue:
            journal.caches_nothing()
        if settings.enable_activities:
            journal.expect_heartbeat_details(client.capabilities)

    def _make_activities(self, dealers: Dealers) -> None:
        mailbox = self._parts.activity_mailbox
        self._parts.activities = ActivityShell(
            self._settings,
            self._service,
            dealers.activity,
            mailbox,
            journal=self._journal,
            metrics=self._metrics,
            failed=lambda error: self._poll_failed(error, mailbox),
            on_finished=self._ending.activities_over,
        )

    def _make_nexus(self, dealers: Dealers) -> None:
        self._parts.nexus = NexusShell(
            self._settings,
            self._service,
            dealers.nexus,
            log=self._log,
            metrics=self._metrics,
            failed=self._nexus_poll_failed,
        )

    def _make_workflows(self, dealers: Dealers) -> None:
        settings, parts = self._settings, self._parts
        sdk_metadata = bool(self._client.capabilities.sdk_metadata)
        parts.workflows = workflows = WorkflowShell(
            stream_settings(self._config, settings, has_sdk_metadata=sdk_metadata),
            self._service,
            on_finished=self._ending.workflows_over,
            metrics=self._metrics,
            journal=self._journal,
        )
        if settings.enable_local_activities:
            workflows.local = LocalActivityShell(
                dealers.local,
                parts.activity_mailbox,
                workflows.feed,
                self._metrics,
                self._journal,
            )
        if parts.activities is not None:
            workflows.eager = parts.activities
        parts.workflow_polls = WorkflowPolls(
            settings,
            self._service,
            dealers.workflow,
            workflows,
            metrics=self._metrics,
            journal=self._journal,
            failed=lambda error: self._poll_failed(error, workflows.mailbox),
        )

    # What lang asks

    async def validate(self) -> bytes:
        """The namespace as the SDK wants to know it; RuntimeError when there is none."""
        request = DescribeNamespaceRequest(namespace=self._settings.namespace)
        try:
            answer = await self._service.describe_namespace(request)
        except RPCError as error:
            raise RuntimeError(
                f"Worker validation failed: Namespace {self._settings.namespace} was not found or "
                f"otherwise could not be described: {error.status}"
            ) from None
        self._ending.capabilities.CopyFrom(answer.namespace_info.capabilities)
        limits = answer.namespace_info.limits
        self._service.limits = NamespaceLimits(
            payloads=Limits()
            if self._config.disable_payload_error_limit
            else Limits(limits.blob_size_limit_error, limits.memo_size_limit_error),
            completion=limits.workflow_task_completion_size_limit_error,
            takes_pages=self._ending.capabilities.workflow_task_completion_pagination,
        )
        if not self._ending.begun:
            self._presence.announce(self._ending.capabilities)
        return NamespaceInfo(
            limits=NamespaceInfo.Limits(
                blob_size_limit_error=limits.blob_size_limit_error,
                memo_size_limit_error=limits.memo_size_limit_error,
            )
        ).SerializeToString()

    def poll_workflow_activation(self) -> asyncio.Future[bytes]:
        workflows, polls = self._parts.workflows, self._parts.workflow_polls
        if workflows is None or polls is None:
            return _failed(PollShutdownError())
        if self._may_start() and not polls.started:
            polls.start(suggests=self._suggests)
            if workflows.local is not None:
                self._parts.dealers.local.show()
        return workflows.mailbox.poll()

    def poll_activity_task(self) -> asyncio.Future[bytes]:
        parts = self._parts
        if self._may_start():
            if parts.activities is not None:
                parts.activities.start(suggests=self._suggests)
            if parts.workflows is not None and parts.workflows.local is not None:
                parts.workflows.local.start()
        return parts.activity_mailbox.poll()

    def poll_nexus_task(self) -> asyncio.Future[bytes]:
        nexus = self._parts.nexus
        if nexus is None:
            return _failed(PollShutdownError())
        if self._may_start():
            nexus.start(suggests=self._suggests)
        return nexus.mailbox.poll()

    @property
    def _suggests(self) -> bool:
        return self._ending.capabilities.poller_autoscaling

    def _may_start(self) -> bool:
        """Whether what is polled may start, if it has not."""
        self._ending.polled()
        return not self._ending.begun

    def complete_workflow_activation(self, raw: bytes) -> None:
        assert self._parts.workflows is not None, "lang completes what it has polled"
        self._parts.workflows.complete(raw)

    def complete_activity_task(self, raw: bytes) -> None:
        completion = ActivityTaskCompletion.FromString(raw)
        if is_local_token(completion.task_token):
            if self._parts.workflows is not None and self._parts.workflows.local is not None:
                self._parts.workflows.local.complete(completion.task_token, completion.result)
        elif self._parts.activities is not None:
            self._parts.activities.complete(completion)

    def complete_nexus_task(self, raw: bytes) -> None:
        completion = NexusTaskCompletion.FromString(raw)
        assert self._parts.nexus is not None, "lang completes what it has polled"
        self._parts.nexus.complete(completion)

    def record_activity_heartbeat(self, raw: bytes) -> None:
        if self._parts.activities is not None:
            self._parts.activities.heartbeat(ActivityHeartbeat.FromString(raw))

    def request_workflow_eviction(self, run_id: str) -> None:
        if self._parts.workflows is not None:
            reason = RemoveFromCache.EvictionReason.LANG_REQUESTED
            self._parts.workflows.feed(
                EvictionRequested(run_id, "Eviction explicitly requested by lang", reason)
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
        """A slot for the first task of a workflow, which waits for lang's first poll if it must."""
        if self._ending.begun or self._parts.workflows is None or self._ending.polled_elsewhere:
            return None
        return self._parts.dealers.workflow.try_reserve()

    def deliver_workflow(self, task: PollWorkflowTaskQueueResponse, permit: Permit) -> None:
        assert self._parts.workflows is not None, "only workers of workflows reserve"
        if self._ending.begun:
            permit.release()
        else:
            self._parts.workflows.new_task(task, permit)

    # What the server asks

    def _cancel_activity(self, task_token: bytes) -> None:
        if self._parts.activities is not None:
            self._parts.activities.cancel(task_token)

    # Shutdown

    def initiate_shutdown(self) -> None:
        """Take no new work. May be called again."""
        self._client.workers.forget(self)
        self._ending.begin()

    async def finalize_shutdown(self) -> None:
        """Wait until everything has ended."""
        self._client.workers.forget(self)
        await self._ending.finish()

    def waiting_for(self) -> list[str]:
        """What a shutdown still waits for, in words."""
        return self._ending.waiting_for()

    # Polls

    def _poll_failed(self, error: Exception, mailbox: Mailbox) -> None:
        mailbox.fail(_poll_failure(error))
        self.initiate_shutdown()

    def _nexus_poll_failed(self, error: Exception) -> None:
        assert self._parts.nexus is not None, "it polls"
        self._poll_failed(error, self._parts.nexus.mailbox)


def _failed(error: Exception) -> asyncio.Future[bytes]:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _poll_failure(error: Exception) -> RuntimeError:
    if isinstance(error, RPCError):
        return RuntimeError(f"Poll failure: Unhandled grpc error when polling: {error.status}")
    return RuntimeError(f"Poll failure: {error}")
