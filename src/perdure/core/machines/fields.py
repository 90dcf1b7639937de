"""Moving fields between messages of lang and of the server, and comparing them with history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1.message_pb2 import Payload, Payloads
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.common.common_pb2 import VersioningIntent

from perdure.core.errors import NondeterminismError
from perdure.core.history.events import describe

__all__ = ["check_same", "copy_fields", "fill_map", "first_detail", "uses_workflow_build_id"]


def copy_fields(source: Message, target: Message, names: Iterable[str]) -> None:
    """Copies the message fields of these names that are set; both messages have them alike."""
    for name in names:
        if source.HasField(name):
            getattr(target, name).CopyFrom(getattr(source, name))


def fill_map(target: Any, source: Mapping[str, Payload]) -> None:
    """Copies a map of payloads; `target` is a map field (which has no writable item access)."""
    for key, value in source.items():
        target[key].CopyFrom(value)


def first_detail(details: Mapping[str, Payloads], name: str) -> Payload:
    """The payload of one detail of a marker. Raises `KeyError` if it is not there.

    Asking a map field for a missing key would add it to the event.
    """
    if name not in details or not details[name].payloads:
        raise KeyError(name)
    return details[name].payloads[0]


def uses_workflow_build_id(
    intent: VersioningIntent.ValueType, task_queue: str, own_task_queue: str
) -> bool:
    """If the new task should go to a worker of the workflow's own version."""
    if intent == VersioningIntent.COMPATIBLE:
        return True
    if intent == VersioningIntent.DEFAULT:
        return False
    return not task_queue or task_queue == own_task_queue


def check_same(event: HistoryEvent, what: str, recorded: str, wanted: str) -> None:
    """Raises `NondeterminismError` if history recorded another `what` than the code now has."""
    if recorded != wanted:
        raise NondeterminismError(
            f"{describe(event)} of history has the {what} {recorded!r}, but the workflow's code"
            f" now has {wanted!r}"
        )
