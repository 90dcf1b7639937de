"""What one run has at any moment: its time, its flags, jobs for lang, commands for the server.

State machines live in a run and ask it for things (`machines.host`); lang gets its jobs in an
activation, and the server gets commands and messages with the answer of a task. This is where all
of that is kept between the two. How history and lang's commands change it is in
`workflow_machines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import MeteringMetadata, SearchAttributes
from temporalio.api.history.v1.message_pb2 import (
    WorkflowExecutionStartedEventAttributes,
    WorkflowTaskStartedEventAttributes,
)
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.api.query.v1.message_pb2 import WorkflowQuery
from temporalio.api.sdk.v1.task_complete_metadata_pb2 import WorkflowTaskCompletedMetadata
from temporalio.bridge.proto.common.common_pb2 import WorkerDeploymentVersion
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import (
    WorkflowActivation,
    WorkflowActivationJob,
)

from perdure.core import versioning
from perdure.core.local_activities.requests import LocalRequest
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.machine import Machine
from perdure.core.run import activations
from perdure.core.run.command_queue import CommandQueue
from perdure.core.run.flags import CoreFlag, InternalFlags
from perdure.core.run.local_tracking import LocalTracking
from perdure.core.run.randomness import seed_of_run
from perdure.core.run.updates import Updates
from perdure.core.run_info import RunInfo

__all__ = ["RunState"]


class RunState:
    """See the module. It is the `LocalHost` of its machines."""

    __slots__ = (
        "_commands",
        "_flags",
        "_is_last_sequence",
        "_jobs",
        "_local",
        "_task_started",
        "_updates",
        "_version_of_task",
        "_workflow_time",
        "current_started_event_id",
        "last_processed_event",
        "next_started_event_id",
        "replaying",
        "run",
        "search_attributes",
        "started",
        "started_at",
    )

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.replaying = False
        self._is_last_sequence = False
        self.last_processed_event = 0
        self.current_started_event_id = 0
        self.next_started_event_id = 0
        self.started: WorkflowExecutionStartedEventAttributes | None = None
        self.started_at: Timestamp | None = None
        self.search_attributes = SearchAttributes()
        self._workflow_time = 0
        self._task_started: WorkflowTaskStartedEventAttributes | None = None
        self._flags = InternalFlags(server_keeps_metadata=run.has_sdk_metadata)
        self._version_of_task = WorkerDeploymentVersion()
        self._jobs: list[WorkflowActivationJob] = []
        self._commands = CommandQueue()
        self._local = LocalTracking(run)
        self._updates = Updates(self)

    # What lang gets

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    def drain_jobs(self) -> list[WorkflowActivationJob]:
        """Takes the waiting jobs, in the order they came up."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def activation(self) -> WorkflowActivation:
        """An activation with the waiting jobs, in the order lang wants them."""
        if not self.replaying:
            self._version_of_task = versioning.of_worker(self.run.versioning)
        activation = self._empty_activation(replaying=self.replaying)
        activation.jobs.extend(activations.in_order(self.drain_jobs()))
        return activation

    def query_activation(self, queries: Sequence[tuple[str, WorkflowQuery]]) -> WorkflowActivation:
        """An activation with nothing but queries, which always counts as replaying.

        It has the version of the last task: a query replayed on a newer worker is answered for the
        version whose task is the last one in history.
        """
        activation = self._empty_activation(replaying=True)
        for query_id, query in queries:
            activations.fill_query(activation.jobs.add().query_workflow, query_id, query)
        return activation

    def completed_activation_dispatched(self) -> None:
        """Lang was given an activation that is not for queries."""
        self._local.activation_index += 1

    def _empty_activation(self, *, replaying: bool) -> WorkflowActivation:
        activation = WorkflowActivation(
            run_id=self.run.run_id,
            is_replaying=replaying,
            history_length=self.last_processed_event,
            available_internal_flags=self._flags.lang_flags,
            last_sdk_version=self._flags.last_sdk_version,
        )
        activation.timestamp.FromNanoseconds(self._workflow_time)
        version = self._version_of_task
        if version.build_id or version.deployment_name:
            activation.deployment_version_for_current_task.CopyFrom(version)
        if self._task_started is not None:
            activations.fill_task_facts(activation, self._task_started)
        return activation

    @property
    def workflow_task_timeout(self) -> Duration | None:
        """How long one workflow task may take; None before the first event."""
        return self.started.workflow_task_timeout if self.started is not None else None

    # What the server gets

    def outgoing_commands(self) -> list[Command]:
        """The server commands that history has not confirmed yet, in order."""
        return self._commands.outgoing()

    def completion_metadata(self) -> tuple[WorkflowTaskCompletedMetadata, MeteringMetadata]:
        """What a workflow task that is completed now tells the server beside its commands."""
        metadata = self._flags.metadata_of_completion(self.run.sdk_name, self.run.sdk_version)
        return metadata, MeteringMetadata()

    @property
    def has_messages(self) -> bool:
        """True if something is to be said to the server by protocol messages."""
        return self._updates.has_messages

    def drain_messages(self) -> list[Message]:
        """Takes the protocol messages for the server, in order."""
        return self._updates.drain()

    @property
    def outstanding_local_activities(self) -> int:
        """How many local activities keep the workflow task from being answered."""
        return self._local.outstanding

    def drain_local_activities(self) -> list[LocalRequest]:
        """Takes the requests for the manager of local activities, in order."""
        return self._local.drain()

    # Flags

    def record_lang_flags(self, flags: Sequence[int]) -> None:
        """Flags that lang used for the first time in this run."""
        self._flags.lang_used(flags)

    def keeps_commands_after_terminal(self) -> bool:
        """True if commands that follow the end of the workflow in one activation are sent too."""
        return self._flags.try_use(CoreFlag.MOVE_TERMINAL_COMMANDS, record=not self.replaying)

    # What machines ask

    def new_job(self) -> WorkflowActivationJob:
        job = WorkflowActivationJob()
        self._jobs.append(job)
        return job

    def queue_command(
        self, machine: Machine, command_type: int, build: Callable[[], Command]
    ) -> None:
        self._commands.add(machine, command_type, build)

    def task_started(self, event_id: int, at: int) -> None:
        self.current_started_event_id = event_id
        self.advance_time(at)
        if not self.replaying:
            self._local.live_task_started()

    def workflow_was_reset(self, new_run_id: str) -> None:
        self.new_job().update_random_seed.randomness_seed = seed_of_run(new_run_id)

    def checks_identity(self) -> bool:
        return self._flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=self._is_last())

    def checks_nexus_identity(self) -> bool:
        return self._flags.try_use(CoreFlag.NEXUS_OPERATION_CHECKS, record=self._is_last())

    def _is_last(self) -> bool:
        """What the last sequence holds was written by the task before this one, and its answer is
        the first that this worker gives: what is checked there will be checked ever after."""
        return self._is_last_sequence or not self.replaying

    def upserts_patches(self) -> bool:
        return self._flags.try_use(
            CoreFlag.UPSERT_SEARCH_ATTRIBUTES_ON_PATCH, record=not self.replaying
        )

    def send_message(self, message: Message) -> None:
        self._updates.send(message)

    # What machines of local activities ask

    @property
    def time_now(self) -> int:
        return self._workflow_time

    @property
    def activation_index(self) -> int:
        return self._local.activation_index

    def advance_time(self, at: int) -> None:
        self._workflow_time = max(self._workflow_time, at)

    def request_local(self, machine: LocalActivityMachine) -> None:
        self._local.request(machine)

    def await_known_local(self, machine: LocalActivityMachine) -> None:
        self._local.wait(machine)

    def withdraw_local(self, seq: int) -> bool:
        return self._local.withdraw(seq)

    def cancel_local(self, seq: int) -> None:
        self._local.cancel(seq)

    def local_is_over(self, seq: int) -> None:
        self._local.is_over(seq)
