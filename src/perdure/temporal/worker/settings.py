"""A worker's configuration as the SDK gives it, read once and checked."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import WorkerVersionCapabilities
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.bridge.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    ResourceBasedSlotSupplier,
    WorkerDeploymentOptions as BridgeDeploymentOptions,
    WorkerVersioningStrategyLegacyBuildIdBased,
    WorkerVersioningStrategyNone,
)

from perdure.core.stream_settings import StreamSettings, eager_activity_limit
from perdure.core.versioning import (
    BuildId,
    DeploymentVersion,
    Versioning,
    deployment_options,
    version_capabilities,
)

if TYPE_CHECKING:
    from temporalio.bridge.worker import PollerBehavior, WorkerConfig

__all__ = ["PollerCounts", "WorkerSettings", "poller_counts", "stream_settings", "worker_settings"]


@dataclass(frozen=True, slots=True)
class PollerCounts:
    """How many polls of a kind are under way at least, at most and at the start.

    `scaled` says that the number follows what the server suggests.
    """

    minimum: int
    maximum: int
    initial: int
    scaled: bool = False


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the shell needs; times in seconds."""

    namespace: str
    task_queue: str
    sticky_queue: str | None
    identity: str
    instance_key: str
    versioning: Versioning
    max_cached_workflows: int
    workflow_pollers: PollerCounts
    normal_share: float
    activity_pollers: PollerCounts
    nexus_pollers: PollerCounts
    max_activities_per_second: float | None
    max_task_queue_activities_per_second: float | None
    graceful_shutdown_period: float
    max_heartbeat_throttle: float
    default_heartbeat_throttle: float
    enable_workflows: bool
    enable_activities: bool
    enable_local_activities: bool
    enable_nexus: bool
    server_knows_build_ids: bool = False

    @property
    def build_id(self) -> str:
        return self.versioning.build_id

    def version_capabilities(self) -> WorkerVersionCapabilities | None:
        """What a poll says about this worker's version."""
        return version_capabilities(self.versioning) if self.server_knows_build_ids else None

    def deployment_options(self) -> WorkerDeploymentOptions | None:
        """What a poll or an answer says about this worker's deployment."""
        return deployment_options(self.versioning)


def worker_settings(
    config: WorkerConfig, client_identity: str, *, server_knows_build_ids: bool = False
) -> WorkerSettings:
    """Read the SDK's configuration; ValueError when it contradicts itself."""
    identity = config.identity_override or client_identity
    _check(config)
    cached = config.max_cached_workflows
    if not config.task_types.enable_workflows or _has_one_slot(config.tuner.workflow_slot_supplier):
        cached = 0
    pollers = poller_counts(config.workflow_task_poller_behavior)
    if config.max_cached_workflows and not pollers.scaled and pollers.maximum < 2:
        raise ValueError(
            "Invalid worker config: `max_cached_workflows` > 0 requires "
            "`workflow_task_poller_behavior` to be at least 2"
        )
    return WorkerSettings(
        namespace=config.namespace,
        task_queue=config.task_queue,
        sticky_queue=f"{identity}-{uuid.uuid4().hex}" if cached else None,
        identity=identity,
        instance_key=str(uuid.uuid4()),
        versioning=_versioning(config),
        max_cached_workflows=cached,
        workflow_pollers=pollers,
        normal_share=config.nonsticky_to_sticky_poll_ratio,
        activity_pollers=poller_counts(config.activity_task_poller_behavior),
        nexus_pollers=poller_counts(config.nexus_task_poller_behavior),
        max_activities_per_second=config.max_activities_per_second,
        max_task_queue_activities_per_second=config.max_task_queue_activities_per_second,
        graceful_shutdown_period=config.graceful_shutdown_period_millis / 1000,
        max_heartbeat_throttle=config.max_heartbeat_throttle_interval_millis / 1000,
        default_heartbeat_throttle=config.default_heartbeat_throttle_interval_millis / 1000,
        enable_workflows=config.task_types.enable_workflows,
        enable_activities=config.task_types.enable_remote_activities,
        enable_local_activities=config.task_types.enable_local_activities,
        enable_nexus=config.task_types.enable_nexus,
        server_knows_build_ids=server_knows_build_ids,
    )


