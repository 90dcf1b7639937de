"""What a worker needs of a Temporal server: a narrow protocol and its form over gRPC.

An in-process service can stand in for the server by having these methods. All raise `RPCError`.
Polls ask once, for at most so many seconds as they are given; whoever polls tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from google.protobuf.message import Message
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RecordActivityTaskHeartbeatResponse,
    RecordWorkerHeartbeatRequest,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
    ShutdownWorkerRequest,
)

from perdure.core.inputs import ProblemKind
from perdure.core.payload_limits import Limits
from perdure.core.status_codes import INVALID_ARGUMENT
from perdure.core.workflow_tasks.completion_pages import COMPLETION_TOO_LARGE, pages_of
from perdure.temporal.bridge.client import ClientRef
from perdure.temporal.connection.rpcs import find
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.worker.paging import send_pages

__all__ = [
    "ActivityAnswer",
    "GrpcService",
    "NamespaceLimits",
    "NexusAnswer",
    "TooLargeToSend",
    "WorkflowService",
    "WorkflowTaskService",
]

ActivityAnswer = (
    RespondActivityTaskCompletedRequest
    | RespondActivityTaskFailedRequest
    | RespondActivityTaskCanceledRequest
)

NexusAnswer = RespondNexusTaskCompletedRequest | RespondNexusTaskFailedRequest

_Response = TypeVar("_Response", bound=Message)


class TooLargeToSend(RPCError):
    """The server would refuse the request for its size, so it was not sent."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(INVALID_ARGUMENT, message, b"")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """What a namespace takes: sizes in bytes (0 is no limit), and completions in pages or not."""

    payloads: Limits = field(default_factory=Limits)
    completion: int = 0
    takes_pages: bool = False


class WorkflowTaskService(Protocol):
    """The calls that workflow tasks lead to."""

    async def complete_workflow_task(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse: ...

    async def fail_workflow_task(self, request: RespondWorkflowTaskFailedRequest) -> None: ...

    async def answer_query(self, request: RespondQueryTaskCompletedRequest) -> None: ...

    async def history(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse: ...


class WorkflowService(WorkflowTaskService, Protocol):
    """All calls of a worker."""

    async def describe_namespace(
        self, request: DescribeNamespaceRequest
    ) -> DescribeNamespaceResponse: ...

    async def poll_workflow(
        self, request: PollWorkflowTaskQueueRequest, deadline: float
    ) -> PollWorkflowTaskQueueResponse: ...

    async def poll_activity(
        self, request: PollActivityTaskQueueRequest, deadline: float
    ) -> PollActivityTaskQueueResponse: ...

    async def answer_activity(self, request: ActivityAnswer) -> None: ...

    async def heartbeat_activity(
        self, request: RecordActivityTaskHeartbeatRequest
    ) -> RecordActivityTaskHeartbeatResponse: ...

    async def poll_nexus(
        self, request: PollNexusTaskQueueRequest, deadline: float
    ) -> PollNexusTaskQueueResponse: ...

    async def answer_nexus(self, request: NexusAnswer) -> None: ...

    async def shutdown_worker(self, request: ShutdownWorkerRequest, deadline: float) -> None: ...


class GrpcService:
    """The service of a connected client, which may be replaced by another one at any time.

    What the namespace would refuse for its size raises `TooLargeToSend`. `command_queue` is where
    the server may send commands to the worker, empty if it may not.
    """

    def __init__(self, client: ClientRef, namespace: str) -> None:
        self.client = client
        self.limits = NamespaceLimits()
        self.command_queue = ""
        self._namespace = namespace

    async def describe_namespace(
        self, request: DescribeNamespaceRequest
    ) -> DescribeNamespaceResponse:
        return await self._call("describe_namespace", request, DescribeNamespaceResponse)

    async def poll_workflow(
        self, request: PollWorkflowTaskQueueRequest, deadline: float
    ) -> PollWorkflowTaskQueueResponse:
        request.worker_control_task_queue = self.command_queue
        return PollWorkflowTaskQueueResponse.FromString(
            await self._send("poll_workflow_task_queue", request, retry=False, deadline=deadline)
        )

    async def poll_activity(
        self, request: PollActivityTaskQueueRequest, deadline: float
    ) -> PollActivityTaskQueueResponse:
        request.worker_control_task_queue = self.command_queue
        return PollActivityTaskQueueResponse.FromString(
            await self._send("poll_activity_task_queue", request, retry=False, deadline=deadline)
        )

    async def complete_workflow_task(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        request.worker_control_task_queue = self.command_queue
        self._check(request)
        pages = pages_of(request) if self.limits.takes_pages else None
        if pages is None:
            return await self._send_completion(request)
        if 0 < self.limits.completion < request.ByteSize():
            raise TooLargeToSend(ProblemKind.REQUEST_TOO_LARGE, COMPLETION_TOO_LARGE)
        return await send_pages(pages, self._send_completion)

    async def _send_completion(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        answer = await self._transfer("respond_workflow_task_completed", request)
        return RespondWorkflowTaskCompletedResponse.FromString(answer)

    async def fail_workflow_task(self, request: RespondWorkflowTaskFailedRequest) -> None:
        await self._send("respond_workflow_task_failed", request)

    async def answer_query(self, request: RespondQueryTaskCompletedRequest) -> None:
        await self._send("respond_query_task_completed", request)

    async def history(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse:
        return await self._call(
            "get_workflow_execution_history", request, GetWorkflowExecutionHistoryResponse
        )

    async def answer_activity(self, request: ActivityAnswer) -> None:
        if isinstance(request, RespondActivityTaskCompletedRequest):
            await self._send("respond_activity_task_completed", request)
        elif isinstance(request, RespondActivityTaskFailedRequest):
            await self._send("respond_activity_task_failed", request)
        else:
            await self._send("respond_activity_task_canceled", request)

    async def heartbeat_activity(
        self, request: RecordActivityTaskHeartbeatRequest
    ) -> RecordActivityTaskHeartbeatResponse:
        return await self._call(
            "record_activity_task_heartbeat", request, RecordActivityTaskHeartbeatResponse
        )

    async def poll_nexus(
        self, request: PollNexusTaskQueueRequest, deadline: float
    ) -> PollNexusTaskQueueResponse:
        return PollNexusTaskQueueResponse.FromString(
            await self._send("poll_nexus_task_queue", request, retry=False, deadline=deadline)
        )

    async def answer_nexus(self, request: NexusAnswer) -> None:
        if isinstance(request, RespondNexusTaskCompletedRequest):
            await self._send("respond_nexus_task_completed", request)
        else:
            await self._send("respond_nexus_task_failed", request)

    async def record_worker_heartbeat(self, request: RecordWorkerHeartbeatRequest) -> None:
        await self._send("record_worker_heartbeat", request, retry=False)

    async def shutdown_worker(self, request: ShutdownWorkerRequest, deadline: float) -> None:
        await self._send("shutdown_worker", request, retry=False, deadline=deadline)

    async def _call(self, name: str, request: Message, response: type[_Response]) -> _Response:
        return response.FromString(await self._send(name, request))

    async def _send(
        self, name: str, request: Message, *, retry: bool = True, deadline: float | None = None
    ) -> bytes:
        self._check(request)
        return await self._transfer(name, request, retry=retry, deadline=deadline)

    def _check(self, request: Message) -> None:
        refusal = self.client.guard.check(request, self.limits.payloads)
        if refusal is not None:
            raise TooLargeToSend(ProblemKind.PAYLOADS_TOO_LARGE, refusal)

    async def _transfer(
        self, name: str, request: Message, *, retry: bool = True, deadline: float | None = None
    ) -> bytes:
        return await self.client.call(
            find("workflow", name),
            request.SerializeToString(),
            retry=retry,
            timeout=deadline,
            namespace=self._namespace,
        )
