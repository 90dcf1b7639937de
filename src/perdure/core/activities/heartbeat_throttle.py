"""How often the heartbeats of one activity go to the server.

The first heartbeat is sent at once. Then, for one interval, only the newest is kept; it is sent
when the interval is over, which begins the next one. If none came meanwhile, the throttle rests and
the next heartbeat goes out at once again.

The table below is the whole machine: it has no clock, its owner says when the interval elapsed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from temporalio.api.common.v1.message_pb2 import Payloads

__all__ = ["HeartbeatThrottle", "heartbeat_interval"]

_SHARE_OF_TIMEOUT: Final = 0.8


def heartbeat_interval(timeout: float, *, default: float, maximum: float) -> float:
    """Seconds between heartbeats of an activity with this heartbeat time-out (0: none)."""
    return min(timeout * _SHARE_OF_TIMEOUT if timeout else default, maximum)


class _State(enum.Enum):
    RESTING = "resting"
    WAITING = "waiting"
    KEEPING = "keeping"


class _Event(enum.Enum):
    RECORDED = "recorded"
    ELAPSED = "elapsed"


_SEND: Final = True
_KEEP: Final = False

_TABLE: Final[Mapping[tuple[_State, _Event], tuple[_State, bool]]] = {
    (_State.RESTING, _Event.RECORDED): (_State.WAITING, _SEND),
    (_State.WAITING, _Event.RECORDED): (_State.KEEPING, _KEEP),
    (_State.KEEPING, _Event.RECORDED): (_State.KEEPING, _KEEP),
    (_State.WAITING, _Event.ELAPSED): (_State.RESTING, _KEEP),
    (_State.KEEPING, _Event.ELAPSED): (_State.WAITING, _SEND),
}


class HeartbeatThrottle:
    """The heartbeats of one activity; see the module."""

    __slots__ = ("_state", "latest")

    def __init__(self) -> None:
        self._state = _State.RESTING
        self.latest: Payloads | None = None
        """Details of the newest heartbeat, sent or not."""

    @property
    def has_unsent(self) -> bool:
        """The newest heartbeat is kept for the end of the interval."""
        return self._state is _State.KEEPING

    def record(self, details: Payloads) -> bool:
        """A new heartbeat. True if it is to be sent now."""
        self.latest = details
        return self._on(_Event.RECORDED)

    def elapsed(self) -> bool:
        """The interval is over. True if the newest heartbeat is to be sent now."""
        return self._on(_Event.ELAPSED)

    def _on(self, event: _Event) -> bool:
        self._state, send = _TABLE[self._state, event]
        return send
