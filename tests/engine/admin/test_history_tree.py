"""Rows of a history as a tree for people."""

from __future__ import annotations

import pytest

from perdure.codec import encode
from perdure.engine.admin.history_tree import history_tree, progress_of
from perdure.engine.admin.views import HistoryNode
from perdure.engine.history.events import (
    ActivityEvent,
    AttemptFailure,
    BranchEvent,
    CancelEvent,
    ChildResultEvent,
    Event,
    EventKind,
    Failure,
    LoopEvent,
    MessageSendEvent,
    ReceivedSignal,
    RemovedEvent,
    SignalSendEvent,
    SignalsEvent,
    SleepEvent,
    SleepState,
    SubWorkflowEvent,
    TagsEvent,
    VersionCheckEvent,
    encode_event,
)
from perdure.engine.history.location import pack_location, parse_location
from perdure.ids import Id

ID = Id.new()
ID_BYTES = bytes(ID)


def row(location: str, event: Event) -> tuple[bytes, bytes]:
    return pack_location(parse_location(location)), encode_event(event)


def shape(nodes: list[HistoryNode]) -> list[object]:
    """Locations, nested like the tree."""
    return [
        [node.location, *shape(node.children)] if node.children else node.location for node in nodes
    ]


def test_events_nest_below_their_parents_in_order() -> None:
    branch = BranchEvent(1, 1, 1)
    rows = [
        row(location, branch)
        for location in ("{10}", "{2}", "{1.1}", "{1}", "{2, 1}", "{2, 2}", "{2, 2, 1}")
    ]
    assert shape(history_tree(rows)) == [
        "{1}",
        "{1.1}",
        ["{2}", "{2, 1}", ["{2, 2}", "{2, 2, 1}"]],
        "{10}",
    ]


def test_forgotten_iterations_are_marked_and_hang_below_their_loop() -> None:
    active = [
        row("{1}", LoopEvent(1, 1, 1, iteration=2, state=encode(None))),
        row("{1, 3}", BranchEvent(1, 1, 1)),
    ]
    forgotten = [row("{1, 1}", BranchEvent(1, 1, 1)), row("{1, 2}", BranchEvent(1, 1, 1))]

    [loop] = history_tree(active, forgotten)

    assert [(node.location, node.forgotten) for node in loop.children] == [
        ("{1, 1}", True),
        ("{1, 2}", True),
        ("{1, 3}", False),
    ]


def test_an_orphan_hangs_below_its_nearest_ancestor() -> None:
    rows = [
        row("{1}", BranchEvent(1, 1, 1)),
        row("{1, 2, 3}", BranchEvent(1, 1, 1)),
        row("{7, 1}", BranchEvent(1, 1, 1)),
    ]
    assert shape(history_tree(rows)) == [["{1}", "{1, 2, 3}"], "{7, 1}"]


def test_unreadable_rows_do_not_hide_the_others() -> None:
    key = pack_location(parse_location("{2}"))
    rows = [row("{1}", BranchEvent(1, 1, 1)), (key, b"nonsense"), (b"\xff\xff", b"")]

    nodes = history_tree(rows)

    assert sorted(node.kind for node in nodes) == ["branch", "unreadable", "unreadable"]
    damaged = next(node for node in nodes if node.location == "{2}")
    assert damaged.details["problem"]


def test_a_value_that_cannot_be_read_says_so() -> None:
    event = ActivityEvent(1, 1, 1, name="charge", output=b"\xc1", attempts=1)
    [node] = history_tree([row("{1}", event)])
    assert "unreadable value of 1 bytes" in node.details["output"]


