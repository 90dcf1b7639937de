"""What kind of event an event is.

Owns the classification of event types that the rest of the core decides by: which events are caused
by a command, which end a workflow, and which one began the thing an event is about. Event types are
plain integers here and everywhere in the core: dispatch is one lookup in a dict, and types that are
newer than this code are just numbers that are in no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure.core.errors import FatalError

__all__ = [
    "ATTRIBUTES",
    "COMMAND_EVENTS",
    "FINAL_EVENTS",
    "NAMES",
    "SWALLOWING_EVENTS",
    "TASK_COMPLETED",
    "TASK_SCHEDULED",
    "TASK_STARTED",
    "UPDATE_ACCEPTED",
    "WORKFLOW_STARTED",
    "attributes_of",
    "describe",
    "initiating_event_id",
    "time_of",
]

_PREFIX = "EVENT_TYPE_"
_SUFFIX = "_event_attributes"


def _type(name: str) -> int:
    return int(EventType.Value(_PREFIX + name))


def _types(*names: str) -> frozenset[int]:
    return frozenset(_type(name) for name in names)


WORKFLOW_STARTED = _type("WORKFLOW_EXECUTION_STARTED")
TASK_SCHEDULED = _type("WORKFLOW_TASK_SCHEDULED")
TASK_STARTED = _type("WORKFLOW_TASK_STARTED")
TASK_COMPLETED = _type("WORKFLOW_TASK_COMPLETED")
UPDATE_ACCEPTED = _type("WORKFLOW_EXECUTION_UPDATE_ACCEPTED")

NAMES: Mapping[int, str] = {
    int(number): name.removeprefix(_PREFIX) for name, number in EventType.items()
}
"""Names of event types for texts, such as `TIMER_STARTED`."""

ATTRIBUTES: Mapping[int, str] = {
    number: field
    for number, field in ((number, name.lower() + _SUFFIX) for number, name in NAMES.items())
    if field in HistoryEvent.DESCRIPTOR.fields_by_name
}
"""Event type to the name of the field that holds its attributes."""

COMMAND_EVENTS = _types(
    "ACTIVITY_TASK_SCHEDULED",
    "ACTIVITY_TASK_CANCEL_REQUESTED",
    "MARKER_RECORDED",
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED",
    "TIMER_STARTED",
    "TIMER_CANCELED",
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
    "WORKFLOW_PROPERTIES_MODIFIED",
    "NEXUS_OPERATION_SCHEDULED",
    "NEXUS_OPERATION_CANCEL_REQUESTED",
    "WORKFLOW_EXECUTION_COMPLETED",
    "WORKFLOW_EXECUTION_FAILED",
    "WORKFLOW_EXECUTION_CANCELED",
    "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
    "WORKFLOW_EXECUTION_UPDATE_ACCEPTED",
    "WORKFLOW_EXECUTION_UPDATE_REJECTED",
    "WORKFLOW_EXECUTION_UPDATE_COMPLETED",
)
"""Events that exist because a worker sent a command."""

FINAL_EVENTS = _types(
    "WORKFLOW_EXECUTION_COMPLETED",
    "WORKFLOW_EXECUTION_FAILED",
    "WORKFLOW_EXECUTION_CANCELED",
    "WORKFLOW_EXECUTION_TIMED_OUT",
    "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
    "WORKFLOW_EXECUTION_TERMINATED",
)
"""Events after which a run has ended."""

SWALLOWING_EVENTS = _types(
    "WORKFLOW_TASK_FAILED",
    "WORKFLOW_TASK_TIMED_OUT",
    "WORKFLOW_EXECUTION_TIMED_OUT",
    "WORKFLOW_EXECUTION_TERMINATED",
    "WORKFLOW_EXECUTION_CANCELED",
)
"""Events that, right after the start of a workflow task, make that task as if it never was."""

_SCHEDULED_EVENT_ID = (
    "ACTIVITY_TASK_STARTED",
    "ACTIVITY_TASK_COMPLETED",
    "ACTIVITY_TASK_FAILED",
    "ACTIVITY_TASK_TIMED_OUT",
    "ACTIVITY_TASK_CANCEL_REQUESTED",
    "ACTIVITY_TASK_CANCELED",
    "WORKFLOW_TASK_STARTED",
    "WORKFLOW_TASK_COMPLETED",
    "WORKFLOW_TASK_TIMED_OUT",
    "WORKFLOW_TASK_FAILED",
    "NEXUS_OPERATION_STARTED",
    "NEXUS_OPERATION_COMPLETED",
    "NEXUS_OPERATION_FAILED",
    "NEXUS_OPERATION_CANCELED",
    "NEXUS_OPERATION_TIMED_OUT",
    "NEXUS_OPERATION_CANCEL_REQUESTED",
    "NEXUS_OPERATION_CANCEL_REQUEST_COMPLETED",
    "NEXUS_OPERATION_CANCEL_REQUEST_FAILED",
)
_STARTED_EVENT_ID = ("TIMER_FIRED", "TIMER_CANCELED")
_INITIATED_EVENT_ID = (
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
    "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED",
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED",
    "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED",
    "START_CHILD_WORKFLOW_EXECUTION_FAILED",
    "CHILD_WORKFLOW_EXECUTION_STARTED",
    "CHILD_WORKFLOW_EXECUTION_COMPLETED",
    "CHILD_WORKFLOW_EXECUTION_FAILED",
    "CHILD_WORKFLOW_EXECUTION_CANCELED",
    "CHILD_WORKFLOW_EXECUTION_TIMED_OUT",
    "CHILD_WORKFLOW_EXECUTION_TERMINATED",
)

_INITIATING: Mapping[int, tuple[str, str]] = {
    _type(name): (ATTRIBUTES[_type(name)], field)
    for names, field in (
        (_SCHEDULED_EVENT_ID, "scheduled_event_id"),
        (_STARTED_EVENT_ID, "started_event_id"),
        (_INITIATED_EVENT_ID, "initiated_event_id"),
    )
    for name in names
}


def attributes_of(event: HistoryEvent) -> Any:
    """The attributes of the event; None when it has none or its type is not known here."""
    name = ATTRIBUTES.get(event.event_type)
    if name is None or not event.HasField(name):  # type: ignore[arg-type]
        return None
    return getattr(event, name)


def initiating_event_id(event: HistoryEvent) -> int | None:
    """Id of the event that began what this event is about; None when it begins something itself."""
    where = _INITIATING.get(event.event_type)
    if where is None:
        return None
    attributes, field = where
    found: int = getattr(getattr(event, attributes), field)
    return found


def time_of(event: HistoryEvent) -> int:
    """When the event was written, in nanoseconds. Raises `FatalError` if that is no time."""
    try:
        return event.event_time.ToNanoseconds()
    except ValueError as error:
        raise FatalError(f"{describe(event)} of history has no valid time: {error}") from error


def describe(event: HistoryEvent) -> str:
    """The event in a text for people, such as `TIMER_STARTED (event 5)`."""
    name = NAMES.get(event.event_type, f"type {int(event.event_type)}")
    return f"{name} (event {event.event_id})"