def stream_settings(
    config: WorkerConfig, settings: WorkerSettings, *, has_sdk_metadata: bool, replay: bool = False
) -> StreamSettings:
    """What the workflow stream needs of the same configuration."""
    from temporalio.service import __version__

    return StreamSettings(
        namespace=settings.namespace,
        task_queue=settings.task_queue,
        identity=settings.identity,
        max_cached_workflows=settings.max_cached_workflows,
        sticky_queue=settings.sticky_queue,
        sticky_schedule_to_start_timeout=(
            config.sticky_queue_schedule_to_start_timeout_millis / 1000
        ),
        versioning=settings.versioning,
        has_sdk_metadata=has_sdk_metadata,
        max_eager_activities=eager_activity_limit(
            has_remote_activities=settings.enable_activities and not replay,
            max_task_queue_rate=settings.max_task_queue_activities_per_second,
            configured=config.max_eager_activity_reservations_per_workflow_task,
        ),
        fail_workflow_on_nondeterminism=config.nondeterminism_as_workflow_fail,
        fail_workflow_on_nondeterminism_types=frozenset(
            config.nondeterminism_as_workflow_fail_for_types
        ),
        evict_after_replay=replay,
        worker_instance_key=settings.instance_key,
        server_knows_build_ids=settings.server_knows_build_ids,
        sdk_version=__version__,
    )


def poller_counts(behavior: PollerBehavior) -> PollerCounts:
    """Read how to poll; ValueError when it cannot be done so."""
    if isinstance(behavior, PollerBehaviorSimpleMaximum):
        count = behavior.simple_maximum
        if count < 1:
            raise ValueError(
                "Invalid worker config: SimpleMaximum poller behavior must be at least 1"
            )
        return PollerCounts(count, count, count)
    if not isinstance(behavior, PollerBehaviorAutoscaling):
        raise ValueError(f"unknown poller behavior {behavior!r}")  # noqa: TRY004
    counts = PollerCounts(behavior.minimum, behavior.maximum, behavior.initial, scaled=True)
    if counts.minimum < 1:
        problem = "Autoscaling minimum poller behavior must be at least 1"
    elif counts.maximum < counts.minimum:
        problem = "Autoscaling maximum must be greater than or equal to minimum"
    elif not counts.minimum <= counts.initial <= counts.maximum:
        problem = "Autoscaling initial must be between minimum and maximum"
    else:
        return counts
    raise ValueError(f"Invalid worker config: {problem}")


_UNSIGNED = (
    "max_cached_workflows",
    "sticky_queue_schedule_to_start_timeout_millis",
    "max_heartbeat_throttle_interval_millis",
    "default_heartbeat_throttle_interval_millis",
    "max_eager_activity_reservations_per_workflow_task",
    "graceful_shutdown_period_millis",
)


def _check(config: WorkerConfig) -> None:
    for name in _UNSIGNED:
        if getattr(config, name) < 0:
            raise TypeError(f"failed to extract field WorkerConfig.{name}")
    poller_counts(config.nexus_task_poller_behavior)
    rate = config.max_activities_per_second
    if rate is not None and not rate > 0:
        raise ValueError(
            "Invalid worker config: `max_worker_activities_per_second` must be positive and nonzero"
        )


def _has_one_slot(supplier: object) -> bool:
    """Whether there can never be a slot for a sticky poll beside one of the task queue.

    Such a worker keeps no workflows, otherwise each of the two polls would starve the other one.
    """
    if isinstance(supplier, FixedSizeSlotSupplier):
        return supplier.num_slots == 1
    return isinstance(supplier, ResourceBasedSlotSupplier) and supplier.maximum_slots == 1


def _versioning(config: WorkerConfig) -> Versioning:
    strategy = config.versioning_strategy
    if isinstance(strategy, WorkerVersioningStrategyNone):
        return BuildId(strategy.build_id_no_versioning)
    if isinstance(strategy, WorkerVersioningStrategyLegacyBuildIdBased):
        return BuildId(strategy.build_id_with_versioning, use_for_versioning=True)
    if isinstance(strategy, BridgeDeploymentOptions):
        return DeploymentVersion(
            strategy.version.deployment_name,
            strategy.version.build_id,
            use_worker_versioning=strategy.use_worker_versioning,
            default_versioning_behavior=strategy.default_versioning_behavior,  # type: ignore[arg-type]
        )
    raise ValueError(f"unknown versioning strategy {strategy!r}")
