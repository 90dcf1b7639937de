"""Where everything of the engine lies in the store.

Owns the shape of every key. Keys are tuples in the store's tuple encoding, but they are put
together by hand from parts that are packed once: building a key is a few concatenations, because it
happens several times in every transaction.

The rows of one workflow are one region, ordered so that all that a run needs to start (record,
status, input, state, cancel request, active history) is one contiguous range, and what only
people look at (forgotten history, results of closed workflows) comes after it.

Invariant: `perdure.kv.tuple.unpack` reads every key that this module builds.
"""

from __future__ import annotations

from functools import lru_cache

from perdure.kv.tuple import pack

__all__ = ["ENGINE", "SILENCED_INDEX", "Keys", "WakeKind", "packed_integer"]

_WORKFLOW, _WAKE, _LEASE, _OPEN, _CLOSED, _TAG, _UNIQUE = range(1, 8)
_STATE_INDEX, _SIGNAL, _WAITER, _PRUNE, _GAUGE, _NODE = range(8, 14)

_ID = b"\x40"
_STAMP = b"\x33"

_RECORD = pack((0,))
_STATUS = pack((1,))
_INPUT = pack((2,))
_STATE = pack((3,))
_CANCEL = pack((4,))
_ACTIVE = pack((5, 0))
_FORGOTTEN = pack((5, 1))
_OUTPUT = pack((6,))
_FAILURE = pack((7,))
_PRUNED = pack((8,))
_SIGNAL_BODY = pack((9,))

_IS_OPEN = pack((0,)) + _ID
_IS_CLOSED = pack((1,)) + _ID

SILENCED_INDEX = 16
"""Stands in the place of a phase in the state index: a silenced workflow is in no other one."""

ENGINE = pack((1,))
"""The region of a store that belongs to the engine; the others are free for other layers."""

_SIX_BYTES_FROM = 1 << 40
_SIX_BYTES_BELOW = 1 << 48


class WakeKind:
    """Why a workflow is to be woken at that time.

    Kinds are apart in the index because only a deadline depends on the clock: what is to be woken
    at once is due even if the clock was set back since.
    """

    IMMEDIATE = 0
    DEADLINE = 1


_WAKE_KINDS = (pack((WakeKind.IMMEDIATE,)), pack((WakeKind.DEADLINE,)))


@lru_cache(maxsize=8192)
def packed_text(text: str) -> bytes:
    """The encoding of a name. Only for texts of which there are few: the result is kept."""
    return pack((text,))


def packed_integer(value: int) -> bytes:
    """The encoding of an integer, fast for the size of today's timestamps in milliseconds."""
    if _SIX_BYTES_FROM <= value < _SIX_BYTES_BELOW:
        return b"\x1a" + value.to_bytes(6, "big")
    return pack((value,))