DETAILS: list[tuple[Event, str, str | None, dict[str, object]]] = [
    (
        ActivityEvent(
            2, 1, 1, name="charge", input=encode(1), output=encode("ok"), attempts=2,
            failures=[AttemptFailure("ValueError", "no", 5)],
        ),
        "activity", "charge",
        {
            "state": "done", "attempts": 2, "input": 1, "output": "ok",
            "failures": [{"type": "ValueError", "message": "no", "at": 5}],
        },
    ),
    (
        ActivityEvent(
            1, 1, 1, name="charge", input_digest=b"\x01\xff", retry_at=9, progress=encode(0.5)
        ),
        "activity", "charge",
        {"state": "running", "attempts": 0, "input_digest": "01ff", "retry_at": 9, "progress": 0.5},
    ),
    (
        ActivityEvent(
            1, 1, 1, name="charge", attempts=1, retry_at=9, failures=[AttemptFailure("E", "", 1)]
        ),
        "activity", "charge",
        {
            "state": "retrying", "attempts": 1, "retry_at": 9,
            "failures": [{"type": "E", "message": "", "at": 1}],
        },
    ),
    (
        ActivityEvent(
            1, 1, 1, name="charge", attempts=1, failures=[AttemptFailure("E", "", 1)]
        ),
        "activity", "charge",
        {"state": "failed", "attempts": 1, "failures": [{"type": "E", "message": "", "at": 1}]},
    ),
    (
        SignalSendEvent(1, 1, 1, name="paid", target=ID_BYTES, signal_id=ID_BYTES, body=encode(1)),
        "signal send", "paid",
        {"target": str(ID), "signal_id": str(ID), "body": 1},
    ),
    (
        SignalSendEvent(1, 1, 1, name="paid", target=None, signal_id=ID_BYTES, missing=True),
        "signal send", "paid",
        {"signal_id": str(ID), "missing": True},
    ),
    (
        SignalSendEvent(
            1, 1, 1, name="paid", target=ID_BYTES, signal_id=ID_BYTES, missing=True,
            closed_as="complete",
        ),
        "signal send", "paid",
        {"target": str(ID), "signal_id": str(ID), "missing": True, "closed_as": "complete"},
    ),
    (
        MessageSendEvent(1, 1, 1, name="news", topic="all", body=encode(1)),
        "message send", "news",
        {"topic": "all", "body": 1},
    ),
    (
        SubWorkflowEvent(1, 1, 1, name="ship", id=ID_BYTES, tags={"a": 1}, input=encode(2)),
        "sub workflow", "ship",
        {"workflow_id": str(ID), "tags": {"a": 1}, "input": 2},
    ),
    (
        ChildResultEvent(1, 1, 1, child=ID_BYTES, phase=2, output=encode(3)),
        "child result", None,
        {"workflow_id": str(ID), "state": "complete", "output": 3},
    ),
    (
        LoopEvent(1, 1, 1, iteration=4, state=encode(1), output=encode(2)),
        "loop", None,
        {"iteration": 4, "ended": True, "output": 2},
    ),
    (
        SleepEvent(1, 1, 1, deadline=7, state=SleepState.INTERRUPTED),
        "sleep", None,
        {"deadline": 7, "state": "interrupted"},
    ),
    (BranchEvent(1, 1, 1), "branch", None, {}),
    (
        RemovedEvent(1, 1, 1, kind=EventKind.ACTIVITY, name="old"),
        "removed", "old",
        {"removed": "activity"},
    ),
    (VersionCheckEvent(1, 1, 1, inner=3), "version check", None, {"answer": 3}),
    (
        SignalsEvent(
            1, 1, 1, signals=[ReceivedSignal(id=ID_BYTES, name="paid", body=encode(1), sent_at=2)]
        ),
        "signals", None,
        {"signals": [{"id": str(ID), "name": "paid", "body": 1, "sent_at": 2}]},
    ),
    (
        CancelEvent(1, 1, 1, interrupts=True, reason="enough"),
        "cancel", None,
        {"interrupts": True, "reason": "enough"},
    ),
    (TagsEvent(1, 1, 1, tags={"a": "b"}), "tags", None, {"tags": {"a": "b"}}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "kind", "name", "details"), DETAILS)
def test_what_is_told_of_each_kind(
    event: Event, kind: str, name: str | None, details: dict[str, object]
) -> None:
    [node] = history_tree([row("{1}", event)])

    assert (node.kind, node.name, node.version) == (kind, name, event.version)
    assert node.details == details


def test_every_kind_of_event_is_told() -> None:
    assert {event.KIND for event, *_ in DETAILS} == set(EventKind)


def test_the_failure_of_a_child_is_told() -> None:
    failure = Failure("ValueError", "boom", cause=Failure("KeyError", "x"))
    event = ChildResultEvent(1, 1, 1, child=ID_BYTES, phase=3, failure=failure)
    [node] = history_tree([row("{1}", event)])

    assert node.details["failure"]["message"] == "boom"
    assert node.details["failure"]["cause"]["type"] == "KeyError"


def test_progress_leaves_out_what_has_ended() -> None:
    failures = [AttemptFailure("E", "", 1)]
    given_up = ActivityEvent(1, 1, 1, name="gave_up", attempts=1, failures=failures)
    rows = [
        row("{1}", ActivityEvent(1, 1, 1, name="done", output=encode(1), attempts=1)),
        row("{2}", given_up),
        row("{3}", LoopEvent(1, 1, 1, iteration=1, state=encode(1), output=encode(1))),
        row("{4}", SleepEvent(1, 1, 1, deadline=5)),
        (b"\xff", b""),
        (pack_location(parse_location("{5}")), b"nonsense"),
    ]  # fmt: skip
    assert progress_of(rows) == []
