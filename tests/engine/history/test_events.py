"""Events on disk: what they are, that they come back, and that damage is named."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.engine.errors import CorruptHistory
from perdure.engine.history.events import (
    INPUT_KEPT,
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
    decode_event,
    describe_event,
    encode_event,
    event_name,
    kept_input,
)
from perdure.ids import Id

CHILD = b"\x01" * 19
EXAMPLES: list[tuple[Event, str]] = [
    (
        ActivityEvent(
            1, 10, 20, "charge", input=b"i", attempts=2, failures=[AttemptFailure("E", "m", 15)]
        ),
        'activity "charge" (version 1)',
    ),
    (SignalSendEvent(1, 10, 20, "paid", CHILD, b"\x02" * 19), 'signal send "paid" (version 1)'),
    (MessageSendEvent(1, 10, 20, "news", "topic", b"b"), 'message send "news" (version 1)'),
    (
        SubWorkflowEvent(3, 10, 20, "ship", CHILD, {"a": "1", "b": 1, "c": True}),
        'sub workflow "ship" (version 3)',
    ),
    (LoopEvent(1, 10, 20, 7, b"state"), "loop (version 1)"),
    (SleepEvent(1, 10, 20, 99, SleepState.INTERRUPTED), "sleep (version 1)"),
    (BranchEvent(1, 10, 20), "branch (version 1)"),
    (
        RemovedEvent(2, 10, 20, EventKind.ACTIVITY, "charge"),
        'removed activity "charge" (version 2)',
    ),
    (RemovedEvent(2, 10, 20, EventKind.SLEEP), "removed sleep (version 2)"),
    (VersionCheckEvent(2, 10, 20, 1), "version check (version 2)"),
    (SignalsEvent(1, 10, 20, [ReceivedSignal(CHILD, "paid", b"", 5)]), "signals (version 1)"),
    (
        ChildResultEvent(1, 10, 20, CHILD, 3, failure=Failure("E", "m", cause=Failure("F", "n"))),
        "child result (version 1)",
    ),
    (CancelEvent(1, 10, 20, interrupts=True, reason="no"), "cancel (version 1)"),
    (TagsEvent(1, 10, 20, {"customer": 42}), "tags (version 1)"),
]


@pytest.mark.parametrize(("event", "text"), EXAMPLES)
def test_round_trip_and_text(event: Event, text: str) -> None:
    decoded = decode_event(encode_event(event))
    assert decoded == event
    assert type(decoded) is type(event)
    assert describe_event(decoded) == text


def test_every_kind_is_covered_and_keeps_its_number() -> None:
    assert {type(event) for event, _ in EXAMPLES} == set(get_args(Event))
    assert {event.KIND for event, _ in EXAMPLES} == set(EventKind)
    for event, _ in EXAMPLES:
        assert msgspec.msgpack.decode(encode_event(event))[:4] == [
            event.KIND.value,
            event.version,
            10,
            20,
        ]
    assert {kind.name: kind.value for kind in EventKind} == {
        "ACTIVITY": 0,
        "SIGNAL_SEND": 2,
        "MESSAGE_SEND": 3,
        "SUB_WORKFLOW": 4,
        "LOOP": 5,
        "SLEEP": 6,
        "BRANCH": 7,
        "REMOVED": 8,
        "VERSION_CHECK": 9,
        "SIGNALS": 10,
        "CHILD_RESULT": 11,
        "CANCEL": 12,
        "TAGS": 13,
    }


def test_tag_values_keep_their_types() -> None:
    event = TagsEvent(1, 0, 0, {"text": "1", "number": 1, "flag": True})
    decoded = decode_event(encode_event(event))
    assert isinstance(decoded, TagsEvent)
    assert [type(value) for value in decoded.tags.values()] == [str, int, bool]


def test_ids_are_plain_bytes_on_disk() -> None:
    child = Id.new()
    event = SubWorkflowEvent(1, 0, 0, "ship", child)
    assert encode_event(event) == encode_event(SubWorkflowEvent(1, 0, 0, "ship", bytes(child)))
    assert decode_event(encode_event(event)) == event


def test_what_is_no_part_of_an_event_is_refused() -> None:
    event = LoopEvent(1, 0, 0, 1, state=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot hold a object"):
        encode_event(event)


def test_rows_of_older_and_newer_releases_are_read() -> None:
    older = msgspec.msgpack.encode([0, 1, 10, 20, "charge"])
    assert decode_event(older) == ActivityEvent(1, 10, 20, "charge")
    newer = msgspec.msgpack.encode([7, 1, 10, 20, False, None, "a field of the future"])
    assert decode_event(newer) == BranchEvent(1, 10, 20)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode_event(EXAMPLES[0][0])[:-1],
        msgspec.msgpack.encode([1, 1, 10, 20]),
        msgspec.msgpack.encode([0, 1, 10]),
        msgspec.msgpack.encode([0, "1", 10, 20, "charge"]),
        b"\x95\x00\x01\x02\x03\xa1\xff",
    ],
)
def test_damage_names_the_location(data: bytes) -> None:
    with pytest.raises(CorruptHistory, match=r"\{4, 0\.1\}") as caught:
        decode_event(data, ((4,), (0, 1)))
    assert caught.value.location == ((4,), (0, 1))


@given(st.binary(max_size=40))
def test_any_bytes_are_an_event_or_corrupt(data: bytes) -> None:
    try:
        event = decode_event(data)
    except CorruptHistory:
        return
    assert isinstance(event, get_args(Event))


@given(st.sampled_from([event for event, _ in EXAMPLES]), st.data())
def test_a_changed_byte_is_an_event_or_corrupt(event: Event, data: st.DataObject) -> None:
    encoded = bytearray(encode_event(event))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_event(bytes(encoded))
    except CorruptHistory:
        return
    assert isinstance(decoded, get_args(Event))


def test_names() -> None:
    assert event_name(ActivityEvent(1, 0, 0, "charge")) == "charge"
    assert event_name(RemovedEvent(1, 0, 0, EventKind.SIGNAL_SEND, "paid")) == "paid"
    assert event_name(BranchEvent(1, 0, 0)) is None


def test_small_inputs_are_kept_and_large_ones_digested() -> None:
    small, large = b"x" * INPUT_KEPT, b"x" * (INPUT_KEPT + 1)
    assert kept_input(small) == (small, None)
    kept, digest = kept_input(large)
    assert kept is None
    assert digest is not None
    assert len(digest) == 8
    assert digest != kept_input(b"y" * (INPUT_KEPT + 1))[1]


def test_a_failed_attempt_is_counted_and_the_last_ten_are_kept() -> None:
    event = ActivityEvent(1, 10, 10, "charge", first_at=11)
    for number in range(1, 13):
        event = event.failed(
            AttemptFailure("E", str(number), 100 + number), retry_at=200 + number, progress=b"p"
        )
    assert event.attempts == 12
    assert [failure.message for failure in event.failures] == [str(n) for n in range(3, 13)]
    assert (event.created_at, event.first_at, event.at) == (10, 11, 112)
    assert (event.retry_at, event.progress) == (212, b"p")
    assert event.failed(AttemptFailure("E", "", 300), retry_at=None).progress is None
