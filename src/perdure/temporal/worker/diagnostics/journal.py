"""What one worker logs in normal life and in trouble, in the words of the compiled core.

Messages, levels and targets are decided here only; people filter and search by them.
"""

from __future__ import annotations

import base64
from typing import Final

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import (
    GetSystemInfoResponse,
    RespondWorkflowTaskFailedRequest,
)

from perdure.core.inputs import Problem, ProblemKind
from perdure.core.status_codes import NOT_FOUND, UNAVAILABLE, UNIMPLEMENTED
from perdure.temporal.connection.retry import Retries
from perdure.temporal.connection.retry_log import log_retry
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.telemetry.log_filter import DEBUG, ERROR, INFO, WARN
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.diagnostics.slow_tasks import SlowTasks, warning_threshold

__all__ = ["Journal"]

_WORKER: Final = "temporalio_sdk_core::worker"
_WORKFLOW: Final = f"{_WORKER}::workflow"
_STREAM: Final = f"{_WORKFLOW}::workflow_stream"
_ACTIVITIES: Final = f"{_WORKER}::activities"
_HEARTBEATS: Final = f"{_ACTIVITIES}::activity_heartbeat_manager"
_LOCAL: Final = f"{_ACTIVITIES}::local_activities"


class Journal:
    """See the module."""

    def __init__(self, log: Log, *, namespace: str = "", task_queue: str = "") -> None:
        self._log = log
        self.slow_tasks = SlowTasks(log, warning_threshold())
        self._where = {"task_queue": task_queue, "namespace": namespace}

    # The worker

    def created(self) -> None:
        self._log.write(INFO, _WORKER, "Initializing worker", **self._where)

    def expect_heartbeat_details(self, server: GetSystemInfoResponse.Capabilities) -> None:
        """Warn of a server that does not keep heartbeat details with the failure of an activity."""
        if server.activity_failure_include_heartbeat:
            return
        text = (
            "Temporal Server 1.16.0 or newer is required to guarantee that the latest heartbeat "
            "details are preserved when an activity fails; the server did not advertise the "
            "activity_failure_include_heartbeat capability, so heartbeat details may be lost on "
            "failure"
        )
        self._log.write(WARN, _WORKER, text)

    def caches_nothing(self) -> None:
        """The worker was asked for a cache and has only one slot for workflow tasks."""
        text = (
            "One workflow task slot is not enough for polls of two queues, so workflows are not "
            "cached: allow two workflow tasks at once, or set max_cached_workflows to 0"
        )
        self._log.write(WARN, _WORKER, text, **self._where)

    def shutdown_began(self) -> None:
        self._log.write(INFO, _WORKER, "Initiated shutdown", **self._where)

    def shutdown_waits(self, waiting_for: list[str]) -> None:
        """The shutdown takes its time, for these reasons."""
        text = "Worker shutdown waits"
        self._log.write(DEBUG, _WORKER, text, waiting_for="; ".join(waiting_for))

    def ended_with(self, left: list[str]) -> None:
        """The shutdown is over, and this is still there."""
        text = "Worker ended with something left"
        self._log.write(DEBUG, _WORKER, text, left="; ".join(left))

    def server_not_told(self, error: RPCError) -> None:
        """The server did not take the news of the shutdown; old ones do not know it."""
        level = DEBUG if error.code in (UNIMPLEMENTED, UNAVAILABLE) else WARN
        text = f"shutdown_worker rpc errored during worker shutdown: {error.status}"
        self._log.write(level, _WORKER, text)

    def poll_retried(self, call: str, retries: Retries, error: RPCError) -> None:
        """A poll failed and is made again."""
        log_retry(self._log, call, retries, error)

    # Workflows

    def workflows_over(self) -> None:
        self._log.write(INFO, _STREAM, "Workflow shutdown is done")

    def task_unusable(self, problem: str) -> None:
        text = "Server returned an unparseable workflow task"
        self._log.write(ERROR, _WORKFLOW, text, error=problem)

    def task_fails(self, run_id: str, request: RespondWorkflowTaskFailedRequest) -> None:
        self._log.write(
            WARN,
            _WORKFLOW,
            "Failing workflow task",
            run_id=run_id,
            cause=WorkflowTaskFailedCause.Name(request.cause),
            failure=request.failure.message,
        )

    def completion_refused(self, run_id: str, problem: Problem) -> None:
        """The server did not take the answer of a workflow task."""
        if problem.kind is ProblemKind.UNHANDLED_COMMAND:
            level, text = DEBUG, "Unhandled command response when completing"
        elif problem.kind is ProblemKind.NOT_FOUND:
            level, text = WARN, "Task not found when completing"
        else:
            level, text = WARN, "Error while completing workflow activation"
        self._log.write(level, _WORKFLOW, text, run_id=run_id, error=problem.text)

    def run_evicted(self, run_id: str) -> None:
        self.slow_tasks.forget(run_id)
        self._log.write(DEBUG, _STREAM, "Evicting run", run_id=run_id)

    # Activities

    def activity_not_reported(self, token: bytes, error: RPCError) -> None:
        """The server did not take the end of an activity."""
        text = "Network error while completing activity"
        if error.code == NOT_FOUND:
            text = (
                "Activity not found on completion. This may happen if the activity has already "
                "been cancelled but completed anyway."
            )
        shown = base64.b64encode(token).decode()
        self._log.write(WARN, _ACTIVITIES, text, task_token=shown, error=error.status)

    def heartbeat_not_recorded(self, token: bytes, error: RPCError) -> None:
        if error.code == NOT_FOUND:
            shown = base64.b64encode(token).decode()
            text = "Activity not found when recording heartbeat"
            self._log.write(DEBUG, _HEARTBEATS, text, task_token=shown)
        else:
            text = f"Error when recording heartbeat: {error.status}"
            self._log.write(WARN, _HEARTBEATS, text)

    def local_activity_unwanted(self, token: bytes) -> None:
        """Lang answered an attempt that nobody waits for."""
        shown = base64.b64encode(token).decode()
        text = "Tried to complete untracked local activity"
        self._log.write(WARN, _LOCAL, text, task_token=shown)
