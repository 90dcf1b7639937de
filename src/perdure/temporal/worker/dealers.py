"""The slots of one worker: a dealer for each kind of task, made from its tuner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.temporal.slots.contexts import SlotDeploymentVersion, SlotReserveCtx
from perdure.temporal.slots.dealer import Dealer
from perdure.temporal.slots.suppliers import Suppliers
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.diagnostics.metrics import WorkerMetrics
from perdure.temporal.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from temporalio.bridge.worker import SlotSupplier, TunerHolder

__all__ = ["Dealers"]


class Dealers:
    """See the module; raises what `Suppliers` raises.

    With a cache, no more workflow tasks are held at once than it has places, but always two: one
    of the task queue and one of the sticky queue.
    """

    def __init__(
        self,
        tuner: TunerHolder,
        settings: WorkerSettings,
        log: Log,
        metrics: WorkerMetrics,
        show_resources: Callable[[str, float], None],
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._suppliers = Suppliers(tuner, log, show_resources)
        places = max(2, settings.max_cached_workflows) if settings.sticky_queue else None
        self.workflow = self._dealer("workflow", tuner.workflow_slot_supplier, places)
        self.activity = self._dealer("activity", tuner.activity_slot_supplier)
        self.local = self._dealer("local-activity", tuner.local_activity_slot_supplier)
        self.nexus = self._dealer("nexus", tuner.nexus_slot_supplier)

    def out(self) -> dict[str, int]:
        """How many permits are out, by kind, where there are any."""
        dealers = {
            "workflow": self.workflow,
            "activity": self.activity,
            "local activity": self.local,
            "nexus": self.nexus,
        }
        return {kind: dealer.out for kind, dealer in dealers.items() if dealer.out}

    async def all_returned(self, within: float) -> None:
        """Wait until no permit is out, for so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                for dealer in (self.workflow, self.activity, self.local, self.nexus):
                    await dealer.all_returned()

    def _dealer(self, kind: str, config: SlotSupplier, places: int | None = None) -> Dealer:
        settings = self._settings
        versioning = settings.versioning
        version = SlotDeploymentVersion(versioning.deployment_name, versioning.build_id)

        def context(sticky: bool) -> SlotReserveCtx:
            return SlotReserveCtx(
                slot_type=kind,
                task_queue=settings.task_queue,
                worker_identity=settings.identity,
                worker_build_id=settings.build_id,
                worker_deployment_version=version,
                is_sticky=sticky,
            )

        return Dealer(
            self._suppliers.make(config, kind=kind),
            context,
            places,
            on_change=lambda used, available: self._metrics.slots(kind, used, available),
        )
