"""What a worker tells the server about itself, at every beat and when it shuts down.

A heartbeat says what the worker is (key, identity, queue, version, plugins), how it is (slots,
polls, cache), and what it did: in all, and since the last one. Its environment is told once.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import (
    PluginInfo,
    StorageDriverInfo,
    WorkerHeartbeat,
    WorkerHostInfo,
    WorkerPollerInfo,
    WorkerSlotsInfo,
)
from temporalio.service import __version__

from perdure.temporal.slots.resource_control import Usage
from perdure.temporal.worker.presence.environment import environment
from perdure.temporal.worker.presence.tally import SlotTally, Tally
from perdure.temporal.worker.settings import PollerCounts, WorkerSettings

if TYPE_CHECKING:
    from temporalio.bridge.worker import TunerHolder, WorkerConfig

__all__ = ["Host", "WorkerPulse"]

_RUNNING = WorkerStatus.WORKER_STATUS_RUNNING
_SHUTTING_DOWN = WorkerStatus.WORKER_STATUS_SHUTTING_DOWN


@dataclass(frozen=True, slots=True)
class Host:
    """Where workers of one client run, and the key by which they belong together."""

    grouping_key: str
    usage: Usage

    def info(self) -> WorkerHostInfo:
        return WorkerHostInfo(
            host_name=socket.gethostname(),
            process_id=str(os.getpid()),
            worker_grouping_key=self.grouping_key,
            current_host_cpu_usage=self.usage.cpu,
            current_host_mem_usage=self.usage.memory,
        )


class WorkerPulse:
    """Makes the heartbeats of one worker."""

    def __init__(
        self,
        config: WorkerConfig,
        settings: WorkerSettings,
        tally: Tally,
        *,
        with_environment: bool,
    ) -> None:
        self._settings = settings
        self._tally = tally
        self._with_environment = with_environment
        self._kinds = _supplier_kinds(config.tuner)
        self._plugins = [PluginInfo(name=name) for name in config.plugins]
        self._drivers = [StorageDriverInfo(type=kind) for kind in sorted(config.storage_drivers)]
        self._started = Timestamp()
        self._started.FromNanoseconds(time.time_ns())
        self._last: int | None = None
        self._told = dict.fromkeys(tally.slots, (0, 0))

    def beat(self, host: Host, *, shutting_down: bool = False) -> WorkerHeartbeat:
        """The next heartbeat; what it tells is not new to the one after it."""
        settings, tally, now = self._settings, self._tally, time.time_ns()
        beat = WorkerHeartbeat(
            worker_instance_key=settings.instance_key,
            worker_identity=settings.identity,
            host_info=host.info(),
            task_queue=settings.task_queue,
            deployment_version=_version(settings),
            sdk_name="temporal-python",
            sdk_version=__version__,
            status=_SHUTTING_DOWN if shutting_down else _RUNNING,
            start_time=self._started,
            workflow_task_slots_info=self._slots("workflow"),
            activity_task_slots_info=self._slots("activity"),
            nexus_task_slots_info=self._slots("nexus"),
            local_activity_slots_info=self._slots("local-activity"),
            workflow_poller_info=self._polls("workflow_task", settings.workflow_pollers),
            workflow_sticky_poller_info=self._polls(
                "sticky_workflow_task", settings.workflow_pollers
            ),
            activity_poller_info=self._polls("activity_task", settings.activity_pollers),
            nexus_poller_info=self._polls("nexus_task", settings.nexus_pollers),
            total_sticky_cache_hit=tally.cache_hits,
            total_sticky_cache_miss=tally.cache_misses,
            current_sticky_cache_size=tally.cached_runs,
            plugins=self._plugins,
            drivers=self._drivers,
        )
        beat.heartbeat_time.FromNanoseconds(now)
        if self._last is not None:
            beat.elapsed_since_last_heartbeat.FromNanoseconds(max(0, now - self._last))
        elif self._with_environment:
            beat.environment.CopyFrom(environment())
        self._last = now
        return beat

    def _slots(self, kind: str) -> WorkerSlotsInfo:
        slots: SlotTally = self._tally.slots[kind]
        processed, failed = self._told[kind]
        self._told[kind] = (slots.processed, slots.failed)
        return WorkerSlotsInfo(
            current_available_slots=slots.available,
            current_used_slots=slots.used,
            slot_supplier_kind=self._kinds[kind],
            total_processed_tasks=slots.processed,
            total_failed_tasks=slots.failed,
            last_interval_processed_tasks=slots.processed - processed,
            last_interval_failure_tasks=slots.failed - failed,
        )

    def _polls(self, kind: str, counts: PollerCounts) -> WorkerPollerInfo:
        polls = self._tally.polls[kind]
        info = WorkerPollerInfo(current_pollers=polls.under_way, is_autoscaling=counts.scaled)
        if polls.last_task_at:
            info.last_successful_poll_time.FromNanoseconds(polls.last_task_at)
        return info


def _version(settings: WorkerSettings) -> WorkerDeploymentVersion:
    versioning = settings.versioning
    return WorkerDeploymentVersion(
        deployment_name=versioning.deployment_name, build_id=versioning.build_id
    )


def _supplier_kinds(tuner: TunerHolder) -> dict[str, str]:
    return {
        "workflow": _supplier_kind(tuner.workflow_slot_supplier),
        "activity": _supplier_kind(tuner.activity_slot_supplier),
        "nexus": _supplier_kind(tuner.nexus_slot_supplier),
        "local-activity": _supplier_kind(tuner.local_activity_slot_supplier),
    }


def _supplier_kind(supplier: object) -> str:
    if hasattr(supplier, "num_slots"):
        return "Fixed"
    return "ResourceBased" if hasattr(supplier, "tuner_config") else "Custom"
