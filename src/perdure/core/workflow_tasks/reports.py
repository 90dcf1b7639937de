"""What the core says to the server about a workflow task, as requests ready to be sent.

Owns every field of `RespondWorkflowTaskCompleted`, `RespondWorkflowTaskFailed` and
`RespondQueryTaskCompleted` that does not depend on the run: identity, sticky queue, versioning,
capabilities. Also the reading of the server's refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import (
    MeteringMetadata,
    Payloads,
)
from temporalio.api.enums.v1.command_type_pb2 import CommandType
from temporalio.api.enums.v1.failed_cause_pb2 import WorkflowTaskFailedCause
from temporalio.api.enums.v1.query_pb2 import QueryResultType
from temporalio.api.enums.v1.task_queue_pb2 import TaskQueueKind
from temporalio.api.enums.v1.workflow_pb2 import VersioningBehavior
from temporalio.api.failure.v1.message_pb2 import ApplicationFailureInfo, Failure
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.api.query.v1.message_pb2 import WorkflowQueryResult
from temporalio.api.sdk.v1.task_complete_metadata_pb2 import WorkflowTaskCompletedMetadata
from temporalio.api.taskqueue.v1.message_pb2 import StickyExecutionAttributes, TaskQueue
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import QueryResult

from perdure.core.inputs import Problem, ProblemKind
from perdure.core.status_codes import INVALID_ARGUMENT, NOT_FOUND, message_too_large
from perdure.core.stream_settings import StreamSettings
from perdure.core.versioning import DeploymentVersion, deployment_options, version_stamp

__all__ = ["TOO_LARGE", "Reports", "choose_eager", "problem_of", "too_large_failure"]

_GRPC_TEXT: Final = "GRPC Message too large"

TOO_LARGE: Final[dict[ProblemKind, tuple[WorkflowTaskFailedCause.ValueType, str]]] = {
    ProblemKind.GRPC_MESSAGE_TOO_LARGE: (
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_GRPC_MESSAGE_TOO_LARGE,
        "GrpcMessageTooLarge",
    ),
    ProblemKind.PAYLOADS_TOO_LARGE: (
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE,
        "PayloadsTooLarge",
    ),
    ProblemKind.REQUEST_TOO_LARGE: (
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_REQUEST_TOO_LARGE,
        "RequestTooLarge",
    ),
}


def problem_of(code: int, text: str) -> Problem:
    """What a gRPC error means for the answer that met it."""
    kind = ProblemKind.OTHER
    if code == NOT_FOUND:
        kind = ProblemKind.NOT_FOUND
    elif code == INVALID_ARGUMENT and text == "UnhandledCommand":
        kind = ProblemKind.UNHANDLED_COMMAND
    elif message_too_large(code, text):
        kind = ProblemKind.GRPC_MESSAGE_TOO_LARGE
    return Problem(kind, text)


class Reports:
    """Makes the requests of one worker."""

    __slots__ = ("_checksum", "_deployment", "_settings", "_stamp", "_sticky")

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._sticky = _sticky_attributes(settings)
        versioning = settings.versioning
        known = settings.server_knows_build_ids
        self._stamp = version_stamp(versioning) if known else None
        self._checksum = "" if known else versioning.build_id
        self._deployment = deployment_options(versioning)

    def complete(
        self,
        token: bytes,
        commands: Sequence[Command],
        *,
        messages: Sequence[Message] = (),
        answers: Iterable[QueryResult] = (),
        force_new_task: bool = False,
        sdk_metadata: WorkflowTaskCompletedMetadata | None = None,
        metering: MeteringMetadata | None = None,
        versioning_behavior: VersioningBehavior.ValueType = (
            VersioningBehavior.VERSIONING_BEHAVIOR_UNSPECIFIED
        ),
    ) -> RespondWorkflowTaskCompletedRequest:
        """The answer of a workflow task that went well."""
        settings = self._settings
        if versioning_behavior == VersioningBehavior.VERSIONING_BEHAVIOR_UNSPECIFIED and isinstance(
            settings.versioning, DeploymentVersion
        ):
            versioning_behavior = settings.versioning.default_versioning_behavior
        request = RespondWorkflowTaskCompletedRequest(
            task_token=token,
            commands=commands,
            messages=messages,
            identity=settings.identity,
            namespace=settings.namespace,
            sticky_attributes=self._sticky,
            return_new_workflow_task=self._sticky is not None,
            force_create_new_workflow_task=force_new_task,
            sdk_metadata=sdk_metadata,
            metering_metadata=metering or MeteringMetadata(),
            versioning_behavior=versioning_behavior,
            worker_instance_key=settings.worker_instance_key,
            binary_checksum=self._checksum,
            worker_version_stamp=self._stamp,
            deployment_options=self._deployment,
        )
        request.capabilities.discard_speculative_workflow_task_with_events = True
        for answer in answers:
            request.query_results[answer.query_id].CopyFrom(_query_result(answer))
        return request

    def fail(
        self, token: bytes, cause: WorkflowTaskFailedCause.ValueType, failure: Failure
    ) -> RespondWorkflowTaskFailedRequest:
        """The answer of a workflow task that could not be carried out."""
        settings = self._settings
        return RespondWorkflowTaskFailedRequest(
            task_token=token,
            cause=cause,
            failure=failure,
            identity=settings.identity,
            namespace=settings.namespace,
            binary_checksum=self._checksum,
            worker_version=self._stamp,
            deployment_options=self._deployment,
        )

    def answer_query(self, token: bytes, answer: QueryResult) -> RespondQueryTaskCompletedRequest:
        """The answer of a query that is no part of a workflow task."""
        result = _query_result(answer)
        request = RespondQueryTaskCompletedRequest(
            task_token=token,
            completed_type=result.result_type,
            namespace=self._settings.namespace,
            error_message=result.error_message,
        )
        if result.HasField("answer"):
            request.query_result.CopyFrom(result.answer)
        return request

    def fail_query(
        self,
        token: bytes,
        failure: Failure,
        cause: WorkflowTaskFailedCause.ValueType = (
            WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNSPECIFIED
        ),
    ) -> RespondQueryTaskCompletedRequest:
        """Tell the asker of a lone query that there is no answer."""
        return RespondQueryTaskCompletedRequest(
            task_token=token,
            completed_type=QueryResultType.QUERY_RESULT_TYPE_FAILED,
            namespace=self._settings.namespace,
            error_message=failure.message,
            failure=failure,
            cause=cause,
        )


def choose_eager(
    request: RespondWorkflowTaskCompletedRequest, settings: StreamSettings
) -> tuple[Command, ...]:
    """The commands whose activities may start on this worker at once; the others may not ask."""
    eager: list[Command] = []
    for command in request.commands:
        if command.command_type != CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            continue
        attributes = command.schedule_activity_task_command_attributes
        if not attributes.request_eager_execution:
            continue
        if (
            attributes.task_queue.name == settings.task_queue
            and len(eager) < settings.max_eager_activities
        ):
            eager.append(command)
        else:
            attributes.request_eager_execution = False
    return tuple(eager)


def too_large_failure(problem: Problem) -> Failure:
    """The failure with which a task ends whose answer is too large to be sent."""
    kind = problem.kind
    return Failure(
        message=_GRPC_TEXT if kind is ProblemKind.GRPC_MESSAGE_TOO_LARGE else problem.text,
        application_failure_info=ApplicationFailureInfo(
            type=TOO_LARGE[kind][1], non_retryable=kind is not ProblemKind.PAYLOADS_TOO_LARGE
        ),
    )


def _sticky_attributes(settings: StreamSettings) -> StickyExecutionAttributes | None:
    if settings.sticky_queue is None or settings.max_cached_workflows == 0:
        return None
    timeout = Duration()
    timeout.FromNanoseconds(round(settings.sticky_schedule_to_start_timeout * 1e9))
    return StickyExecutionAttributes(
        worker_task_queue=TaskQueue(
            name=settings.sticky_queue,
            kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY,
            normal_name=settings.task_queue,
        ),
        schedule_to_start_timeout=timeout,
    )


def _query_result(answer: QueryResult) -> WorkflowQueryResult:
    if answer.WhichOneof("variant") == "succeeded":
        return WorkflowQueryResult(
            result_type=QueryResultType.QUERY_RESULT_TYPE_ANSWERED,
            answer=Payloads(payloads=[answer.succeeded.response]),
        )
    return WorkflowQueryResult(
        result_type=QueryResultType.QUERY_RESULT_TYPE_FAILED,
        error_message=answer.failed.message,
    )