class Keys:
    """Builds the keys of one engine, all under `prefix` (itself a packed tuple, or empty)."""

    __slots__ = (
        "_closed",
        "_gauge",
        "_lease",
        "_open",
        "_prune",
        "_signal",
        "_state_index",
        "_tag",
        "_unique",
        "_waiter",
        "_wake",
        "_workflow",
        "node",
        "prefix",
    )

    def __init__(self, prefix: bytes = ENGINE) -> None:
        def region(number: int) -> bytes:
            return pack((number,), prefix)

        self.prefix = prefix
        self.node = region(_NODE)
        """The region that belongs to the fleet."""
        self._workflow = region(_WORKFLOW) + _ID
        self._wake = region(_WAKE)
        self._lease = region(_LEASE) + _ID
        self._open = region(_OPEN)
        self._closed = region(_CLOSED)
        self._tag = region(_TAG)
        self._unique = region(_UNIQUE)
        self._state_index = region(_STATE_INDEX)
        self._signal = region(_SIGNAL) + _ID
        self._waiter = region(_WAITER) + _ID
        self._prune = region(_PRUNE)
        self._gauge = region(_GAUGE)

    # The region of one workflow.

    def workflow(self, workflow_id: bytes) -> bytes:
        """The prefix of all rows of one workflow."""
        return self._workflow + workflow_id

    def record(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _RECORD

    def status(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _STATUS

    def input(self, workflow_id: bytes) -> bytes:
        """Only inputs that are too large for the record have this row."""
        return self._workflow + workflow_id + _INPUT

    def state(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _STATE

    def cancel(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _CANCEL

    def history(self, workflow_id: bytes) -> bytes:
        """The prefix of the active history; a packed location follows."""
        return self._workflow + workflow_id + _ACTIVE

    def forgotten(self, workflow_id: bytes) -> bytes:
        """The prefix of the history of finished loop iterations, which is never replayed."""
        return self._workflow + workflow_id + _FORGOTTEN

    def output(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _OUTPUT

    def failure(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _FAILURE

    def pruned(self, workflow_id: bytes) -> bytes:
        return self._workflow + workflow_id + _PRUNED

    def signal_body(self, workflow_id: bytes, signal_id: bytes) -> bytes:
        """Only bodies that are too large for the row in the queue have this row."""
        return self._workflow + workflow_id + _SIGNAL_BODY + _ID + signal_id

    # Wakes and leases.

    def wakes(self, name: str) -> bytes:
        """The prefix of all wakes of workflows called `name`; the kind follows."""
        return self._wake + packed_text(name)

    def wakes_of(self, name: str, kind: int) -> bytes:
        """The prefix of the wakes of one kind; a packed timestamp follows."""
        return self._wake + packed_text(name) + _WAKE_KINDS[kind]

    def wake(self, name: str, at: int, workflow_id: bytes, kind: int) -> bytes:
        return (
            self._wake
            + packed_text(name)
            + _WAKE_KINDS[kind]
            + packed_integer(at)
            + _ID
            + workflow_id
        )

    def all_leases(self) -> bytes:
        """The prefix of all leases; 19 bytes of worker id and what `leases` says follow."""
        return self._lease

    def leases(self, worker: bytes) -> bytes:
        """The prefix of everything that `worker` runs; 19 bytes of workflow id follow."""
        return self._lease + worker + _ID

    def lease(self, worker: bytes, workflow_id: bytes) -> bytes:
        return self._lease + worker + _ID + workflow_id

    def waiters(self, child: bytes) -> bytes:
        """The prefix of the parents that wait for `child`; 19 bytes of id follow."""
        return self._waiter + child + _ID

    def waiter(self, child: bytes, parent: bytes) -> bytes:
        return self._waiter + child + _ID + parent

    # Finding workflows.

    def opened(self, name: str) -> bytes:
        """The prefix of open workflows called `name`; packed creation time and id follow."""
        return self._open + packed_text(name)

    def closed(self, name: str) -> bytes:
        return self._closed + packed_text(name)

    def listed(self, name: str, created_at: int, workflow_id: bytes, *, open: bool) -> bytes:
        """The row that lists a workflow by name and creation time."""
        region = self._open if open else self._closed
        return region + packed_text(name) + packed_integer(created_at) + _ID + workflow_id

    def tagged(self, name: str, key: str, value: str | int | bool, *, open: bool) -> bytes:
        """The prefix of the workflows with one tag; 19 bytes of workflow id follow."""
        tail = _IS_OPEN if open else _IS_CLOSED
        return pack((key, value), self._tag + packed_text(name)) + tail

    def unique(self, name: str, business_key: str) -> bytes:
        return pack((business_key,), self._unique + packed_text(name))

    def indexed(self, phase: int, name: str) -> bytes:
        """The prefix of the state index: packed time of the change and id follow."""
        return self._state_index + packed_integer(phase) + packed_text(name)

    def index(self, phase: int, name: str, changed_at: int, workflow_id: bytes) -> bytes:
        return self.indexed(phase, name) + packed_integer(changed_at) + _ID + workflow_id

    def prunable(self) -> bytes:
        """The prefix of the prune index: packed time of closing and id follow."""
        return self._prune

    def prune(self, closed_at: int, workflow_id: bytes) -> bytes:
        return self._prune + packed_integer(closed_at) + _ID + workflow_id

    # Signals and counters.

    def signals(self, workflow_id: bytes) -> bytes:
        """The prefix of everything that waits to be received by one workflow."""
        return self._signal + workflow_id

    def signal_queue(self, workflow_id: bytes, name: str) -> bytes:
        """The prefix of one queue; 10 bytes of version stamp, 2 of order and the id follow."""
        return self._signal + workflow_id + packed_text(name) + _STAMP

    def gauges(self) -> bytes:
        return self._gauge

    def gauge(self, kind: int, name: str) -> bytes:
        return self._gauge + packed_integer(kind) + packed_text(name)
