"""What a person needs to see when history and code disagree, added to the error as notes.

An error of a machine knows one event and one command. Around it there is more: what the event is
about, which events stand next to it, and which line of the workflow's code asked for the command.
The notes are plain lines; they are shown by Python's own traceback, by the text of the failed task
and by the official Replayer.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Final, NamedTuple

from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.events import NAMES, attributes_of

__all__ = ["CallSite", "message_of", "note_code", "note_history", "traceback_of"]

_NEIGHBOURS: Final = 3

_TELLING_FIELDS: Final = (
    "activity_id",
    "activity_type",
    "timer_id",
    "workflow_id",
    "workflow_type",
    "marker_name",
    "signal_name",
    "endpoint",
    "service",
    "operation",
)
"""Fields of attributes that say what an event is about, in the order of reading."""


class CallSite(NamedTuple):
    """The line of workflow code that asked for something."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}, in {self.function}"


def note_history(
    error: FatalError | NondeterminismError, events: Sequence[HistoryEvent], index: int
) -> None:
    """Say what the event at `index` is about and what stands around it."""
    error.add_note(f"  history has: {_explained(events[index])}")
    first = max(0, index - _NEIGHBOURS)
    names = (
        f"[{_short(event)}]" if first + offset == index else _short(event)
        for offset, event in enumerate(events[first : index + _NEIGHBOURS + 1])
    )
    error.add_note(f"  around it:   {', '.join(names)}")


def note_code(
    error: NondeterminismError, command: str | None, site: CallSite | None, *, is_last: bool
) -> None:
    """Say what the code asked for, and where; `is_last` if it asked for nothing after that."""
    if command is None:
        error.add_note("  code asked:  for nothing so far")
    else:
        place = f", at {site}" if site is not None else ""
        title = "code's last: " if is_last else "code asked:  "
        error.add_note(f"  {title}{command}{place}")
    error.add_note(
        "  way out:     code that has run must keep the order of what it asks for; guard the change"
        " with workflow.patched(), or deploy the earlier code again"
    )


def message_of(error: FatalError | NondeterminismError) -> str:
    """The text of the error with all its notes."""
    return "\n".join([error.message, *getattr(error, "__notes__", ())])


def traceback_of(error: BaseException) -> str:
    """The way through the core, as Python prints it."""
    return "".join(traceback.format_exception(error))


def _short(event: HistoryEvent) -> str:
    return f"{event.event_id} {NAMES.get(event.event_type, int(event.event_type))}"


def _explained(event: HistoryEvent) -> str:
    attributes = attributes_of(event)
    told = []
    for name in _TELLING_FIELDS:
        value = getattr(attributes, name, None)
        text = getattr(value, "name", value)
        if text:
            told.append(f"{name} {text!r}")
    return f"{_short(event)} ({', '.join(told)})" if told else _short(event)
