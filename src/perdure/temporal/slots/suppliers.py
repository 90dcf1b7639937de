"""The suppliers of one worker's slots, made from what its tuner asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.temporal.slots.contexts import CustomSlotSupplier
from perdure.temporal.slots.custom import CustomSlots
from perdure.temporal.slots.dealer import Supplier
from perdure.temporal.slots.fixed import FixedSlots
from perdure.temporal.slots.resource_based import ResourceSlots, SlotBounds
from perdure.temporal.slots.resource_control import ResourceControl, Targets
from perdure.temporal.slots.system_resources import SystemResources

if TYPE_CHECKING:
    from temporalio.bridge.worker import TunerHolder

    from perdure.temporal.telemetry.logs import Log

__all__ = ["Suppliers"]


class Suppliers:
    """Makes suppliers; all that follow the resources of the machine share one control.

    Raises ValueError if they are asked to follow different targets, TypeError when a number is
    negative, and `PackageMissing` when resources cannot be measured here.
    """

    def __init__(
        self,
        tuner: TunerHolder,
        log: Log,
        show: Callable[[str, float], None] = lambda _name, _value: None,
    ) -> None:
        """`show` is told what is measured and decided, by name of the metric."""
        self._log = log
        self._control: ResourceControl | None = None
        configs: list[Any] = [
            tuner.workflow_slot_supplier,
            tuner.activity_slot_supplier,
            tuner.local_activity_slot_supplier,
            tuner.nexus_slot_supplier,
        ]
        targets = {
            Targets(config.tuner_config.target_memory_usage, config.tuner_config.target_cpu_usage)
            for config in configs
            if _follows_resources(config)
        }
        if len(targets) > 1:
            raise ValueError(
                "All resource-based slot suppliers must have the same ResourceBasedTunerOptions"
            )
        if targets:
            self._control = ResourceControl(targets.pop(), SystemResources().sample, show)

    def make(self, config: Any, *, kind: str) -> Supplier:
        """A supplier of slots of this kind, one of those of `SlotReserveCtx`."""
        if isinstance(config, CustomSlotSupplier):
            return CustomSlots(config.inner, self._log)
        if _follows_resources(config):
            assert self._control is not None, "the tuner was looked through"
            numbers = (config.minimum_slots, config.maximum_slots, config.ramp_throttle_ms)
            _check(numbers)
            bounds = SlotBounds(numbers[0], numbers[1], numbers[2] / 1000)
            return ResourceSlots(self._control, bounds, by_stickiness=kind == "workflow")
        _check((config.num_slots,))
        return FixedSlots(config.num_slots)


def _follows_resources(config: Any) -> bool:
    return hasattr(config, "tuner_config")


def _check(numbers: tuple[int, ...]) -> None:
    if min(numbers) < 0:
        raise TypeError("failed to extract field WorkerConfig.tuner")
