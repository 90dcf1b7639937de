"""The events of a history: what a finished step leaves on disk.

One event is one record. Records are msgpack arrays, ``[kind, version, created_at, at, ...]``: the
kind first, so that a reader can tell them apart, then the fields in the order of the class. A
reader ignores fields it does not know at the end and fills the missing ones with their defaults. So
fields may be appended (with a default), and never moved, removed or given another meaning; the
numbers of the kinds never change either. The last field of every record is `joined`: one that is
added later goes behind it, for which it has to be keyword-only.

Every event carries the version of the step that wrote it, ``created_at`` (when the step first
started) and ``at`` (when this record was written), both in milliseconds since the epoch. ``at``
feeds the workflow's own clock, which must be the same on replay.

Events are frozen: an update is a new record written in the place of the old one.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import ClassVar, Final, Self, TypeAlias, cast

import msgspec

from perdure.engine.errors import CorruptHistory
from perdure.engine.history.failure import AttemptFailure, Failure
from perdure.engine.history.location import Coordinate, Location
from perdure.engine.tags import Tags

__all__ = [
    "INPUT_KEPT",
    "ActivityEvent",
    "AttemptFailure",
    "BranchEvent",
    "CancelEvent",
    "ChildResultEvent",
    "Event",
    "EventKind",
    "Failure",
    "JoinMark",
    "LoopEvent",
    "MessageSendEvent",
    "ReceivedSignal",
    "RemovedEvent",
    "SignalSendEvent",
    "SignalsEvent",
    "SleepEvent",
    "SleepState",
    "SubWorkflowEvent",
    "TagsEvent",
    "VersionCheckEvent",
    "decode_event",
    "describe_event",
    "describe_step",
    "encode_event",
    "event_name",
    "kept_input",
]

INPUT_KEPT: Final = 4_096
"""Inputs up to this many bytes are kept in the event for people to read; of larger ones a digest.
Replay needs neither."""
FAILURES_KEPT: Final = 10
_DIGEST_SIZE: Final = 8


class EventKind(IntEnum):
    """What kind of step an event belongs to. The numbers are on disk.

    1 is not used: it was a single received signal, which is a `SIGNALS` of one.
    """

    ACTIVITY = 0
    SIGNAL_SEND = 2
    MESSAGE_SEND = 3
    SUB_WORKFLOW = 4
    LOOP = 5
    SLEEP = 6
    BRANCH = 7
    REMOVED = 8
    VERSION_CHECK = 9
    SIGNALS = 10
    CHILD_RESULT = 11
    CANCEL = 12
    TAGS = 13

    @property
    def label(self) -> str:
        """The word for it in texts for people."""
        return self.name.lower().replace("_", " ")


class SleepState(IntEnum):
    """How a sleep, or a wait with a bound, ended. The numbers are on disk."""

    NORMAL = 0
    """A wait that is not decided yet, or a plain sleep."""
    UNINTERRUPTED = 1
    """The wait ran into its bound: nothing was received."""
    INTERRUPTED = 2
    """Signals came: their `SIGNALS` event lies inside this one."""


class JoinMark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """To which join the step of an event belonged, so that a gap before it can be understood."""

    first: Coordinate
    """The place of the join's first member. All places from there to the event are of this join."""
    newest: int
    """The highest version among the members."""


