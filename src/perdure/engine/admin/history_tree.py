"""Rows of a history as a tree of `HistoryNode`s, for people.

Unlike a replay, this reads whatever is there: a row that cannot be decoded becomes a node of kind
`unreadable` with the reason, so the history of a quarantined workflow can be looked at. An event
whose parent is missing hangs below its nearest ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.engine.admin.values import failure_view, plain_value
from perdure.engine.admin.views import HistoryNode, ProgressView
from perdure.engine.database.rows import Phase
from perdure.engine.errors import CorruptHistory
from perdure.engine.history.events import (
    ActivityEvent,
    BranchEvent,
    CancelEvent,
    ChildResultEvent,
    Event,
    LoopEvent,
    MessageSendEvent,
    RemovedEvent,
    SignalSendEvent,
    SignalsEvent,
    SleepEvent,
    SubWorkflowEvent,
    TagsEvent,
    VersionCheckEvent,
    decode_event,
    event_name,
)
from perdure.engine.history.location import (
    InvalidLocation,
    Location,
    format_location,
    unpack_location,
)
from perdure.ids import Id

__all__ = ["history_tree", "progress_of"]

Row = tuple[bytes, bytes]


def history_tree(active: Iterable[Row], forgotten: Iterable[Row] = ()) -> list[HistoryNode]:
    """The tree of the events in `rows` (packed location, record), in the order of locations."""
    nodes = [_node(key, value, forgotten=False) for key, value in active]
    nodes += [_node(key, value, forgotten=True) for key, value in forgotten]
    nodes.sort(key=lambda pair: pair[0])
    known = dict(nodes)
    roots: list[HistoryNode] = []
    for location, node in nodes:
        _siblings(location, known, roots).append(node)
    return roots


def _siblings(
    location: Location, known: dict[Location, HistoryNode], roots: list[HistoryNode]
) -> list[HistoryNode]:
    for depth in range(len(location) - 1, 0, -1):
        parent = known.get(location[:depth])
        if parent is not None:
            return parent.children
    return roots


def progress_of(rows: Iterable[Row]) -> list[ProgressView]:
    """What is under way in the active history: loops that have not ended and unfinished activities.

    Outer loops come before what runs inside them.
    """
    found: list[ProgressView] = []
    for key, value in rows:
        try:
            location = unpack_location(key)
            event = decode_event(value, location)
        except (CorruptHistory, InvalidLocation):
            continue
        if isinstance(event, LoopEvent) and event.output is None:
            found.append(
                ProgressView(
                    location=format_location(location),
                    what="loop",
                    iteration=event.iteration,
                    at=event.at,
                )
            )
        elif isinstance(event, ActivityEvent) and _unfinished(event):
            found.append(
                ProgressView(
                    location=format_location(location),
                    what="activity",
                    name=event.name,
                    attempt=event.attempts + 1,
                    details=plain_value(event.progress),
                    at=event.at,
                )
            )
    return found


def _unfinished(event: ActivityEvent) -> bool:
    """No result, and not given up: one that is given up has failures and no next attempt."""
    return event.output is None and (event.retry_at is not None or not event.failures)


def _node(key: bytes, value: bytes, *, forgotten: bool) -> tuple[Location, HistoryNode]:
    try:
        location = unpack_location(key)
    except InvalidLocation as error:
        return (), _unreadable(f"key {key.hex()}", error.problem, forgotten=forgotten)
    try:
        event = decode_event(value, location)
    except CorruptHistory as error:
        return location, _unreadable(format_location(location), error.reason, forgotten=forgotten)
    return location, HistoryNode(
        location=format_location(location),
        kind=event.KIND.label,
        name=event_name(event),
        version=event.version,
        created_at=event.created_at,
        at=event.at,
        forgotten=forgotten,
        details=_details(event),
        children=[],
    )


def _unreadable(location: str, problem: str, *, forgotten: bool) -> HistoryNode:
    return HistoryNode(
        location=location,
        kind="unreadable",
        forgotten=forgotten,
        details={"problem": problem},
        children=[],
    )


def _details(event: Event) -> dict[str, Any]:
    """What is particular to the kind of event; absent values are left out."""
    return {name: value for name, value in _all_details(event).items() if value is not None}


def _all_details(event: Event) -> dict[str, Any]:  # noqa: PLR0912 - one per kind
    match event:
        case ActivityEvent():
            return _activity(event)
        case SignalSendEvent():
            return {
                "target": _id(event.target),
                "signal_id": _id(event.signal_id),
                "body": plain_value(event.body),
                "body_digest": _hex(event.body_digest),
                "missing": event.missing or None,
                "closed_as": event.closed_as or None,
            }
        case MessageSendEvent():
            return {"topic": event.topic, "body": plain_value(event.body)}
        case SubWorkflowEvent():
            return {
                "workflow_id": _id(event.id),
                "tags": event.tags or None,
                "input": plain_value(event.input),
            }
        case LoopEvent():
            ended = event.output is not None
            return {
                "iteration": event.iteration,
                "ended": ended,
                "state": None if ended else plain_value(event.state),
                "output": plain_value(event.output),
            }
        case SleepEvent():
            return {"deadline": event.deadline, "state": event.state.name.lower()}
        case RemovedEvent():
            return {"removed": event.kind.label}
        case VersionCheckEvent():
            return {"answer": event.inner}
        case SignalsEvent():
            return {
                "signals": [
                    {
                        "id": _id(signal.id),
                        "name": signal.name,
                        "body": plain_value(signal.body),
                        "sent_at": signal.sent_at,
                    }
                    for signal in event.signals
                ]
            }
        case ChildResultEvent():
            failure = event.failure
            return {
                "workflow_id": _id(event.child),
                "state": Phase(event.phase).name.lower(),
                "output": plain_value(event.output),
                "failure": None if failure is None else msgspec.to_builtins(failure_view(failure)),
            }
        case CancelEvent():
            return {"interrupts": event.interrupts, "reason": event.reason or None}
        case TagsEvent():
            return {"tags": event.tags}
        case BranchEvent():
            return {}


def _activity_state(event: ActivityEvent) -> str:
    if event.output is not None:
        return "done"
    if event.retry_at is None:
        return "failed"
    # An attempt that reports progress is stored as due again, in case its process dies.
    return "retrying" if event.failures else "running"


def _activity(event: ActivityEvent) -> dict[str, Any]:
    return {
        "state": _activity_state(event),
        "attempts": event.attempts,
        "input": plain_value(event.input),
        "input_digest": _hex(event.input_digest),
        "output": plain_value(event.output),
        "failures": [
            {"type": failure.kind, "message": failure.message, "at": failure.at}
            for failure in event.failures
        ]
        or None,
        "retry_at": event.retry_at,
        "progress": plain_value(event.progress),
    }


def _id(raw: bytes | None) -> str | None:
    return None if raw is None else str(Id(raw))


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()
