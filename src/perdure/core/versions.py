"""Which version of a worker a workflow task belongs to: this worker's, or the one in history."""

from __future__ import annotations

from temporalio.api.history.v1.message_pb2 import WorkflowTaskCompletedEventAttributes
from temporalio.bridge.proto.common.common_pb2 import WorkerDeploymentVersion

from perdure.core.outcomes import DeploymentVersion, Versioning

__all__ = ["of_completed_task", "of_worker"]


def of_worker(versioning: Versioning) -> WorkerDeploymentVersion:
    """This worker's own version; a worker known by its build id has no deployment."""
    name = versioning.deployment_name if isinstance(versioning, DeploymentVersion) else ""
    return WorkerDeploymentVersion(deployment_name=name, build_id=versioning.build_id)


def of_completed_task(completed: WorkflowTaskCompletedEventAttributes) -> WorkerDeploymentVersion:
    """Servers have said it in four ways over time; the newest one that is there counts."""
    version = WorkerDeploymentVersion()
    if completed.HasField("worker_version"):
        version.build_id = completed.worker_version.build_id
    if completed.worker_deployment_name:
        version.deployment_name = completed.worker_deployment_name
    if completed.worker_deployment_version:
        name, _, build_id = completed.worker_deployment_version.partition(".")
        version.deployment_name = name
        version.build_id = build_id
    if completed.HasField("deployment_version"):
        version.deployment_name = completed.deployment_version.deployment_name
        version.build_id = completed.deployment_version.build_id
    return version
