"""What the core says to the server about a Nexus task, and to lang about the server's task.

Owns the mapping of lang's completions to requests and of polled tasks to `NexusTask`. A caller that
does not know `temporal.api.failure.v1.Failure` as an answer (an older server) gets the form of the
Nexus protocol: the same failure as JSON in the details, with its message outside.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from google.protobuf import json_format
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.nexus.v1.message_pb2 import (
    Failure as NexusFailure,
    HandlerError,
    Request,
    Response,
    StartOperationResponse,
    UnsuccessfulOperationError,
)
from temporalio.api.taskqueue.v1.message_pb2 import TaskQueue
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    PollNexusTaskQueueRequest,
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
)
from temporalio.bridge.proto.nexus.nexus_pb2 import NexusTask, NexusTaskCompletion

from perdure.core.versioning import BuildId, Versioning, deployment_options
from perdure.errors import CallerError

__all__ = [
    "MalformedNexusCompletion",
    "NexusAnswer",
    "NexusReports",
    "NexusRequest",
    "NexusSettings",
    "nexus_task",
    "operation_of",
]

NexusRequest: TypeAlias = RespondNexusTaskCompletedRequest | RespondNexusTaskFailedRequest

_FAILURE_TYPE: Final = Failure.DESCRIPTOR.full_name
_STATES: Final = {"application_failure_info": "failed", "canceled_failure_info": "canceled"}
"""The state of an operation that ended with a failure of this kind."""


class MalformedNexusCompletion(CallerError):
    """Lang's answer to a Nexus task is none, or none to this task."""

    code: ClassVar[str] = "core.malformed_nexus_completion"

    def __init__(self, task_token: bytes, problem: str) -> None:
        super().__init__(f"Lang SDK sent us a malformed nexus completion: {problem}")
        self.task_token = task_token
        self.problem = problem


@dataclass(frozen=True, slots=True)
class NexusSettings:
    """The settings of the worker that matter to its Nexus tasks. Times are in seconds."""

    namespace: str
    task_queue: str
    identity: str
    versioning: Versioning = field(default_factory=lambda: BuildId(""))
    worker_instance_key: str = ""
    graceful_shutdown_period: float = 0.0


@dataclass(frozen=True, slots=True)
class NexusAnswer:
    """Lang's completion, understood.

    `request` is None when the server is told nothing; `failure_reason` is the metrics' word for
    what went wrong, empty for a success.
    """

    request: NexusRequest | None
    failure_reason: str


def nexus_task(polled: PollNexusTaskQueueResponse) -> NexusTask:
    """The polled task, for lang: names of headers in lower case."""
    task = NexusTask(task=polled, endpoint=polled.request.endpoint)
    header = task.task.request.header
    header.clear()
    header.update({name.lower(): value for name, value in polled.request.header.items()})
    return task


def operation_of(request: Request) -> tuple[str, str]:
    """The service and the operation that a request is about."""
    asked = (
        request.cancel_operation
        if request.HasField("cancel_operation")
        else request.start_operation
    )
    return asked.service, asked.operation


class NexusReports:
    """Requests of one worker, ready to be sent."""

    __slots__ = ("_settings",)

    def __init__(self, settings: NexusSettings) -> None:
        self._settings = settings

    def poll(self) -> PollNexusTaskQueueRequest:
        """The request to wait for a task; the same each time."""
        settings = self._settings
        return PollNexusTaskQueueRequest(
            namespace=settings.namespace,
            task_queue=TaskQueue(
                name=settings.task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL
            ),
            identity=settings.identity,
            worker_instance_key=settings.worker_instance_key,
            deployment_options=deployment_options(settings.versioning),
        )

    def answer(self, request: Request, completion: NexusTaskCompletion) -> NexusAnswer:
        """What the completion of this request tells the server.

        Raises `MalformedNexusCompletion`.
        """
        kind = completion.WhichOneof("status")
        if kind == "ack_cancel":
            return NexusAnswer(None, "timeout")
        if kind == "completed":
            return self._completed(request, completion)
        if kind == "error":
            return self._failed(completion, error=completion.error)
        if kind == "failure":
            return self._handler_failed(request, completion)
        raise _malformed(completion, "Nexus completion had empty status field")

    def _completed(self, request: Request, completion: NexusTaskCompletion) -> NexusAnswer:
        response = completion.completed
        kind = response.WhichOneof("variant")
        if kind is None:
            raise _malformed(completion, "Nexus completion must contain a status variant")
        if kind != request.WhichOneof("variant"):
            name = "StartOperation" if kind == "start_operation" else "CancelOperation"
            raise _malformed(completion, f"Nexus response was {name} but request was not")
        reason = ""
        if kind == "start_operation":
            state = _state_of(completion, response.start_operation)
            reason = f"operation_{state}" if state else ""
            if response.start_operation.HasField("failure") and _is_old(request):
                response = _old_response(state, response.start_operation.failure)
        answer = RespondNexusTaskCompletedRequest(
            namespace=self._settings.namespace,
            identity=self._settings.identity,
            task_token=completion.task_token,
            response=response,
        )
        return NexusAnswer(answer, reason)

    def _handler_failed(self, request: Request, completion: NexusTaskCompletion) -> NexusAnswer:
        failure = completion.failure
        if not failure.HasField("nexus_handler_failure_info"):
            raise _malformed(
                completion,
                "Nexus completions with a failure must contain a NexusHandlerFailureInfo",
            )
        if not _is_old(request):
            return self._failed(completion, failure=failure)
        info = failure.nexus_handler_failure_info
        error = HandlerError(
            error_type=info.type,
            retry_behavior=info.retry_behavior,
            failure=_old_failure(failure),
        )
        return self._failed(completion, error=error)

    def _failed(
        self,
        completion: NexusTaskCompletion,
        *,
        error: HandlerError | None = None,
        failure: Failure | None = None,
    ) -> NexusAnswer:
        answer = RespondNexusTaskFailedRequest(
            namespace=self._settings.namespace,
            identity=self._settings.identity,
            task_token=completion.task_token,
            error=error,
            failure=failure,
        )
        kind = error.error_type if error else answer.failure.nexus_handler_failure_info.type
        return NexusAnswer(answer, f"handler_error_{kind}")


def _malformed(completion: NexusTaskCompletion, problem: str) -> MalformedNexusCompletion:
    return MalformedNexusCompletion(completion.task_token, problem)


def _is_old(request: Request) -> bool:
    return not request.capabilities.temporal_failure_responses


def _state_of(completion: NexusTaskCompletion, response: StartOperationResponse) -> str:
    """How the operation ended: failed, canceled, or empty when it did not end badly."""
    if response.HasField("operation_error"):
        return response.operation_error.operation_state
    if not response.HasField("failure"):
        return ""
    state = _STATES.get(response.failure.WhichOneof("failure_info") or "")
    if state is None:
        raise _malformed(
            completion,
            "Nexus StartOperationResponse with a failure must contain ApplicationFailureInfo or "
            "CanceledFailureInfo",
        )
    return state


def _old_response(state: str, failure: Failure) -> Response:
    error = UnsuccessfulOperationError(operation_state=state, failure=_old_failure(failure))
    return Response(start_operation=StartOperationResponse(operation_error=error))


def _old_failure(failure: Failure) -> NexusFailure:
    details = json_format.MessageToDict(failure)
    details.pop("message", None)
    return NexusFailure(
        message=failure.message,
        stack_trace=failure.stack_trace,
        metadata={"type": _FAILURE_TYPE},
        details=json.dumps(details, separators=(",", ":"), ensure_ascii=False).encode(),
    )
