"""A record of everything a workflow stream was given, from which the same run of it can be made.

The stream is a pure function of its settings and its inputs. So a list of them, line by line as
JSON, is a whole bug report: `replay` feeds them to a new stream and checks that it does again what
it did then.

Messages are kept in protobuf's own bytes, because unknown fields and the difference between unset
and empty have to survive. Permits belong to the shell, which a replay has none of: they become
numbers.

A log holds the payloads of workflows. It is as secret as they are.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from google.protobuf import symbol_database
from google.protobuf.message import Message

from perdure.core.actions import Action
from perdure.core.evidence import CallSite
from perdure.core.inputs import (
    Completed,
    EvictionRequested,
    HeartbeatDue,
    Input,
    LocalCancelsDelivered,
    LocalResolved,
    NewTask,
    PageFetched,
    PageFetchFailed,
    PollersStopped,
    Problem,
    ProblemKind,
    Reported,
    ShutdownRequested,
)
from perdure.core.local_activities.requests import LocalOutcome, LocalResult
from perdure.core.stream_settings import StreamSettings
from perdure.core.trace import describe_action
from perdure.core.versioning import BuildId, DeploymentVersion
from perdure.core.workflow_stream import WorkflowStream
from perdure.errors import CallerError, PerdureError

__all__ = ["BrokenInputLog", "InputLog", "Replayed", "outcome_lines", "replay"]

_FORMAT: Final = 1

_RECORDS: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        StreamSettings,
        BuildId,
        DeploymentVersion,
        NewTask,
        PageFetched,
        PageFetchFailed,
        Completed,
        Reported,
        Problem,
        LocalResolved,
        LocalCancelsDelivered,
        HeartbeatDue,
        EvictionRequested,
        ShutdownRequested,
        PollersStopped,
        LocalResult,
        CallSite,
    )
}
_ENUMS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (LocalOutcome, ProblemKind)}


class BrokenInputLog(CallerError):
    """The log cannot be read; `line` counts from 1."""

    code = "core.broken_input_log"

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line} of the input log: {problem}")
        self.line = line
        self.problem = problem


class InputLog:
    """Makes the lines of a log, in order: `header` once, then `entry` for every input."""

    __slots__ = ("_permits",)

    def __init__(self) -> None:
        self._permits: dict[int, int] = {}

    def header(self, settings: StreamSettings) -> str:
        """The first line."""
        return json.dumps({"format": _FORMAT, "settings": self._encoded(settings)})

    def entry(self, given: Input, did: Iterable[str]) -> str:
        """One input, and in words what came of it."""
        return json.dumps({"input": self._encoded(given), "did": list(did)})

    def _encoded(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, Message):
            data = base64.b64encode(value.SerializeToString()).decode()
            return {"message": value.DESCRIPTOR.full_name, "data": data}
        if isinstance(value, enum.Enum):
            return {"enum": type(value).__name__, "value": value.value}
        if isinstance(value, CallSite):
            return {"record": "CallSite", "fields": value._asdict()}
        if isinstance(value, frozenset):
            return {"set": sorted(value)}
        if isinstance(value, tuple):
            return [self._encoded(part) for part in value]
        if is_dataclass(value) and type(value).__name__ in _RECORDS:
            inside = {part.name: self._encoded(getattr(value, part.name)) for part in fields(value)}
            return {"record": type(value).__name__, "fields": inside}
        return self._permits.setdefault(id(value), len(self._permits) + 1)


class Replayed(NamedTuple):
    """One input of a log, and what came of it now and when it was recorded."""

    given: Input
    did: list[str]
    did_then: list[str]

    @property
    def is_same(self) -> bool:
        return self.did == self.did_then


def replay(lines: Iterable[str]) -> Iterator[Replayed]:
    """Feed a log to a new stream, input by input. Raises `BrokenInputLog`."""
    stream: WorkflowStream | None = None
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if stream is None:
                if entry["format"] != _FORMAT:
                    raise BrokenInputLog(number, f"its format {entry['format']} is not known here")
                stream = WorkflowStream(_decoded(entry["settings"]))
                continue
            given, did_then = _decoded(entry["input"]), entry["did"]
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenInputLog(number, f"it cannot be read: {error!r}") from error
        yield Replayed(given, outcome_lines(stream, given), did_then)


def outcome_lines(stream: WorkflowStream, given: Input) -> list[str]:
    """Feed one input; in words what came of it, refusals included."""
    try:
        actions: list[Action] = stream.handle(given)
    except PerdureError as refusal:
        return [f"refused: {refusal.message}"]
    return [describe_action(action) for action in actions]


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(part) for part in value)
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    if "message" in value:
        kind = symbol_database.Default().GetSymbol(value["message"])
        return kind.FromString(base64.b64decode(value["data"]))
    if "enum" in value:
        return _ENUMS[value["enum"]](value["value"])
    if "set" in value:
        return frozenset(value["set"])
    inside = {name: _decoded(part) for name, part in value["fields"].items()}
    return _RECORDS[value["record"]](**inside)
