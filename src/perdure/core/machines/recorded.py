"""The table of commands that have no outcome: history only says that they were there."""

from __future__ import annotations

from enum import IntEnum, auto

from perdure.core.machines.machine import Table

__all__ = ["SCHEDULE", "recorded_table"]


class State(IntEnum):
    CREATED = auto()
    COMMAND_CREATED = auto()
    COMMAND_RECORDED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND = auto()
    RECORDED = auto()


S, E = State, Event

SCHEDULE = Event.SCHEDULE
"""The first event of such a machine; its effect is the method `queue`."""


def recorded_table(name: str, command_type: int, event_type: int) -> Table:
    """The table of one kind of command, which is confirmed by one kind of event."""
    return Table(
        name,
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.COMMAND_CREATED, "queue"),
            (S.COMMAND_CREATED, E.COMMAND): (S.COMMAND_CREATED, None),
            (S.COMMAND_CREATED, E.RECORDED): (S.COMMAND_RECORDED, None),
        },
        initial=S.CREATED,
        final=(S.COMMAND_RECORDED,),
        history={event_type: E.RECORDED},
        commands={command_type: E.COMMAND},
    )