class _Member(msgspec.Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    joined: JoinMark | None = None
    """Set on the members of a join, except the first."""


class _Event(_Member, array_like=True, frozen=True, gc=False):
    version: int
    created_at: int
    at: int


class ActivityEvent(_Event, tag=EventKind.ACTIVITY.value, array_like=True, frozen=True, gc=False):
    """An activity: finished if `output` is there, otherwise to be tried again at `retry_at`."""

    KIND: ClassVar[EventKind] = EventKind.ACTIVITY
    name: str
    input: bytes | None = None
    input_digest: bytes | None = None
    """Set instead of `input` when that is larger than `INPUT_KEPT`; see `kept_input`."""
    output: bytes | None = None
    attempts: int = 0
    """How many attempts were made, the successful one included."""
    failures: list[AttemptFailure] = []
    """The last ten, oldest first."""
    retry_at: int | None = None
    """When the next attempt is due, ms. None if there is none."""
    progress: bytes | None = None
    """What the last attempt reported with its last heartbeat."""
    first_at: int = 0
    """When the first attempt began, ms."""
    failure: Failure | None = None
    """Why it was given up: what the code got, whole, so that a replay gets the same."""

    def failed(
        self,
        failure: AttemptFailure,
        *,
        retry_at: int | None,
        progress: bytes | None = None,
        given_up: Failure | None = None,
    ) -> Self:
        """This event after one more failed attempt; `given_up` if that was the last."""
        return msgspec.structs.replace(
            self,
            at=failure.at,
            attempts=self.attempts + 1,
            failures=[*self.failures, failure][-FAILURES_KEPT:],
            retry_at=retry_at,
            progress=progress,
            failure=given_up,
        )


class SignalSendEvent(
    _Event, tag=EventKind.SIGNAL_SEND.value, array_like=True, frozen=True, gc=False
):
    """A signal was put into the queue of `target`, or could not be: see `missing`."""

    KIND: ClassVar[EventKind] = EventKind.SIGNAL_SEND
    name: str
    target: bytes | None
    """Id of the workflow; None if nothing matched the tags."""
    signal_id: bytes
    body: bytes | None = None
    body_digest: bytes | None = None
    missing: bool = False
    """The signal was not sent: there was no target, or it was closed."""
    closed_as: str = ""
    """The phase of a target that was closed."""


class MessageSendEvent(
    _Event, tag=EventKind.MESSAGE_SEND.value, array_like=True, frozen=True, gc=False
):
    """A message was about to be published: at most once, so it is recorded before."""

    KIND: ClassVar[EventKind] = EventKind.MESSAGE_SEND
    name: str
    topic: str
    body: bytes | None = None


class SubWorkflowEvent(
    _Event, tag=EventKind.SUB_WORKFLOW.value, array_like=True, frozen=True, gc=False
):
    """A child was dispatched, or an open one found under `unique`."""

    KIND: ClassVar[EventKind] = EventKind.SUB_WORKFLOW
    name: str
    id: bytes
    tags: Tags = {}
    input: bytes | None = None


class LoopEvent(_Event, tag=EventKind.LOOP.value, array_like=True, frozen=True, gc=False):
    """A loop as of its last commit: replay begins with `iteration` and `state`."""

    KIND: ClassVar[EventKind] = EventKind.LOOP
    iteration: int
    state: bytes
    output: bytes | None = None
    """The value of the loop, once it has ended."""


class SleepEvent(_Event, tag=EventKind.SLEEP.value, array_like=True, frozen=True, gc=False):
    """A sleep, or the bound of a wait."""

    KIND: ClassVar[EventKind] = EventKind.SLEEP
    deadline: int
    """ms"""
    state: SleepState = SleepState.NORMAL


class BranchEvent(_Event, tag=EventKind.BRANCH.value, array_like=True, frozen=True, gc=False):
    """The root of a place of its own: a closure in a join, or an inlined workflow."""

    KIND: ClassVar[EventKind] = EventKind.BRANCH
    abandoned: bool = False
    """It was not finished when its join ended with the error of another member."""


class RemovedEvent(_Event, tag=EventKind.REMOVED.value, array_like=True, frozen=True, gc=False):
    """The code no longer has the step of this kind and name that was here."""

    KIND: ClassVar[EventKind] = EventKind.REMOVED
    kind: EventKind
    name: str | None = None


class VersionCheckEvent(
    _Event, tag=EventKind.VERSION_CHECK.value, array_like=True, frozen=True, gc=False
):
    """The answer of a version check, for good."""

    KIND: ClassVar[EventKind] = EventKind.VERSION_CHECK
    inner: int
    """The version that the check answers with."""


class ReceivedSignal(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One signal taken from the queue."""

    id: bytes
    name: str
    body: bytes
    sent_at: int
    """ms, by the sender's clock"""


class SignalsEvent(_Event, tag=EventKind.SIGNALS.value, array_like=True, frozen=True, gc=False):
    """Signals that one step received together, oldest first in commit order."""

    KIND: ClassVar[EventKind] = EventKind.SIGNALS
    signals: list[ReceivedSignal]


class ChildResultEvent(
    _Event, tag=EventKind.CHILD_RESULT.value, array_like=True, frozen=True, gc=False
):
    """How a child ended, its death included."""

    KIND: ClassVar[EventKind] = EventKind.CHILD_RESULT
    child: bytes
    phase: int
    """The closed phase the child was found in."""
    output: bytes | None = None
    failure: Failure | None = None


class CancelEvent(_Event, tag=EventKind.CANCEL.value, array_like=True, frozen=True, gc=False):
    """A request to cancel the workflow reached its code here."""

    KIND: ClassVar[EventKind] = EventKind.CANCEL
    interrupts: bool
    """True: it lies inside a step that it cut short. False: it stands in the place of a step that
    had not begun."""
    reason: str = ""


class TagsEvent(_Event, tag=EventKind.TAGS.value, array_like=True, frozen=True, gc=False):
    """The workflow set its tags to these."""

    KIND: ClassVar[EventKind] = EventKind.TAGS
    tags: Tags


Event: TypeAlias = (
    ActivityEvent
    | SignalSendEvent
    | MessageSendEvent
    | SubWorkflowEvent
    | LoopEvent
    | SleepEvent
    | BranchEvent
    | RemovedEvent
    | VersionCheckEvent
    | SignalsEvent
    | ChildResultEvent
    | CancelEvent
    | TagsEvent
)


_NAMED: Final = (
    ActivityEvent,
    SubWorkflowEvent,
    SignalSendEvent,
    MessageSendEvent,
    RemovedEvent,
)


def _plain_bytes(value: object) -> bytes:
    """Ids are a class of their own in memory, plain bytes on disk."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"an event cannot hold a {type(value).__qualname__}")


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain_bytes)
_DECODER: Final[msgspec.msgpack.Decoder[Event]] = msgspec.msgpack.Decoder(cast("type", Event))


def encode_event(event: Event) -> bytes:
    """The event as stored."""
    return _ENCODER.encode(event)


def decode_event(data: bytes, location: Location = ()) -> Event:
    """The stored event. Raises `CorruptHistory`, which names `location`."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptHistory(location, str(error)) from error


def kept_input(payload: bytes) -> tuple[bytes | None, bytes | None]:
    """What an event keeps of an input or a body: itself, or its digest if it is large."""
    if len(payload) <= INPUT_KEPT:
        return payload, None
    return None, blake2b(payload, digest_size=_DIGEST_SIZE).digest()


def event_name(event: Event) -> str | None:
    """The name that a step is compared by, or None for kinds that have no name.

    For a removed step it is the name of what was removed.
    """
    if isinstance(event, _NAMED):
        return event.name
    return None


def describe_step(kind: EventKind, name: str | None, version: int) -> str:
    """``activity "charge" (version 1)``"""
    return (
        f"{kind.label} (version {version})"
        if name is None
        else (f'{kind.label} "{name}" (version {version})')
    )


def describe_event(event: Event) -> str:
    """What the event is, for people; in the form of `describe_step`."""
    if isinstance(event, RemovedEvent):
        return f"removed {describe_step(event.kind, event.name, event.version)}"
    return describe_step(event.KIND, event_name(event), event.version)
