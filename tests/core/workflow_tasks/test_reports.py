"""What the server is told, field by field, as the official worker was seen to send it."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import (
    QueryResultType,
    TaskQueueKind,
    VersioningBehavior,
    WorkerVersioningMode,
    WorkflowTaskFailedCause,
)
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_commands import QueryResult
from tests.core.support.history_builder import payload
from tests.core.support.stage import settings

from perdure.core.inputs import ProblemKind
from perdure.core.versioning import BuildId, DeploymentVersion
from perdure.core.workflow_tasks.reports import Reports, problem_of

UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE


def test_a_completion_of_a_plain_worker() -> None:
    reports = Reports(settings(versioning=BuildId("build"), worker_instance_key="key"))
    request = reports.complete(b"token", [])
    assert request.identity == "worker"
    assert request.namespace == "default"
    assert request.return_new_workflow_task
    assert request.sticky_attributes.worker_task_queue.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY
    assert request.worker_version_stamp.build_id == "build"
    assert not request.worker_version_stamp.use_versioning
    assert not request.binary_checksum
    assert not request.HasField("deployment_options")
    assert request.HasField("metering_metadata")
    assert request.capabilities.discard_speculative_workflow_task_with_events
    assert request.worker_instance_key == "key"
    assert request.versioning_behavior == 0


def test_build_id_set_properly_with_build_id_versioning() -> None:
    reports = Reports(settings(versioning=BuildId("build", use_for_versioning=True)))
    assert reports.complete(b"token", []).worker_version_stamp.use_versioning


def test_an_older_server_gets_the_build_as_a_checksum() -> None:
    reports = Reports(settings(versioning=BuildId("build"), server_knows_build_ids=False))
    completed = reports.complete(b"token", [])
    failed = reports.fail(b"token", UNHANDLED, Failure(message="m"))
    assert completed.binary_checksum == failed.binary_checksum == "build"
    assert not completed.HasField("worker_version_stamp")
    assert not failed.HasField("worker_version")


@pytest.mark.parametrize("versioned", [False, True])
def test_a_completion_of_a_deployment(*, versioned: bool) -> None:
    pinned = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
    auto = VersioningBehavior.VERSIONING_BEHAVIOR_AUTO_UPGRADE
    version = DeploymentVersion("deployment", "build", versioned, pinned)
    reports = Reports(settings(versioning=version))
    request = reports.complete(b"token", [])
    assert request.deployment_options.deployment_name == "deployment"
    assert request.deployment_options.build_id == "build"
    mode = "VERSIONED" if versioned else "UNVERSIONED"
    assert request.deployment_options.worker_versioning_mode == WorkerVersioningMode.Value(
        f"WORKER_VERSIONING_MODE_{mode}"
    )
    assert request.worker_version_stamp.build_id == "build"
    assert request.versioning_behavior == pinned, "the worker's default"
    assert reports.complete(b"", [], versioning_behavior=auto).versioning_behavior == auto
    failed = reports.fail(b"token", UNHANDLED, Failure(message="m"))
    assert failed.deployment_options == request.deployment_options
    assert failed.worker_version == request.worker_version_stamp


def test_answers_of_queries() -> None:
    reports = Reports(settings())
    good = QueryResult(query_id="q")
    good.succeeded.response.CopyFrom(payload(1))
    bad = QueryResult(query_id="q", failed=Failure(message="bad"))
    answered = reports.answer_query(b"token", good)
    assert answered.completed_type == QueryResultType.QUERY_RESULT_TYPE_ANSWERED
    assert answered.query_result.payloads == [payload(1)]
    failed = reports.answer_query(b"token", bad)
    assert failed.completed_type == QueryResultType.QUERY_RESULT_TYPE_FAILED
    assert failed.error_message == "bad"
    assert not failed.HasField("failure")


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (5, "no such task", ProblemKind.NOT_FOUND),
        (3, "UnhandledCommand", ProblemKind.UNHANDLED_COMMAND),
        (3, "bad attributes", ProblemKind.OTHER),
        (8, "grpc: received message larger than max (5 vs. 4)", ProblemKind.GRPC_MESSAGE_TOO_LARGE),
        (8, "slow down", ProblemKind.OTHER),
        (14, "unavailable", ProblemKind.OTHER),
    ],
)
def test_what_a_grpc_error_means(code: int, text: str, kind: ProblemKind) -> None:
    problem = problem_of(code, text)
    assert (problem.kind, problem.text) == (kind, text)
