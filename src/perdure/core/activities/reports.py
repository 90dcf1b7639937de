"""What the core says to the server about an activity, and to lang about the server's task.

Owns the mapping of lang's results to requests and of polled tasks to `Start`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from temporalio.api.common.v1.message_pb2 import Payloads
from temporalio.api.enums.v1.common_pb2 import ApplicationErrorCategory
from temporalio.api.enums.v1.failed_cause_pb2 import ActivityTaskFailedCause
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind
from temporalio.api.failure.v1.message_pb2 import ApplicationFailureInfo, Failure
from temporalio.api.taskqueue.v1.message_pb2 import TaskQueue, TaskQueueMetadata
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatRequest,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
)
from temporalio.bridge.proto.activity_result.activity_result_pb2 import ActivityExecutionResult
from temporalio.bridge.proto.activity_task.activity_task_pb2 import ActivityTask, Start

from perdure.core.versioning import (
    BuildId,
    Versioning,
    deployment_options,
    version_capabilities,
    version_stamp,
)
from perdure.errors import CallerError

__all__ = [
    "ActivityOutcome",
    "ActivityReports",
    "ActivityRequest",
    "ActivitySettings",
    "MalformedActivityCompletion",
    "is_benign",
    "outcome_of",
    "start_task",
]

ActivityRequest: TypeAlias = (
    RespondActivityTaskCompletedRequest
    | RespondActivityTaskFailedRequest
    | RespondActivityTaskCanceledRequest
)

_UNHANDLED: Final = (
    ActivityTaskFailedCause.ACTIVITY_TASK_FAILED_CAUSE_ACTIVITY_WORKER_UNHANDLED_FAILURE
)
_SHUTDOWN_TYPE: Final = "WorkerShutdown"


class MalformedActivityCompletion(CallerError):
    """Lang's answer to an activity task is none: no result, or a success without a payload."""

    code: ClassVar[str] = "core.malformed_activity_completion"

    def __init__(self, task_token: bytes, problem: str) -> None:
        super().__init__(f"malformed completion of the activity task {task_token!r}: {problem}")
        self.task_token = task_token
        self.problem = problem


@dataclass(frozen=True, slots=True)
class ActivitySettings:
    """The settings of the worker that matter to its activities. Times are in seconds."""

    namespace: str
    task_queue: str
    identity: str
    versioning: Versioning = field(default_factory=lambda: BuildId(""))
    default_heartbeat_throttle: float = 30.0
    max_heartbeat_throttle: float = 60.0
    graceful_shutdown_period: float = 0.0
    max_task_queue_activities_per_second: float | None = None
    """Asked of the server, for all workers of the task queue together."""
    server_knows_build_ids: bool = False
    worker_instance_key: str = ""


