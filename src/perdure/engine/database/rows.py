"""What is stored about a workflow outside of its history: the rows' values.

Values are MessagePack arrays, so a field may be added at the end of a class (with a default) and
never moved or removed.

The record is written once and read whenever a workflow is taken or closed; therefore a large
input lies in a row of its own. The status is small, and its exact bytes are the fence of a running
workflow (see `perdure.engine.database.lease`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import msgspec

from perdure.engine.tags import Tags
from perdure.ids import Id

__all__ = [
    "CancelRequest",
    "PendingSignal",
    "Phase",
    "Prune",
    "Status",
    "WakeConditions",
    "WorkflowRecord",
    "decode",
    "encode",
]


class Phase(IntEnum):
    """Where a workflow is in its life. The numbers are stored."""

    SLEEPING = 0
    RUNNING = 1
    COMPLETE = 2
    DEAD = 3
    CANCELLED = 4
    TERMINATED = 5

    @property
    def closed(self) -> bool:
        """Whether the workflow has ended. A dead one has, but it can be revived."""
        return self >= Phase.COMPLETE


class Prune(IntEnum):
    """What pruning removes of a workflow some time after it closed. The numbers are stored."""

    ALL = 0
    HISTORY = 1
    NONE = 2


class WorkflowRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a workflow was dispatched with. Only `tags` can change.

    `input` is None in the stored row when `input_apart` says that it has a row of its own.
    Times are milliseconds since the epoch.
    """

    name: str
    created_at: int
    ray_id: Id
    tags: Tags
    parent: Id | None
    unique: str | None
    prune: Prune
    input_apart: bool
    input: bytes | None


class Status(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a workflow is doing now, and what wakes it.

    `immediate_at` and `deadline` mirror the workflow's rows in the wake index: a row there is
    valid only if the status says the same. `signals` and `children` are what a sleeping workflow
    waits for. A silenced workflow sleeps and keeps its conditions, but has no rows in the index.
    """

    phase: Phase
    epoch: int
    changed_at: int
    name: str
    worker: Id | None = None
    immediate_at: int | None = None
    deadline: int | None = None
    signals: tuple[str, ...] = ()
    children: tuple[Id, ...] = ()
    silenced_at: int | None = None


class PendingSignal(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A signal that was sent and not received yet. `sent_at` is by the sender's clock (ms).

    `apart` is only for the stored row: a body too large for the queue lies in a row of its own,
    `apart` is then its size in bytes and `body` is empty. Signals handed out have their body.
    """

    id: Id
    name: str
    body: bytes
    ray_id: Id
    sent_at: int
    apart: int = 0


class CancelRequest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Somebody asked the workflow to end at `at` (milliseconds), for this reason."""

    at: int
    reason: str


class WakeConditions(msgspec.Struct, frozen=True, gc=False):
    """What a run that goes to sleep waits for: any of these wakes it."""

    immediate: bool = False
    deadline: int | None = None
    signals: tuple[str, ...] = ()
    children: tuple[Id, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing could ever wake the workflow."""
        return not (self.immediate or self.deadline is not None or self.signals or self.children)

    @classmethod
    def union(cls, conditions: Iterable[WakeConditions]) -> WakeConditions:
        """What the members of a join wait for together: all signals and children, and the
        earliest deadline of those that have one."""
        conditions = list(conditions)
        deadlines = [each.deadline for each in conditions if each.deadline is not None]
        return cls(
            immediate=any(each.immediate for each in conditions),
            deadline=min(deadlines, default=None),
            signals=tuple(dict.fromkeys(name for each in conditions for name in each.signals)),
            children=tuple(dict.fromkeys(child for each in conditions for child in each.children)),
        )


def _to_plain(value: object) -> bytes:
    if isinstance(value, Id):
        return bytes(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored in a row of the engine")


def _from_plain(kind: type[Any], value: object) -> Id:
    if kind is Id and isinstance(value, bytes):
        return Id(value)
    raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
encode = _encoder.encode
"""Give the bytes of any value of this module."""


class decode:  # noqa: N801
    """Read the bytes of one kind of value. Raise `msgspec.MsgspecError` or `InvalidId`."""

    record = msgspec.msgpack.Decoder(WorkflowRecord, dec_hook=_from_plain).decode
    status = msgspec.msgpack.Decoder(Status, dec_hook=_from_plain).decode
    pending_signal = msgspec.msgpack.Decoder(PendingSignal, dec_hook=_from_plain).decode
    cancel_request = msgspec.msgpack.Decoder(CancelRequest, dec_hook=_from_plain).decode
