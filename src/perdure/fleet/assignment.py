"""Who takes which work: pure, and the same answer on every node that sees the same members.

Nodes do not talk about work. Each computes the owner of every due item from a stable hash of the
item's id and its due time. The id matters: hashing the time alone would send everything that is due
in the same millisecond (a batch, a cron job) to one node. The hash is BLAKE2, because Python's own
`hash` differs between processes.

Hashing decides only who comes first. An item that its owner leaves lying is open to the next node
after `UNDERSTUDY_AFTER` and to everybody after `ANYONE_AFTER`, so a dead owner, a shedding one or a
disagreement about the members costs seconds, never the item. Two nodes that both take an item race
for its lease in the store, where exactly one wins.

The version gate: of the active members that serve a name only those with the newest version take
it, so that a deploy drains to the new code and a run never goes back to older code. The gate is per
name: a new kind of node does not starve names it does not serve. A pin caps the version: the newest
version not above the pin counts, or the oldest there is when all are above.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from perdure.fleet.membership import Member

__all__ = ["ANYONE_AFTER", "UNDERSTUDY_AFTER", "Assignment", "stable_hash"]

UNDERSTUDY_AFTER: Final = 2.0
"""Seconds after which the node next to the owner takes an item too."""

ANYONE_AFTER: Final = 10.0
"""Seconds after which every node of the right version takes an item."""


def stable_hash(entity: bytes, due_at: int) -> int:
    """Return 64 bits that are the same in every process and release. `due_at` is in ms."""
    due = due_at.to_bytes(8, "big", signed=True)
    return int.from_bytes(blake2b(entity + due, digest_size=8).digest(), "big")


class Assignment:
    """The rule of one node for one view of the fleet. Build a new one when the members change."""

    def __init__(
        self, members: Sequence[Member], own: Member, *, version_pin: int | None = None
    ) -> None:
        self._members = members
        self._own = own
        self._version_pin = version_pin
        self._places: dict[str, _Place] = {}

    def takes(self, name: str, entity: bytes, due_at: int, now: int) -> bool:
        """Return whether this node takes the item `entity` of that name, due at `due_at` (ms).

        True when nobody active serves the name: then the view is at fault, not this node. False
        for a name that this node does not serve.
        """
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = self._find_place(name)
        if not place.eligible:
            return False
        waited = (now - due_at) / 1000
        if place.is_alone or waited >= ANYONE_AFTER:
            return True
        if place.index is None:
            return False
        behind = (place.index - stable_hash(entity, due_at)) % place.nodes
        return behind == 0 or (behind == 1 and waited >= UNDERSTUDY_AFTER)

    def _find_place(self, name: str) -> _Place:
        serving = sorted(
            (member for member in self._members if name in member.names), key=lambda m: m.node
        )
        if name not in self._own.names:
            return _Place(eligible=False, index=None, nodes=len(serving))
        if not serving:
            return _Place(eligible=True, index=0, nodes=1)
        version = self._gate([member.version for member in serving])
        nodes = [member.node for member in serving if member.version == version]
        own = self._own
        index = nodes.index(own.node) if own.node in nodes else None
        # A node that is not in the view (a late ping) may help out, but never with other code.
        eligible = self._gate([*(member.version for member in serving), own.version]) == own.version
        return _Place(eligible=eligible, index=index, nodes=len(nodes))

    def _gate(self, versions: list[int]) -> int:
        pin = self._version_pin
        allowed = [version for version in versions if pin is None or version <= pin]
        return max(allowed) if allowed else min(versions)


class _Place:
    """Where this node stands among those that serve one name; `index` None means not in view."""

    __slots__ = ("eligible", "index", "is_alone", "nodes")

    def __init__(self, *, eligible: bool, index: int | None, nodes: int) -> None:
        self.eligible = eligible
        self.index = index
        self.nodes = nodes
        self.is_alone = nodes == 1 and index == 0
