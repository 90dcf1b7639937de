"""Patch: a marker that says which version of the code ran, and the text of such markers.

Two formats of the marker are read: json (id and deprecated together) and the one of the first
releases, two raw values.
"""

from __future__ import annotations

import json
from enum import IntEnum, auto
from typing import Final, NamedTuple

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.events import describe
from perdure.core.machines.fields import first_detail
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["PatchMachine", "PatchMarker", "read_patch_marker"]

_PATCH_MARKER: Final = "core_patch"
_DATA: Final = "patch-data"


class State(IntEnum):
    EXECUTING = auto()
    REPLAYING = auto()
    MARKER_COMMAND_CREATED = auto()
    MARKER_COMMAND_CREATED_REPLAYING = auto()
    NOTIFIED = auto()
    MARKER_COMMAND_RECORDED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_RECORD_MARKER = auto()
    MARKER_RECORDED = auto()


S, E = State, Event


class PatchMarker(NamedTuple):
    """What a marker says."""

    patch_id: str
    deprecated: bool


def read_patch_marker(event: HistoryEvent) -> PatchMarker | None:
    """None if the event is no marker of a patch. Raises `FatalError` if it cannot be read."""
    if event.event_type != EventType.EVENT_TYPE_MARKER_RECORDED:
        return None
    attributes = event.marker_recorded_event_attributes
    if attributes.marker_name != _PATCH_MARKER:
        return None
    details = attributes.details
    try:
        if _DATA in details:
            data = json.loads(first_detail(details, _DATA).data)
            return PatchMarker(str(data["id"]), bool(data["deprecated"]))
        patch_id = first_detail(details, "patch_id").data.decode()
        deprecated = first_detail(details, "deprecated").data
    except (ValueError, KeyError, TypeError) as unreadable:
        raise FatalError(f"{describe(event)} is a patch marker that cannot be read") from unreadable
    return PatchMarker(patch_id, deprecated not in (b"", b"\0", b"0", b"false"))


class PatchMachine(Machine):
    """One patch of lang, known by its id."""

    __slots__ = ("deprecated", "patch_id")

    table = Table(
        "Patch",
        State,
        Event,
        {
            (S.EXECUTING, E.SCHEDULE): (S.MARKER_COMMAND_CREATED, "queue"),
            (S.MARKER_COMMAND_CREATED, E.COMMAND_RECORD_MARKER): (S.NOTIFIED, None),
            (S.REPLAYING, E.SCHEDULE): (S.MARKER_COMMAND_CREATED_REPLAYING, "queue"),
            (S.MARKER_COMMAND_CREATED_REPLAYING, E.COMMAND_RECORD_MARKER): (S.NOTIFIED, None),
            (S.NOTIFIED, E.MARKER_RECORDED): (S.MARKER_COMMAND_RECORDED, "check_marker"),
        },
        initial=S.EXECUTING,
        final=(S.MARKER_COMMAND_RECORDED,),
        history={EventType.EVENT_TYPE_MARKER_RECORDED: E.MARKER_RECORDED},
        commands={CommandType.COMMAND_TYPE_RECORD_MARKER: E.COMMAND_RECORD_MARKER},
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        self.patch_id: str = command.body.patch_id
        self.deprecated: bool = command.body.deprecated
        if host.replaying:
            self.state = int(S.REPLAYING)
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        return f"Patch({self.patch_id!r})"

    def queue(self, _: None) -> None:
        self.host.queue_command(self, CommandType.COMMAND_TYPE_RECORD_MARKER, self._build)

    def check_marker(self, event: HistoryEvent) -> None:
        marker = read_patch_marker(event)
        if marker is None:
            raise NondeterminismError(
                f"history has {describe(event)} of another kind where the workflow's code now asks"
                f" for {self.describe()}"
            )
        if marker.patch_id != self.patch_id:
            raise NondeterminismError(
                f"{describe(event)} of history is about the patch {marker.patch_id!r}, but the"
                f" workflow's code now asks for {self.patch_id!r}"
            )

    def _build(self) -> Command:
        command = self.new_command(CommandType.COMMAND_TYPE_RECORD_MARKER)
        attributes = command.record_marker_command_attributes
        attributes.marker_name = _PATCH_MARKER
        data = attributes.details[_DATA].payloads.add()
        data.metadata["encoding"] = b"json/plain"
        text = {"id": self.patch_id, "deprecated": self.deprecated}
        data.data = json.dumps(text, separators=(",", ":")).encode()
        return command