class ActivityOutcome(enum.Enum):
    """How an activity ended, as far as this worker knows."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LEFT_OPEN = "left open"
    """A client will complete it."""


def outcome_of(token: bytes, result: ActivityExecutionResult) -> ActivityOutcome:
    """Raises `MalformedActivityCompletion`."""
    kind = result.WhichOneof("status")
    if kind == "completed":
        if not result.completed.HasField("result"):
            raise MalformedActivityCompletion(token, "a success without a payload")
        return ActivityOutcome.COMPLETED
    if kind == "failed":
        return ActivityOutcome.FAILED
    if kind == "cancelled":
        return ActivityOutcome.CANCELLED
    if kind == "will_complete_async":
        return ActivityOutcome.LEFT_OPEN
    raise MalformedActivityCompletion(token, "it has no result")


def is_benign(result: ActivityExecutionResult) -> bool:
    """A failure that its author expects, so that it is not counted as one."""
    info = result.failed.failure.application_failure_info
    return info.category == ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN


def start_task(polled: PollActivityTaskQueueResponse) -> ActivityTask:
    """The polled task, for lang."""
    start = Start(
        workflow_namespace=polled.workflow_namespace,
        workflow_type=polled.workflow_type.name,
        activity_id=polled.activity_id,
        activity_type=polled.activity_type.name,
        header_fields=polled.header.fields,
        input=polled.input.payloads,
        heartbeat_details=polled.heartbeat_details.payloads,
        attempt=polled.attempt,
        run_id=polled.activity_run_id,
    )
    for name in _MESSAGES:
        if polled.HasField(name):
            getattr(start, name).CopyFrom(getattr(polled, name))
    return ActivityTask(task_token=polled.task_token, start=start)


_MESSAGES: Final = (
    "workflow_execution",
    "scheduled_time",
    "current_attempt_scheduled_time",
    "started_time",
    "schedule_to_close_timeout",
    "start_to_close_timeout",
    "heartbeat_timeout",
    "retry_policy",
    "priority",
)


class ActivityReports:
    """Requests of one worker, ready to be sent."""

    __slots__ = ("_deployment", "_settings", "_stamp")

    def __init__(self, settings: ActivitySettings) -> None:
        self._settings = settings
        self._stamp = (
            version_stamp(settings.versioning) if settings.server_knows_build_ids else None
        )
        self._deployment = deployment_options(settings.versioning)

    def poll(self) -> PollActivityTaskQueueRequest:
        """The request to wait for a task; the same each time."""
        settings = self._settings
        rate = settings.max_task_queue_activities_per_second
        request = PollActivityTaskQueueRequest(
            namespace=settings.namespace,
            task_queue=TaskQueue(
                name=settings.task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL
            ),
            identity=settings.identity,
            worker_instance_key=settings.worker_instance_key,
            deployment_options=self._deployment,
        )
        if rate is not None:
            request.task_queue_metadata.CopyFrom(_metadata(rate))
        if settings.server_knows_build_ids:
            request.worker_version_capabilities.CopyFrom(version_capabilities(settings.versioning))
        return request

    def heartbeat(self, token: bytes, details: Payloads) -> RecordActivityTaskHeartbeatRequest:
        return RecordActivityTaskHeartbeatRequest(
            task_token=token,
            details=details,
            identity=self._settings.identity,
            namespace=self._settings.namespace,
        )

    def result(
        self,
        token: bytes,
        result: ActivityExecutionResult,
        *,
        last_details: Payloads | None,
        by_shutdown: bool,
    ) -> ActivityRequest | None:
        """The request that ends the activity; None when a client will end it.

        `by_shutdown`: lang was told to stop because this worker does. What it stopped is reported
        as failed, so that it is tried again elsewhere.
        """
        kind = outcome_of(token, result)
        if kind is ActivityOutcome.LEFT_OPEN:
            return None
        if kind is ActivityOutcome.COMPLETED:
            return self._completed(token, Payloads(payloads=[result.completed.result]))
        if kind is ActivityOutcome.FAILED:
            request = self._failed(token, result.failed.failure, last_details)
            if result.failed.cause:
                request.cause = ActivityTaskFailedCause.ValueType(result.failed.cause)
            return request
        if by_shutdown:
            return self._failed(token, _stopped_by_shutdown(), last_details)
        return self._canceled(token, result.cancelled.failure)

    def too_large(self, token: bytes, text: str) -> RespondActivityTaskFailedRequest:
        """The end of an activity whose result or heartbeat is too large to be sent."""
        failure = Failure(
            message=text, application_failure_info=ApplicationFailureInfo(type="PayloadsTooLarge")
        )
        request = self._failed(token, failure, None)
        request.cause = ActivityTaskFailedCause.ACTIVITY_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE
        return request

    def _completed(self, token: bytes, result: Payloads) -> RespondActivityTaskCompletedRequest:
        return RespondActivityTaskCompletedRequest(
            task_token=token,
            result=result,
            identity=self._settings.identity,
            namespace=self._settings.namespace,
            worker_version=self._stamp,
            deployment_options=self._deployment,
        )

    def _failed(
        self, token: bytes, failure: Failure, last_details: Payloads | None
    ) -> RespondActivityTaskFailedRequest:
        return RespondActivityTaskFailedRequest(
            task_token=token,
            failure=failure,
            last_heartbeat_details=last_details,
            cause=_UNHANDLED,
            identity=self._settings.identity,
            namespace=self._settings.namespace,
            worker_version=self._stamp,
            deployment_options=self._deployment,
        )

    def _canceled(self, token: bytes, failure: Failure) -> RespondActivityTaskCanceledRequest:
        info = failure.canceled_failure_info
        return RespondActivityTaskCanceledRequest(
            task_token=token,
            details=info.details if info.HasField("details") else None,
            identity=self._settings.identity,
            namespace=self._settings.namespace,
            worker_version=self._stamp,
            deployment_options=self._deployment,
        )


def _metadata(rate: float) -> TaskQueueMetadata:
    metadata = TaskQueueMetadata()
    metadata.max_tasks_per_second.value = rate
    return metadata


def _stopped_by_shutdown() -> Failure:
    return Failure(
        message="Worker is shutting down and this activity did not complete in time",
        application_failure_info=ApplicationFailureInfo(type=_SHUTDOWN_TYPE),
    )
