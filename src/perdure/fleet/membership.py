"""Nodes of one kind: joining, pinging, who is active, who is lost.

Rows, all in one subspace:

| key             | value        | written by                                              |
|-----------------|--------------|---------------------------------------------------------|
| NODE, node      | `_Node`      | its node, once; again if somebody had given it up       |
| PING, node      | `_Ping`      | its node, at every ping                                 |
| ACTIVE, at, node| empty        | its node, at every ping while it takes work             |
| VERSION_PIN     | number       | an operator                                             |

Invariant: a node has at most one ACTIVE row, the one its PING row names; both change in one
transaction. So deleting a node leaves nothing behind, and the active index needs no collection of
its own: whoever forgets a lost node deletes all of its rows.

A lost node that comes back simply pings again. Its former leases were taken over meanwhile, and the
fence of each run, not the fleet, keeps it from writing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from perdure.clock import Clock
from perdure.fleet.errors import InvalidSetting
from perdure.fleet.heartbeat import HeartbeatWatch
from perdure.ids import Id
from perdure.kv import Database, Subspace, Transaction
from perdure.kv.errors import CorruptValue

__all__ = ["Fleet", "Member"]

_NODE, _PING, _ACTIVE, _VERSION_PIN = range(4)

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """An active node: one that pinged within the last two intervals and takes work."""

    node: Id
    names: frozenset[str]
    version: int = 0


class _Node(msgspec.Struct, array_like=True, frozen=True):
    names: frozenset[str]
    version: int
    joined_at: int


class _Ping(msgspec.Struct, array_like=True, frozen=True):
    at: int
    active: bool


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_node_decoder = msgspec.msgpack.Decoder(_Node)
_ping_decoder = msgspec.msgpack.Decoder(_Ping)
_pin_decoder = msgspec.msgpack.Decoder(int)


def _decode(decoder: msgspec.msgpack.Decoder[Record], key: bytes, value: bytes) -> Record:
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptValue(key, str(error)) from error


class Fleet:
    """This node's place among the nodes of its kind.

    `names` is what this node serves and `version` the age of its code: among the active nodes that
    serve a name only the newest take it (see `assignment`). `ping_interval` and `lost_after` are
    in seconds. Raises `InvalidSetting`.
    """

    def __init__(
        self,
        db: Database,
        subspace: Subspace,
        node: Id,
        clock: Clock,
        *,
        names: frozenset[str],
        version: int = 0,
        ping_interval: float = 10.0,
        lost_after: float = 30.0,
    ) -> None:
        if not 0 < ping_interval < math.inf:
            raise InvalidSetting("ping_interval", ping_interval, "it must be a positive time")
        if not 2 * ping_interval <= lost_after < math.inf:
            rule = "it must be at least two ping intervals, one ping may be late"
            raise InvalidSetting("lost_after", lost_after, rule)
        self.own = Member(node, names, version)
        self.ping_interval = ping_interval
        self.lost_after = lost_after
        self._db = db
        self._clock = clock
        self._nodes = subspace[_NODE]
        self._pings = subspace[_PING]
        self._active = subspace[_ACTIVE]
        self._pin_key = subspace.pack((_VERSION_PIN,))
        self._watch = HeartbeatWatch(clock, lost_after)
        self._members: tuple[Member, ...] = ()
        self._version_pin: int | None = None
        self._takes_work = True
        self._left = False

    @property
    def node(self) -> Id:
        """The id of this node."""
        return self.own.node

    @property
    def members(self) -> tuple[Member, ...]:
        """The active members at the last ping, sorted by id. A hint, never the truth."""
        return self._members

    @property
    def version_pin(self) -> int | None:
        """The pinned version at the last ping; see `pin_version`."""
        return self._version_pin

    async def join(self) -> None:
        """Appear among the members and start taking work."""
        self._left = False
        self._takes_work = True
        await self.ping()

    async def ping(self) -> None:
        """Say that this node is alive and refresh the view of the others; nothing after `leave`."""
        await self._db.run(self._ping, name="fleet_ping", idempotent=True)

    async def retire(self) -> None:
        """Stay alive but attract no more work: for a node that finishes what it has."""
        self._takes_work = False
        await self.ping()

    async def leave(self) -> None:
        """Disappear at once. Whatever this node still holds is up for takeover."""
        self._left = True

        async def body(tx: Transaction) -> None:
            await self._delete(tx, self.node)

        await self._db.run(body, name="fleet_leave", idempotent=True)
        self._members = tuple(member for member in self._members if member.node != self.node)

    async def lost(self, known: Iterable[Id] = ()) -> list[Id]:
        """Return the other nodes that stopped pinging, sorted.

        `known` are nodes that something else still mentions, such as leases: those without any row
        have left or were forgotten, and are returned too.
        """
        own = self.node
        beats = await self._beats()
        self._watch.keep_only(beats)
        lost = {node for node, beat in beats.items() if self._watch.is_stale(node, beat)}
        lost.update(node for node in known if node not in beats and node != own)
        return sorted(lost)

    async def others(self) -> list[Id]:
        """Return all other nodes that have joined and not left, alive or not, sorted."""
        return sorted(await self._beats())

    async def _beats(self) -> dict[Id, int]:
        """Return the last ping of every other node (epoch ms)."""

        async def body(tx: Transaction) -> list[tuple[bytes, bytes]]:
            return await tx.get_range(*self._pings.range(), snapshot=True)

        beats: dict[Id, int] = {}
        for key, value in await self._db.run(body, name="fleet_beats"):
            (node,) = self._pings.unpack(key)
            assert isinstance(node, Id)
            beats[node] = _decode(_ping_decoder, key, value).at
        beats.pop(self.node, None)
        return beats

    async def forget(self, node: Id, *, surely_dead: bool = False) -> bool:
        """Delete the rows of a lost node, after taking over what it held.

        Returns False, and deletes nothing, when it has pinged since it was found lost. That is not
        looked at when it is known by other means to be dead.
        """

        async def body(tx: Transaction) -> bool:
            key = self._pings.pack((node,))
            value = await tx.get(key)
            if value is not None and not surely_dead:
                beat = _decode(_ping_decoder, key, value).at
                if not self._watch.is_stale(node, beat):
                    return False
            await self._delete(tx, node)
            return True

        return await self._db.run(body, name="fleet_forget", idempotent=True)

    async def pin_version(self, version: int | None) -> None:
        """Make the whole fleet prefer nodes of at most this version; None lifts the pin.

        The way out when a stray newer node draws the work to itself.
        """

        async def body(tx: Transaction) -> None:
            if version is None:
                tx.clear(self._pin_key)
            else:
                tx.set(self._pin_key, _encode(version))

        await self._db.run(body, name="fleet_pin_version", idempotent=True)
        self._version_pin = version

    async def _ping(self, tx: Transaction) -> None:
        if self._left:
            return
        node = self.node
        now = self._clock.now()
        key = self._pings.pack((node,))
        previous = await tx.get(key)
        if previous is None:
            record = _Node(self.own.names, self.own.version, now)
            tx.set(self._nodes.pack((node,)), _encode(record))
        else:
            self._clear_active(tx, node, _decode(_ping_decoder, key, previous))
        tx.set(key, _encode(_Ping(now, self._takes_work)))
        if self._takes_work:
            tx.set(self._active.pack((now, node)), b"")
        await self._view(tx)

    async def _delete(self, tx: Transaction, node: Id) -> None:
        key = self._pings.pack((node,))
        value = await tx.get(key)
        if value is not None:
            self._clear_active(tx, node, _decode(_ping_decoder, key, value))
        tx.clear(key)
        tx.clear(self._nodes.pack((node,)))

    def _clear_active(self, tx: Transaction, node: Id, ping: _Ping) -> None:
        if ping.active:
            tx.clear(self._active.pack((ping.at, node)))

    async def _view(self, tx: Transaction) -> None:
        """Read who is active, with snapshot reads so that pings never conflict with each other."""
        # Times far in the future come from a wrong clock; they count as little as times long past.
        now = self._clock.now()
        window = round(2 * self.ping_interval * 1000)
        begin = self._active.pack((now - window,))
        end = self._active.pack((now + window,)) + b"\xff"
        known = {member.node: member for member in self._members}
        known[self.node] = self.own
        members = []
        for key, _ in await tx.get_range(begin, end, snapshot=True):
            _at, node = self._active.unpack(key)
            assert isinstance(node, Id)
            member = known.get(node) or await self._member(tx, node)
            if member is not None:
                members.append(member)
        pin = await tx.get(self._pin_key, snapshot=True)
        self._version_pin = None if pin is None else _decode(_pin_decoder, self._pin_key, pin)
        self._members = tuple(sorted(members, key=lambda member: member.node))

    async def _member(self, tx: Transaction, node: Id) -> Member | None:
        key = self._nodes.pack((node,))
        value = await tx.get(key, snapshot=True)
        if value is None:
            return None
        try:
            record = _decode(_node_decoder, key, value)
        except CorruptValue:
            # One damaged row must not end everybody's pings: that node gets no share of the work.
            return None
        return Member(node, record.names, record.version)
