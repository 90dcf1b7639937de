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
from collections.abc import Sequence
from enum import Enum
from typing import Final

from temporalio.api.common.v1.message_pb2 import SearchAttributes
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.api.protocol.v1.message_pb2 import Message

from perdure.core import versioning
from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.evidence import note_code, note_history
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
from perdure.core.local_activities.requests import LocalResult
from perdure.core.machines.fire_and_forget import (
    ModifyPropertiesMachine,
    UpsertSearchAttributesMachine,
)
from perdure.core.machines.local_marker import read_local_marker
from perdure.core.machines.machine import Machine
from perdure.core.machines.patch import read_patch_marker
from perdure.core.machines.terminal import TERMINAL_MACHINES
from perdure.core.machines.workflow_task import WorkflowTaskMachine
from perdure.core.run import activations
from perdure.core.run.lang_machines import LangMachines
from perdure.core.run.patches import CHANGE_VERSION, Patches
from perdure.core.run.state import RunState
from perdure.core.run_info import RunInfo

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


class WorkflowMachines(RunState):
    """All state of one run."""

    __slots__ = ("_by_event", "_lang", "_patches", "_update", "have_seen_terminal_event")

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.have_seen_terminal_event = False
        self._update = HistoryUpdate([], previous_started_id=0, started_id=0)
        self._by_event: dict[int, Machine] = {}
        self._lang = LangMachines(self)
        self._patches = Patches(self)

    # History

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
        self._is_last_sequence = taken.is_final
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
        self._version_of_task = versioning.of_completed_task(completed)

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

    # One event

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

    @property
    def history_size(self) -> int:
        """Bytes of history, as the server said with the last task."""
        started = self._task_started
        return 0 if started is None else started.history_size_bytes

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

    # Commands of lang

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

    # What the server or the worker says besides

    def local_resolution(self, seq: int, result: LocalResult) -> None:
        """A local activity is over. Ignored when lang was told so already."""
        machine = self._lang.local_activity(seq)
        if machine is None:
            raise FatalError(f"local activity {seq} was never asked for, but has a result")
        if self._local.is_outstanding(seq):
            machine.handle_result(result)

    def reset_last_started(self, event_id: int) -> None:
        """The server dropped a speculative workflow task: go back to this started event."""
        self.current_started_event_id = event_id
        self.last_processed_event -= 2
        last = self.last_processed_event
        self._by_event = {key: m for key, m in self._by_event.items() if key <= last}
