"""A container with one machine in it, for tests of single machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import SearchAttributes
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.protocol.v1 import Message
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.history_builder import HistoryBuilder

from perdure.core.commands import LangCommand, parse_command
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.machine import Machine
from perdure.core.run_info import RunInfo

RUN = RunInfo("namespace", "workflow-id", "run-id", "workflow-type", "task-queue")


def lang(variant: str, **fields: Any) -> LangCommand:
    """A command of lang."""
    return parse_command(lang_message(variant, **fields))


def lang_message(variant: str, **fields: Any) -> WorkflowCommand:
    message = WorkflowCommand()
    body = getattr(message, variant)
    body.SetInParent()
    kind = type(body)
    body.CopyFrom(kind(**fields))
    return message


def event(kind: str, **fields: Any) -> HistoryEvent:
    """An event of history, with id 1."""
    built = HistoryBuilder()
    built.add(kind, **fields)
    return built.events[-1]


class FakeHost:
    """Keeps what machines ask for."""

    def __init__(self, *, replaying: bool = False, checks: bool = True) -> None:
        self.run = RUN
        self.replaying = replaying
        self.next_started_event_id = 0
        self.started: WorkflowExecutionStartedEventAttributes | None = None
        self.search_attributes = SearchAttributes()
        self.checks = checks
        self.jobs: list[WorkflowActivationJob] = []
        self.new: list[tuple[Machine, int, Callable[[], Command]]] = []
        self.prepared: list[tuple[Machine, int, Callable[[], Command]]] = []
        self.messages: list[Message] = []
        self.started_tasks: list[tuple[int, int]] = []
        self.reset_to: list[str] = []
        self.time_now = 0
        self.activation_index = 0
        self.local: list[tuple[str, int]] = []
        self.unsent: set[int] = set()

    # What tests ask

    def prepare(self) -> None:
        """Lang's completion is over: its commands take their places."""
        new, self.new = self.new, []
        for entry in new:
            if not entry[0].is_withdrawn:
                entry[0].on_prepared(entry[1])
                self.prepared.append(entry)

    def commands(self) -> list[Command]:
        """What would be sent."""
        return [build() for machine, _, build in self.prepared if not machine.is_final]

    def variants(self) -> list[str]:
        """Variants of the jobs since the last time."""
        jobs, self.jobs = self.jobs, []
        return [job.WhichOneof("variant") or "" for job in jobs]

    def take_job(self) -> WorkflowActivationJob:
        """The only job since the last time."""
        (job,) = self.jobs
        self.jobs = []
        return job

    # What machines ask

    def new_job(self) -> WorkflowActivationJob:
        job = WorkflowActivationJob()
        self.jobs.append(job)
        return job

    def queue_command(
        self, machine: Machine, command_type: int, build: Callable[[], Command]
    ) -> None:
        self.new.append((machine, command_type, build))

    def send_message(self, message: Message) -> None:
        self.messages.append(message)

    def upserts_patches(self) -> bool:
        return True

    def task_started(self, event_id: int, at: int) -> None:
        self.started_tasks.append((event_id, at))

    def workflow_was_reset(self, new_run_id: str) -> None:
        self.reset_to.append(new_run_id)

    def checks_identity(self) -> bool:
        return self.checks

    def checks_nexus_identity(self) -> bool:
        return self.checks

    def advance_time(self, at: int) -> None:
        self.time_now = max(self.time_now, at)

    def request_local(self, machine: LocalActivityMachine) -> None:
        self.local.append(("request", machine.seq))
        self.unsent.add(machine.seq)

    def await_known_local(self, machine: LocalActivityMachine) -> None:
        self.local.append(("wait", machine.seq))

    def withdraw_local(self, seq: int) -> bool:
        if seq in self.unsent:
            self.unsent.discard(seq)
            self.local.append(("withdraw", seq))
            return True
        return False

    def cancel_local(self, seq: int) -> None:
        self.local.append(("cancel", seq))

    def local_is_over(self, seq: int) -> None:
        self.local.append(("over", seq))

    def dispatch(self) -> None:
        """The manager takes the requests."""
        self.unsent.clear()
