"""What a machine may ask of the container it lives in.

Machines never see each other, the history or the queues: only this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import SearchAttributes
from temporalio.api.history.v1.message_pb2 import WorkflowExecutionStartedEventAttributes
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    WorkflowActivationJob,
)

from perdure.core.run_info import RunInfo

if TYPE_CHECKING:
    from perdure.core.machines.machine import Machine

__all__ = ["Host"]


class Host(Protocol):
    """The container, as machines see it."""

    run: RunInfo
    replaying: bool
    next_started_event_id: int
    started: WorkflowExecutionStartedEventAttributes | None
    search_attributes: SearchAttributes

    def new_job(self) -> WorkflowActivationJob:
        """An empty job for lang, already in the queue: fill it in place."""

    def queue_command(
        self, machine: Machine, command_type: int, build: Callable[[], Command]
    ) -> None:
        """A new server command of the machine. `build` runs only if it is really sent, so a
        replay never copies payloads."""

    def task_started(self, event_id: int, at: int) -> None:
        """A workflow task that was worked on started at this time (nanoseconds)."""

    def workflow_was_reset(self, new_run_id: str) -> None:
        """From here on history is another run's, with a seed of its own."""

    def checks_identity(self) -> bool:
        """True if ids and types of commands are compared with history in this run."""

    def checks_nexus_identity(self) -> bool:
        """The same for service and operation of Nexus operations."""
