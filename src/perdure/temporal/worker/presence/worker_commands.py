"""Commands of the server to the workers of a client, which come as Nexus tasks on their own queue.

The one command there is cancels an activity at once, without waiting for its heartbeat. It goes to
every worker of the group: the one that has the activity acts, and for the others it is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.nexus.v1 import HandlerError, Response, StartOperationResponse
from temporalio.api.nexusservices.workerservice.v1 import (
    ExecuteCommandsRequest,
    ExecuteCommandsResponse,
)
from temporalio.api.worker.v1 import CancelActivityResult, WorkerCommandResult
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
)

__all__ = ["answer_command", "command_queue"]

_SERVICE: Final = "temporal.api.nexusservices.workerservice.v1.WorkerService"
_OPERATION: Final = "ExecuteCommands"


def command_queue(namespace: str, grouping_key: str) -> str:
    """The task queue of these workers' commands."""
    return f"temporal-sys/worker-commands/{namespace}/{grouping_key}"


def answer_command(
    task: PollNexusTaskQueueResponse,
    cancel_activity: Callable[[bytes], None],
    *,
    namespace: str,
    identity: str,
) -> RespondNexusTaskCompletedRequest | RespondNexusTaskFailedRequest:
    """Carry out the commands of a task; what the server is answered."""
    start = task.request.start_operation
    if (start.service, start.operation) != (_SERVICE, _OPERATION):
        return RespondNexusTaskFailedRequest(
            namespace=namespace,
            identity=identity,
            task_token=task.task_token,
            error=HandlerError(error_type="NOT_FOUND"),
        )
    results = ExecuteCommandsResponse()
    for command in ExecuteCommandsRequest.FromString(start.payload.data).commands:
        result = WorkerCommandResult()
        if command.HasField("cancel_activity"):
            cancel_activity(command.cancel_activity.task_token)
            result.cancel_activity.CopyFrom(CancelActivityResult())
        results.results.append(result)
    payload = Payload(data=results.SerializeToString())
    return RespondNexusTaskCompletedRequest(
        namespace=namespace,
        identity=identity,
        task_token=task.task_token,
        response=Response(
            start_operation=StartOperationResponse(
                sync_success=StartOperationResponse.Sync(payload=payload)
            )
        ),
    )
