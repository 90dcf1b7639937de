"""The container of all state machines of one run: history and commands in, jobs and commands out.

A run goes round in one loop, live and in replay alike. `apply_next_sequence` applies what one
workflow task saw: events find their machines, which leave jobs for lang. Lang's answer goes to
`iterate`: each command makes or cancels a machine, and what has to be sent takes its place in one
queue, where the events that begin the next sequence find it.

`replaying` is decided event by event, just before the event is handled.

Nothing here waits, reads a clock or talks to anybody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import MeteringMetadata, SearchAttributes
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1.message_pb2 import (
    HistoryEvent,
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

from perdure.core import activations, versions
from perdure.core.command_queue import CommandQueue
from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.evidence import note_code, note_history
from perdure.core.flags import CoreFlag, InternalFlags
from perdure.core.history.events import (
    COMMAND_EVENTS,
    FINAL_EVENTS,
    TASK_COMPLETED,
    TASK_SCHEDULED,
    TASK_STARTED,
    UPDATE_ACCEPTED,
    describe,
    initiating_event_id,
    time_of,
)
from perdure.core.history.sequences import HistoryUpdate, NoSequence
from perdure.core.lang_machines import LangMachines
from perdure.core.local_requests import LocalRequest, LocalResult
from perdure.core.local_tracking import LocalTracking
from perdure.core.machines.fire_and_forget import (
    ModifyPropertiesMachine,
    UpsertSearchAttributesMachine,
)
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.local_marker import read_local_marker
from perdure.core.machines.machine import Machine
from perdure.core.machines.patch import read_patch_marker
from perdure.core.machines.terminal import TERMINAL_MACHINES
from perdure.core.machines.workflow_task import WorkflowTaskMachine
from perdure.core.patches import CHANGE_VERSION, Patches
from perdure.core.randomness import seed_of_run
from perdure.core.run_info import RunInfo
from perdure.core.updates import Updates

__all__ = ["Step", "WorkflowMachines"]

_log = logging.getLogger(__name__)

_MARKER_RECORDED: Final = int(EventType.EVENT_TYPE_MARKER_RECORDED)

_LAST_EVENTS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    }
)


_HANDLERS: Final[dict[int, str]] = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "_on_started",
    TASK_SCHEDULED: "_on_task_scheduled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "_on_signaled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED: "_on_update_admitted",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED: "_on_cancel_requested",
}
"""Type of an event that belongs to no machine yet, to the method that takes it."""


class Step(Enum):
    """What `apply_next_sequence` could do."""

    APPLIED = "applied"
    NEED_FETCH = "need fetch"
    OVER = "over"


class WorkflowMachines:
    """All state of one run."""

    __slots__ = (
        "_by_event",
        "_commands",
        "_flags",
        "_jobs",
        "_lang",
        "_local",
        "_patches",
        "_task_started",
        "_update",
        "_updates",
        "_version_of_task",
        "_workflow_time",
        "current_started_event_id",
        "have_seen_terminal_event",
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
        self.have_seen_terminal_event = False
        self.last_processed_event = 0
        self.current_started_event_id = 0
        self.next_started_event_id = 0
        self.started: WorkflowExecutionStartedEventAttributes | None = None
        self.started_at: Timestamp | None = None
        self.search_attributes = SearchAttributes()
        self._update = HistoryUpdate([], previous_started_id=0, started_id=0)
        self._workflow_time = 0
        self._task_started: WorkflowTaskStartedEventAttributes | None = None
        self._flags = InternalFlags(server_keeps_metadata=run.has_sdk_metadata)
        self._version_of_task = WorkerDeploymentVersion()
        self._jobs: list[WorkflowActivationJob] = []
        self._commands = CommandQueue()
        self._by_event: dict[int, Machine] = {}
        self._lang = LangMachines(self)
        self._local = LocalTracking(run)
        self._patches = Patches(self)
        self._updates = Updates(self)

    # --- History --------------------------------------------------------------------------------

    def new_history(self, update: HistoryUpdate, messages: Sequence[Message]) -> None:
        """A new workflow task brought this history and these protocol messages."""
        self._update = update
        self._updates.receive(messages)
        self.replaying = update.previous_started_id > 0

    def add_fetched(self, update: HistoryUpdate) -> None:
        """More of the history of the same workflow task."""
        self._update = update

    def needs_fetch_for_completion(self) -> bool:
        """True if the sequence that lang's commands are matched with is not here yet."""
        return not self._update.can_take_next_sequence(self.last_processed_event)

    def apply_next_sequence(self) -> Step:
        """Applies one sequence of history.

        Raises `NondeterminismError` and `FatalError`; the run is of no use afterwards.
        """
        if self.have_seen_terminal_event:
            self.replaying = False
            return Step.OVER
        update = self._update
        taken = update.take_next_sequence(self.last_processed_event)
        if taken is NoSequence.NEED_FETCH:
            return Step.NEED_FETCH
        if isinstance(taken, NoSequence) or not taken.events:
            self.replaying = False
            return Step.OVER
        events = taken.events
        self._read_completions(events)
        if events[-1].event_type == TASK_STARTED:
            self.next_started_event_id = events[-1].event_id
        final_after = update.previous_started_id if taken.is_final else None
        self._local.activation_index = 0
        self._apply_events(events, final_after)
        self._look_ahead()
        return Step.APPLIED

    def _apply_events(self, events: list[HistoryEvent], live_after: int | None) -> None:
        """`live_after`: events after this id that no command caused end the replay."""
        last = len(events) - 1
        for index, event in enumerate(events):
            event_id = event.event_id
            if event_id != self.last_processed_event + 1:
                raise FatalError(
                    f"History is out of order: {describe(event)} follows event"
                    f" {self.last_processed_event}"
                )
            kind = event.event_type
            if (
                self.replaying
                and live_after is not None
                and event_id > live_after
                and kind != TASK_COMPLETED
                and kind not in COMMAND_EVENTS
            ):
                self.replaying = False
            try:
                self._updates.begin_before(event_id)
                self._handle_event(event, events[index + 1] if index < last else None)
            except (FatalError, NondeterminismError) as error:
                note_history(error, events, index)
                raise
            self.last_processed_event = event_id

    def _read_completions(self, events: list[HistoryEvent]) -> None:
        """What completed tasks of this sequence, and the one after it, say about behaviour."""
        for event in events:
            if event.event_type == TASK_COMPLETED:
                self._read_completion(event)
        following = self._update.peek_next_task_completed(events[-1].event_id)
        if following is not None:
            self._read_completion(following)

    def _read_completion(self, event: HistoryEvent) -> None:
        completed = event.workflow_task_completed_event_attributes
        self._flags.seen(completed.sdk_metadata)
        self._version_of_task = versions.of_completed_task(completed)

    def _look_ahead(self) -> None:
        """Reads in the next sequence what lang has to know, or have, beforehand."""
        requests: list[Message] = []
        for event in self._update.peek_next_sequence(self.last_processed_event):
            kind = event.event_type
            if kind == _MARKER_RECORDED:
                patch = read_patch_marker(event)
                if patch is not None:
                    self._patches.seen_ahead(patch)
                    continue
                local = read_local_marker(event)
                if local is not None:
                    self._local.seen_ahead(local)
            elif kind == UPDATE_ACCEPTED:
                requests.append(self._updates.accepted_ahead(event))
        for request in requests:
            self._updates.begin(request)
        self._local.release(nothing_else=not self._jobs)

    # --- One event ------------------------------------------------------------------------------

    def _handle_event(self, event: HistoryEvent, following: HistoryEvent | None) -> None:
        kind = event.event_type
        if kind in FINAL_EVENTS:
            self.have_seen_terminal_event = True
        if kind in COMMAND_EVENTS:
            if kind == _MARKER_RECORDED and self._take_local_marker(event):
                return
            self._match(event, following)
            return
        if kind == TASK_STARTED:
            self._task_started = event.workflow_task_started_event_attributes
        initiating = initiating_event_id(event)
        if initiating is not None:
            self._continue(event, initiating)
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            getattr(self, handler)(event)
        elif kind in _LAST_EVENTS:
            if following is not None:
                raise FatalError(f"{describe(event)} is not the last event of history")
        elif not event.worker_may_ignore:
            raise FatalError(f"{describe(event)} of history is of a kind that is not supported")

    def _take_local_marker(self, event: HistoryEvent) -> bool:
        """In a replay the marker of a local activity has no command: it goes straight home."""
        marker = read_local_marker(event)
        if marker is None:
            return False
        machine = self._lang.local_activity(marker.seq)
        if machine is None or not machine.awaits_marker:
            return False
        try:
            machine.on_history(event)
        except NondeterminismError as error:
            note_code(error, machine.describe(), machine.site, is_last=False)
            raise
        return True

    def _match(self, event: HistoryEvent, following: HistoryEvent | None) -> None:
        machine = self._commands.match(event, following)
        if machine is not None:
            try:
                machine.on_history(event)
            except NondeterminismError as error:
                self._commands.blame_last(error)
                raise
            if (
                machine.has_later_events
                and not machine.is_final
                and initiating_event_id(event) is None
            ):
                self._by_event[event.event_id] = machine

    def _continue(self, event: HistoryEvent, initiating: int) -> None:
        machine = self._by_event.get(initiating)
        if machine is None:
            raise NondeterminismError(
                f"{describe(event)} of history belongs to event {initiating}, for which the"
                " workflow's code has nothing under way"
            )
        machine.on_history(event)
        if machine.is_closed:
            del self._by_event[initiating]

    def _on_started(self, event: HistoryEvent) -> None:
        attributes = event.workflow_execution_started_event_attributes
        self.started = attributes
        self.started_at = event.event_time
        self.search_attributes.CopyFrom(attributes.search_attributes)
        self.advance_time(time_of(event))
        activations.fill_initialize(self.new_job().initialize_workflow, event, self.run)

    def _on_task_scheduled(self, event: HistoryEvent) -> None:
        machine = WorkflowTaskMachine(self)
        self._by_event[event.event_id] = machine
        machine.on_history(event)

    def _on_update_admitted(self, event: HistoryEvent) -> None:
        self._updates.admitted(event)

    def _on_signaled(self, event: HistoryEvent) -> None:
        activations.fill_signal(self.new_job().signal_workflow, event)

    def _on_cancel_requested(self, event: HistoryEvent) -> None:
        job = self.new_job().cancel_workflow
        job.reason = event.workflow_execution_cancel_requested_event_attributes.cause
        job.SetInParent()

    # --- Commands of lang -----------------------------------------------------------------------

    def iterate(self, commands: Sequence[LangCommand]) -> None:
        """Lang's answer to an activation.

        Raises `NondeterminismError` for what cannot be done in the run's state.
        """
        for command in commands:
            self._take_command(command)
        self._commands.site = None
        self._local.release(nothing_else=not self._jobs)
        self._commands.prepare()

    def _take_command(self, command: LangCommand) -> None:
        variant = command.variant
        self._commands.site = command.site
        if self._lang.take(command):
            return
        if variant in TERMINAL_MACHINES:
            TERMINAL_MACHINES[variant](self, command)
            self._local.end()
        elif variant == "modify_workflow_properties":
            ModifyPropertiesMachine(self, command)
        elif variant == "upsert_workflow_search_attributes":
            self._upsert_search_attributes(command)
        elif variant == "set_patch_marker":
            self._patches.ask(command)
        elif variant == "update_response":
            self._updates.respond(command)
        else:
            raise FatalError(f"the command {variant} is not supported")

    def _upsert_search_attributes(self, command: LangCommand) -> None:
        attributes = SearchAttributes()
        attributes.CopyFrom(command.body.search_attributes)
        if CHANGE_VERSION in attributes.indexed_fields and self.upserts_patches():
            _log.warning(
                "the workflow %s sets the search attribute %s, which belongs to patches: ignored",
                self.run.workflow_id,
                CHANGE_VERSION,
            )
            del attributes.indexed_fields[CHANGE_VERSION]
        for name, value in attributes.indexed_fields.items():
            self.search_attributes.indexed_fields[name].CopyFrom(value)
        UpsertSearchAttributesMachine(self, attributes, command.annotations)

    def outgoing_commands(self) -> list[Command]:
        """The server commands that history has not confirmed yet, in order."""
        return self._commands.outgoing()

    # --- What lang gets -------------------------------------------------------------------------

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
            self._version_of_task = versions.of_worker(self.run.versioning)
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

    def completion_metadata(self) -> tuple[WorkflowTaskCompletedMetadata, MeteringMetadata]:
        """What a workflow task that is completed now tells the server beside its commands."""
        metadata = self._flags.metadata_of_completion(self.run.sdk_name, self.run.sdk_version)
        return metadata, MeteringMetadata()

    def record_lang_flags(self, flags: Sequence[int]) -> None:
        """Flags that lang used for the first time in this run."""
        self._flags.lang_used(flags)

    def keeps_commands_after_terminal(self) -> bool:
        """True if commands that follow the end of the workflow in one activation are sent too."""
        return self._flags.try_use(CoreFlag.MOVE_TERMINAL_COMMANDS, record=not self.replaying)

    @property
    def workflow_time(self) -> Timestamp:
        """The time that the workflow sees."""
        result = Timestamp()
        result.FromNanoseconds(self._workflow_time)
        return result

    @property
    def workflow_task_timeout(self) -> Duration | None:
        """How long one workflow task may take; None before the first event."""
        return self.started.workflow_task_timeout if self.started is not None else None

    # --- Local activities, updates, resets ------------------------------------------------------

    @property
    def outstanding_local_activities(self) -> int:
        """How many local activities keep the workflow task from being answered."""
        return self._local.outstanding

    def drain_local_activities(self) -> list[LocalRequest]:
        """Takes the requests for the manager of local activities, in order."""
        return self._local.drain()

    def local_resolution(self, seq: int, result: LocalResult) -> None:
        """A local activity is over. Ignored when lang was told so already."""
        machine = self._lang.local_activity(seq)
        if machine is None:
            raise FatalError(f"local activity {seq} was never asked for, but has a result")
        if self._local.is_outstanding(seq):
            machine.handle_result(result)

    @property
    def has_messages(self) -> bool:
        """True if something is to be said to the server by protocol messages."""
        return self._updates.has_messages

    def drain_messages(self) -> list[Message]:
        """Takes the protocol messages for the server, in order."""
        return self._updates.drain()

    def reset_last_started(self, event_id: int) -> None:
        """The server dropped a speculative workflow task: go back to this started event."""
        self.current_started_event_id = event_id
        self.last_processed_event -= 2
        last = self.last_processed_event
        self._by_event = {key: m for key, m in self._by_event.items() if key <= last}

    # --- What machines ask ----------------------------------------------------------------------

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
        return self._flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=not self.replaying)

    def checks_nexus_identity(self) -> bool:
        return self._flags.try_use(CoreFlag.NEXUS_OPERATION_CHECKS, record=not self.replaying)

    def upserts_patches(self) -> bool:
        return self._flags.try_use(
            CoreFlag.UPSERT_SEARCH_ATTRIBUTES_ON_PATCH, record=not self.replaying
        )

    def send_message(self, message: Message) -> None:
        self._updates.send(message)

    # --- What machines of local activities ask --------------------------------------------------

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
