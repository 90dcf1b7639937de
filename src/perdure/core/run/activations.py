"""What lang is told: the parts of activations that come straight from history, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from temporalio.api.history.v1.message_pb2 import (
    HistoryEvent,
    WorkflowTaskStartedEventAttributes,
)
from temporalio.api.query.v1.message_pb2 import WorkflowQuery
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    InitializeWorkflow,
    QueryWorkflow,
    SignalWorkflow,
    WorkflowActivation,
    WorkflowActivationJob,
)

from perdure.core.machines.fields import copy_fields, fill_map
from perdure.core.run.randomness import seed_of_run
from perdure.core.run_info import RunInfo

__all__ = ["fill_initialize", "fill_query", "fill_signal", "fill_task_facts", "in_order"]

_ORDER: Final = {
    "initialize_workflow": 0,
    "notify_has_patch": 1,
    "update_random_seed": 2,
    "signal_workflow": 3,
    "do_update": 3,
    "query_workflow": 6,
    "remove_from_cache": 7,
}
_OTHER: Final = 4
_LOCAL: Final = 5

_SAME_IN_INITIALIZE: Final = (
    "workflow_execution_timeout",
    "workflow_run_timeout",
    "workflow_task_timeout",
    "continued_failure",
    "last_completion_result",
    "retry_policy",
    "workflow_execution_expiration_time",
    "memo",
    "search_attributes",
    "priority",
)


def in_order(jobs: Iterable[WorkflowActivationJob]) -> list[WorkflowActivationJob]:
    """The jobs in the order in which lang has to take them; jobs of one rank keep their order.

    Signals and updates are of one rank on purpose: they run in the order they arrived.
    """
    return sorted(jobs, key=_rank)


def _rank(job: WorkflowActivationJob) -> int:
    variant = job.WhichOneof("variant")
    if variant == "resolve_activity":
        return _LOCAL if job.resolve_activity.is_local else _OTHER
    return _ORDER.get(variant or "", _OTHER)


def fill_initialize(job: InitializeWorkflow, event: HistoryEvent, run: RunInfo) -> None:
    """The first job of every run, from WorkflowExecutionStarted."""
    started = event.workflow_execution_started_event_attributes
    job.workflow_type = started.workflow_type.name
    job.workflow_id = run.workflow_id
    job.randomness_seed = seed_of_run(started.original_execution_run_id)
    job.original_execution_run_id = started.original_execution_run_id
    job.arguments.extend(started.input.payloads)
    fill_map(job.headers, started.header.fields)
    job.identity = started.identity
    if started.HasField("parent_workflow_execution"):
        parent = job.parent_workflow_info
        parent.namespace = started.parent_workflow_namespace
        parent.workflow_id = started.parent_workflow_execution.workflow_id
        parent.run_id = started.parent_workflow_execution.run_id
    if started.HasField("root_workflow_execution"):
        job.root_workflow.CopyFrom(started.root_workflow_execution)
    copy_fields(started, job, _SAME_IN_INITIALIZE)
    job.continued_from_execution_run_id = started.continued_execution_run_id
    job.continued_initiator = started.initiator
    job.first_execution_run_id = started.first_execution_run_id
    job.attempt = started.attempt
    job.cron_schedule = started.cron_schedule
    if started.HasField("first_workflow_task_backoff"):
        job.cron_schedule_to_schedule_interval.CopyFrom(started.first_workflow_task_backoff)
    job.start_time.CopyFrom(event.event_time)


def fill_signal(job: SignalWorkflow, event: HistoryEvent) -> None:
    signaled = event.workflow_execution_signaled_event_attributes
    job.signal_name = signaled.signal_name
    job.input.extend(signaled.input.payloads)
    job.identity = signaled.identity
    fill_map(job.headers, signaled.header.fields)
    job.originating_event_id = event.event_id


def fill_query(job: QueryWorkflow, query_id: str, query: WorkflowQuery) -> None:
    job.query_id = query_id
    job.query_type = query.query_type
    job.arguments.extend(query.query_args.payloads)
    fill_map(job.headers, query.header.fields)


def fill_task_facts(
    activation: WorkflowActivation, task: WorkflowTaskStartedEventAttributes
) -> None:
    """What the server said about the run when the workflow task started."""
    activation.history_size_bytes = max(task.history_size_bytes, 0)
    activation.continue_as_new_suggested = task.suggest_continue_as_new
    activation.suggest_continue_as_new_reasons.extend(task.suggest_continue_as_new_reasons)
    activation.target_worker_deployment_version_changed = (
        task.target_worker_deployment_version_changed
    )
