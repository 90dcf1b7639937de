"""How a worker names its own version to the server.

A server that knows versions by build id is told them with every poll; an older one knows only the
checksum of the worker's program, and gets the build id in its place.
"""

from __future__ import annotations

from temporalio.api.common.v1.message_pb2 import WorkerVersionCapabilities, WorkerVersionStamp
from temporalio.api.deployment.v1.message_pb2 import WorkerDeploymentOptions
from temporalio.api.enums.v1.deployment_pb2 import WorkerVersioningMode

from perdure.core.outcomes import BuildId, DeploymentVersion, Versioning

__all__ = ["deployment_options", "version_capabilities", "version_stamp"]


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
