"""What a machine may ask of the container it lives in.

Machines never see each other, the history or the queues: only this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import SearchAttributes
from temporalio.api.history.v1.message_pb2 import WorkflowExecutionStartedEventAttributes
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    WorkflowActivationJob,
)

from perdure.core.run_info import RunInfo

if TYPE_CHECKING:
    from perdure.core.machines.local_activity import LocalActivityMachine
    from perdure.core.machines.machine import Machine

__all__ = ["Host", "LocalHost"]


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

    def send_message(self, message: Message) -> None:
        """A protocol message for the server, dropped in a replay."""

    def upserts_patches(self) -> bool:
        """True if a patch marker is followed by an upsert of the patches met so far."""

    def task_started(self, event_id: int, at: int) -> None:
        """A workflow task that was worked on started at this time (nanoseconds)."""

    def workflow_was_reset(self, new_run_id: str) -> None:
        """From here on history is another run's, with a seed of its own."""

    def checks_identity(self) -> bool:
        """True if ids and types of commands are compared with history in this run."""

    def checks_nexus_identity(self) -> bool:
        """The same for service and operation of Nexus operations."""


class LocalHost(Host, Protocol):
    """The container, as machines of local activities see it. Times are in nanoseconds."""

    @property
    def time_now(self) -> int:
        """The workflow's time."""

    @property
    def activation_index(self) -> int:
        """How many activations lang has had in this workflow task."""

    def advance_time(self, at: int) -> None:
        """The workflow's time is not before this any more."""

    def request_local(self, machine: LocalActivityMachine) -> None:
        """Run it."""

    def await_known_local(self, machine: LocalActivityMachine) -> None:
        """Its result may come from history."""

    def withdraw_local(self, seq: int) -> bool:
        """Takes back the request. False if it has gone out already."""

    def cancel_local(self, seq: int) -> None:
        """Asks the manager to cancel it."""

    def local_is_over(self, seq: int) -> None:
        """Lang has its result, and nobody waits for another one."""
