"""Versions of workers: how a worker has one, tells the server of it, and finds others in history.

A server that knows versions by build id is told them with every poll; an older one knows only the
checksum of the worker's program, and gets the build id in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from temporalio.api.common.v1.message_pb2 import WorkerVersionCapabilities, WorkerVersionStamp
from temporalio.api.deployment.v1.message_pb2 import WorkerDeploymentOptions
from temporalio.api.enums.v1.deployment_pb2 import WorkerVersioningMode
from temporalio.api.enums.v1.workflow_pb2 import VersioningBehavior
from temporalio.api.history.v1.message_pb2 import WorkflowTaskCompletedEventAttributes
from temporalio.bridge.proto.common.common_pb2 import WorkerDeploymentVersion

__all__ = [
    "BuildId",
    "DeploymentVersion",
    "Versioning",
    "deployment_options",
    "of_completed_task",
    "of_worker",
    "version_capabilities",
    "version_stamp",
]


@dataclass(frozen=True, slots=True)
class BuildId:
    """A worker known only by its build id; `use_for_versioning` is the older, build-id-based way
    to route tasks."""

    build_id: str
    use_for_versioning: bool = False

    @property
    def deployment_name(self) -> str:
        """Empty: it belongs to no deployment."""
        return ""


@dataclass(frozen=True, slots=True)
class DeploymentVersion:
    """A worker that belongs to a version of a deployment."""

    deployment_name: str
    build_id: str
    use_worker_versioning: bool = False
    default_versioning_behavior: VersioningBehavior.ValueType = (
        VersioningBehavior.VERSIONING_BEHAVIOR_UNSPECIFIED
    )


Versioning: TypeAlias = BuildId | DeploymentVersion


def deployment_options(versioning: Versioning) -> WorkerDeploymentOptions | None:
    """For a worker that belongs to a deployment."""
    if not isinstance(versioning, DeploymentVersion):
        return None
    return WorkerDeploymentOptions(
        deployment_name=versioning.deployment_name,
        build_id=versioning.build_id,
        worker_versioning_mode=(
            WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
            if versioning.use_worker_versioning
            else WorkerVersioningMode.WORKER_VERSIONING_MODE_UNVERSIONED
        ),
    )


def version_capabilities(versioning: Versioning) -> WorkerVersionCapabilities:
    """For the polls of any worker, if its server knows versions by build id."""
    return WorkerVersionCapabilities(
        build_id=versioning.build_id,
        use_versioning=isinstance(versioning, BuildId) and versioning.use_for_versioning,
    )


def version_stamp(versioning: Versioning) -> WorkerVersionStamp:
    """For the answers of any worker."""
    return WorkerVersionStamp(
        build_id=versioning.build_id,
        use_versioning=isinstance(versioning, BuildId) and versioning.use_for_versioning,
    )


def of_worker(versioning: Versioning) -> WorkerDeploymentVersion:
    """This worker's own version."""
    return WorkerDeploymentVersion(
        deployment_name=versioning.deployment_name, build_id=versioning.build_id
    )


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
