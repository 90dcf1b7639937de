"""What a worker needs of a Temporal server: a narrow protocol and its form over gRPC.

An in-process service can stand in for the server by having these methods. All raise `RPCError`.
Polls ask once, for at most so many seconds as they are given; whoever polls tries again.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.message import Message
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RecordActivityTaskHeartbeatResponse,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
    ShutdownWorkerRequest,
)

from perdure.temporal.bridge.client import ClientRef
from perdure.temporal.bridge.rpcs import find

__all__ = ["ActivityAnswer", "GrpcService", "WorkflowService", "WorkflowTaskService"]

ActivityAnswer = (
    RespondActivityTaskCompletedRequest
    | RespondActivityTaskFailedRequest
    | RespondActivityTaskCanceledRequest
)

_Response = TypeVar("_Response", bound=Message)


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

    async def shutdown_worker(self, request: ShutdownWorkerRequest) -> None: ...


class GrpcService:
    """The service of a connected client, which may be replaced by another one at any time."""

    def __init__(self, client: ClientRef, namespace: str) -> None:
        self.client = client
        self._namespace = namespace

    async def describe_namespace(
        self, request: DescribeNamespaceRequest
    ) -> DescribeNamespaceResponse:
        return await self._call("describe_namespace", request, DescribeNamespaceResponse)

    async def poll_workflow(
        self, request: PollWorkflowTaskQueueRequest, deadline: float
    ) -> PollWorkflowTaskQueueResponse:
        return PollWorkflowTaskQueueResponse.FromString(
            await self._send("poll_workflow_task_queue", request, retry=False, deadline=deadline)
        )

    async def poll_activity(
        self, request: PollActivityTaskQueueRequest, deadline: float
    ) -> PollActivityTaskQueueResponse:
        return PollActivityTaskQueueResponse.FromString(
            await self._send("poll_activity_task_queue", request, retry=False, deadline=deadline)
        )

    async def complete_workflow_task(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        return await self._call(
            "respond_workflow_task_completed", request, RespondWorkflowTaskCompletedResponse
        )

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

    async def shutdown_worker(self, request: ShutdownWorkerRequest) -> None:
        await self._send("shutdown_worker", request, retry=False)

    async def _call(self, name: str, request: Message, response: type[_Response]) -> _Response:
        return response.FromString(await self._send(name, request))

    async def _send(
        self, name: str, request: Message, *, retry: bool = True, deadline: float | None = None
    ) -> bytes:
        return await self.client.call(
            find("workflow", name),
            request.SerializeToString(),
            retry=retry,
            timeout=deadline,
            namespace=self._namespace,
        )
