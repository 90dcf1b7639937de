"""What lang has begun in one run and knows by a `seq`: timers, activities, children and so on.

Each kind has numbers of its own. Machines that are over stay, because lang may still cancel them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perdure.core.commands import LangCommand
from perdure.core.errors import NondeterminismError
from perdure.core.machines.activity import ActivityMachine
from perdure.core.machines.cancel_external import CancelExternalMachine
from perdure.core.machines.child_workflow import ChildWorkflowMachine
from perdure.core.machines.host import LocalHost
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.machine import Machine
from perdure.core.machines.nexus_operation import NexusOperationMachine
from perdure.core.machines.signal_external import SignalExternalMachine
from perdure.core.machines.timer import TimerMachine

__all__ = ["LangMachines"]

_LOCAL: Final = "schedule_local_activity"

_MACHINE_OF: Final[dict[str, Callable[[LocalHost, LangCommand], Machine]]] = {
    "start_timer": TimerMachine,
    "schedule_activity": ActivityMachine,
    "start_child_workflow_execution": ChildWorkflowMachine,
    "signal_external_workflow_execution": SignalExternalMachine,
    "request_cancel_external_workflow_execution": CancelExternalMachine.of_command,
    "schedule_nexus_operation": NexusOperationMachine,
    _LOCAL: LocalActivityMachine,
}
"""Variant of a command that begins something, to its machine."""

_CANCELLED: Final[dict[str, tuple[str, str]]] = {
    "cancel_timer": ("start_timer", "seq"),
    "request_cancel_activity": ("schedule_activity", "seq"),
    "cancel_child_workflow_execution": ("start_child_workflow_execution", "child_workflow_seq"),
    "cancel_signal_workflow": ("signal_external_workflow_execution", "seq"),
    "request_cancel_nexus_operation": ("schedule_nexus_operation", "seq"),
    "request_cancel_local_activity": (_LOCAL, "seq"),
}
"""Variant of a cancellation, to the variant that began the thing and the field that names it."""


class LangMachines:
    """The machines by kind and number."""

    __slots__ = ("_by_seq", "_host")

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self._by_seq: dict[str, dict[int, Machine]] = {variant: {} for variant in _MACHINE_OF}

    def take(self, command: LangCommand) -> bool:
        """Begins or cancels something; False if the command is of another kind.

        Raises `NondeterminismError` for the cancellation of what was never begun.
        """
        variant = command.variant
        make = _MACHINE_OF.get(variant)
        if make is not None:
            self._by_seq[variant][command.body.seq] = make(self._host, command)
            return True
        if variant not in _CANCELLED:
            return False
        begun_by, field = _CANCELLED[variant]
        seq: int = getattr(command.body, field)
        machine = self._by_seq[begun_by].get(seq)
        if machine is None:
            raise NondeterminismError(
                f"Missing associated machine: the command {variant} is about {begun_by} {seq},"
                " which was never asked for in this run"
            )
        machine.cancel(command)
        return True

    def local_activity(self, seq: int) -> LocalActivityMachine | None:
        """The local activity with this number; None if there never was one."""
        machine = self._by_seq[_LOCAL].get(seq)
        return machine if isinstance(machine, LocalActivityMachine) else None
