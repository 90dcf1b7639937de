"""Cutting a history into what one workflow task saw.

A sequence holds all events after the last applied WorkflowTaskStarted up to and including the next
meaningful one, so the events that the commands of task n made open sequence n + 1. Tasks that
failed or timed out are swallowed, and so are tasks that were only heartbeats of a long local
activity: their events are part of the sequence that the next meaningful task ends.

A task that accepts an update first of all ends a chain of heartbeats before itself, so that lang
meets the update where it did. The same must hold when the task is new and its answer is not there
yet, because a later replay will cut there: so it is said where the requests of a new task belong.

`find_end` never guesses: as long as more history may come it wants to see what follows a
WorkflowTaskStarted before it cuts there. So the cut does not depend on where a page ends.

`HistoryUpdate` is what one task (or one page of it) brings. It keeps one sequence back as long as
more history may come: applying a sequence looks ahead into the next one. What is kept back is only
shown (`peek_next_sequence`); it comes again, to be taken, at the front of the next update. An
update therefore simply replaces the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from temporalio.api.history.v1 import HistoryEvent

from perdure.core.history.events import (
    COMMAND_EVENTS,
    FINAL_EVENTS,
    SWALLOWING_EVENTS,
    TASK_COMPLETED,
    TASK_SCHEDULED,
    TASK_STARTED,
    UPDATE_ACCEPTED,
    WORKFLOW_STARTED,
)

__all__ = ["HistoryUpdate", "NoSequence", "TaskSequence", "cut", "find_end"]


def find_end(
    events: Sequence[HistoryEvent], start: int, *, complete: bool, update_after: int | None = None
) -> int | None:
    """Index of the last event of the sequence that begins at index `start`.

    `update_after` is the id of the event after which the task that history ends with brings an
    update, if it does.

    None is returned when no end is in sight: more events are needed or, when the history is
    `complete`, the rest of it is an unfinished sequence.
    """
    size = len(events)
    saw_command = saw_any = False
    remembered: list[int] = []
    for index in range(start, size):
        kind = events[index].event_type
        if kind in COMMAND_EVENTS:
            saw_command = saw_any = True
        elif kind == WORKFLOW_STARTED:
            saw_any = True
        if kind in FINAL_EVENTS:
            return index
        if kind != TASK_STARTED:
            continue
        following = events[index + 1].event_type if index + 1 < size else None
        if following in SWALLOWING_EVENTS:
            continue
        remembered.append(index)
        if following == TASK_COMPLETED and index + 2 < size:
            after = events[index + 2]
            if not saw_command and after.event_type == TASK_SCHEDULED:
                continue
            if after.event_type == UPDATE_ACCEPTED:
                accepted = after.workflow_execution_update_accepted_event_attributes
                sequencing = accepted.accepted_request_sequencing_event_id
                return _end_before_update(events, remembered, sequencing)
            return index
        if not complete and following in (None, TASK_COMPLETED):
            return None
        if following is None and update_after is not None:
            return _end_before_update(events, remembered, update_after)
        if saw_any:
            return index
    return None


def _end_before_update(
    events: Sequence[HistoryEvent], remembered: Sequence[int], sequencing: int
) -> int:
    """The update arrived with the first task started after its sequencing event: it needs a
    sequence of its own, so a chain of empty tasks is cut before that task.
    """
    for index in reversed(remembered):
        if events[index].event_id < sequencing:
            return index
    return remembered[-1]


def cut(
    events: Sequence[HistoryEvent], *, complete: bool, update_after: int | None = None
) -> dict[int, int]:
    """All sequences of these events, as index of the first event to index of the last one; the
    rest as in `find_end`.
    """
    ends: dict[int, int] = {}
    start = 0
    while start < len(events):
        end = find_end(events, start, complete=complete, update_after=update_after)
        if end is None:
            break
        ends[start] = end
        start = end + 1
    return ends


class TaskSequence(NamedTuple):
    """The events of one sequence; `is_final` when no history follows it."""

    events: list[HistoryEvent]
    is_final: bool


class NoSequence(Enum):
    """Why there is no sequence to take."""

    NEED_FETCH = "need fetch"
    """More pages of the history must come first."""
    REPLAY_OVER = "replay over"
    """All of the history was taken."""


class HistoryUpdate:
    """Sequences to be taken one by one; see the module."""

    __slots__ = (
        "_cursor",
        "_ends",
        "_events",
        "_limit",
        "_update_after",
        "complete",
        "first_event_id",
        "last_event_id",
        "previous_started_id",
        "started_id",
    )

    complete: Final[bool]
    """No more history will come: the last sequence is here, finished or not."""
    previous_started_id: Final[int]
    """Start of the task before this one: what is not after it is replayed."""
    started_id: Final[int]
    """Start of the task that brought this; 0 for a task that is only a query."""
    first_event_id: Final[int]
    """Id of the first event; 0 when there is none."""
    last_event_id: Final[int]
    """Id of the last event; 0 when there is none."""

    def __init__(
        self,
        events: list[HistoryEvent],
        *,
        previous_started_id: int,
        started_id: int,
        complete: bool = True,
        limit: int | None = None,
        ends: dict[int, int] | None = None,
        update_after: int | None = None,
    ) -> None:
        """`limit` is the index from which events are only shown, and `ends` what `cut` found;
        `update_after` as in `find_end`.
        """
        self._events = events
        self._cursor = 0
        self._limit = len(events) if limit is None else limit
        self._ends = ends if ends is not None else {}
        self._update_after = update_after
        self.complete = complete
        self.previous_started_id = previous_started_id
        self.started_id = started_id
        self.first_event_id = events[0].event_id if events else 0
        self.last_event_id = events[-1].event_id if events else 0

    def take_next_sequence(self, from_id: int) -> TaskSequence | NoSequence:
        """The sequence after the event `from_id`; it is gone from the update afterwards."""
        end = self._end_of_next(from_id)
        if isinstance(end, NoSequence):
            return end
        taken = self._events[self._cursor : end + 1]
        self._cursor = end + 1
        is_final = self.complete and self._cursor >= len(self._events)
        if is_final:
            self._events = []
            self._cursor = 0
        return TaskSequence(taken, is_final)

    def can_take_next_sequence(self, from_id: int) -> bool:
        """Whether no fetch is needed first: there is a sequence, or the replay is over."""
        return self._end_of_next(from_id) is not NoSequence.NEED_FETCH

    def peek_next_sequence(self, from_id: int) -> list[HistoryEvent]:
        """The events of the next sequence, which stay; empty when there is none."""
        self._skip(from_id)
        end = self._find_end()
        if end is None:
            return self._events[self._cursor :] if self.complete else []
        return self._events[self._cursor : end + 1]

    def peek_next_task_completed(self, from_id: int) -> HistoryEvent | None:
        """The first WorkflowTaskCompleted after the event `from_id`."""
        self._skip(from_id)
        for index in range(self._cursor, len(self._events)):
            if self._events[index].event_type == TASK_COMPLETED:
                return self._events[index]
        return None

    def _end_of_next(self, from_id: int) -> int | NoSequence:
        self._skip(from_id)
        end = self._find_end()
        if self.complete:
            if self._nothing_left():
                return NoSequence.REPLAY_OVER
            return len(self._events) - 1 if end is None else end
        if end is None or end >= self._limit:
            return NoSequence.NEED_FETCH
        return end

    def _nothing_left(self) -> bool:
        """The end of a task whose answer was empty is no sequence: nothing followed from it. It
        comes again with the next task.
        """
        left = len(self._events) - self._cursor
        return left == 0 or (left == 1 and self._events[-1].event_type == TASK_COMPLETED)

    def _skip(self, from_id: int) -> None:
        events, cursor = self._events, self._cursor
        while cursor < len(events) and events[cursor].event_id <= from_id:
            cursor += 1
        self._cursor = cursor

    def _find_end(self) -> int | None:
        cursor = self._cursor
        end = self._ends.get(cursor)
        if end is None:
            end = find_end(
                self._events, cursor, complete=self.complete, update_after=self._update_after
            )
            if end is not None:
                self._ends[cursor] = end
        return end
