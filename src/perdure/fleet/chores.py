"""Elected chores: work that one node does for the whole fleet, such as publishing gauges.

A chore is a lock with an owner, an epoch and a time to live. The owner renews it while it wants to
go on; when it stops renewing, another node takes over. Deleting or renewing checks the owner, so
nobody can take away another's lock. The epoch grows with every change of owner and is never reset,
also not by a release: `fence` in a transaction makes that transaction fail when the chore has
changed hands, however long the process was paused in between.

Expiry is judged with `HeartbeatWatch`, so clocks need not agree.
"""

from __future__ import annotations

import math

import msgspec

from perdure.clock import Clock
from perdure.errors import WorldError
from perdure.fleet.errors import InvalidSetting
from perdure.fleet.heartbeat import HeartbeatWatch
from perdure.ids import Id
from perdure.kv import Database, Subspace, Transaction
from perdure.kv.errors import CorruptValue

__all__ = ["Chore", "ChoreLost"]


class ChoreLost(WorldError):
    """A node went on with a chore that it does not hold (any more)."""

    code = "fleet.chore_lost"

    def __init__(self, chore: str, node: Id) -> None:
        super().__init__(f"node {node} does not hold the chore {chore!r}; hold it again first")
        self.chore = chore
        self.node = node


class _Lock(msgspec.Struct, array_like=True, frozen=True):
    owner: bytes
    epoch: int
    renewed_at: int


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Lock)
_NOBODY = b""


class Chore:
    """This node's side of one chore. `ttl` is in seconds. Raises `InvalidSetting`."""

    def __init__(
        self, db: Database, subspace: Subspace, name: str, node: Id, clock: Clock, *, ttl: float
    ) -> None:
        if not 0 < ttl < math.inf:
            raise InvalidSetting("ttl", ttl, "it must be a positive time")
        self.name = name
        self.node = node
        self.ttl = ttl
        self._db = db
        self._key = subspace.pack((name,))
        self._clock = clock
        self._watch = HeartbeatWatch(clock, ttl)
        self._epoch: int | None = None
        self._held_since = -math.inf

    @property
    def held(self) -> bool:
        """Whether this node may believe that it holds the chore: it renewed within the ttl."""
        return self._epoch is not None and self._clock.monotonic() - self._held_since < self.ttl

    @property
    def epoch(self) -> int | None:
        """The epoch of our last hold, or None when we do not hold it."""
        return self._epoch

    async def hold(self) -> bool:
        """Take the chore, or renew it; return whether this node holds it now."""
        began = self._clock.monotonic()
        epoch = await self._db.run(self._take, name="chore_hold", idempotent=True)
        self._epoch = epoch
        if epoch is not None:
            self._held_since = began
        return epoch is not None

    async def release(self) -> None:
        """Give the chore back, if it is ours; another node can take it at once."""
        epoch, self._epoch = self._epoch, None

        async def body(tx: Transaction) -> None:
            lock = await self._read(tx)
            if lock is not None and lock.owner == self.node and lock.epoch == epoch:
                tx.set(self._key, _encode(_Lock(_NOBODY, lock.epoch, lock.renewed_at)))

        await self._db.run(body, name="chore_release", idempotent=True)

    async def fence(self, tx: Transaction) -> None:
        """Make `tx` fail unless this node still holds the chore when it commits.

        Raises `ChoreLost` when it does not hold it already now.
        """
        lock = await self._read(tx)
        if lock is None or lock.owner != self.node or lock.epoch != self._epoch:
            raise ChoreLost(self.name, self.node)

    async def _take(self, tx: Transaction) -> int | None:
        lock = await self._read(tx)
        if lock is None:
            epoch = 1
        elif lock.owner == self.node and lock.epoch == self._epoch:
            epoch = lock.epoch
        elif lock.owner in (_NOBODY, self.node) or self._owner_is_gone(lock):
            epoch = lock.epoch + 1
        else:
            return None
        tx.set(self._key, _encode(_Lock(bytes(self.node), epoch, self._clock.now())))
        return epoch

    def _owner_is_gone(self, lock: _Lock) -> bool:
        owner = Id(lock.owner)
        self._watch.keep_only([owner])
        return self._watch.is_stale(owner, lock.renewed_at)

    async def _read(self, tx: Transaction) -> _Lock | None:
        value = await tx.get(self._key)
        if value is None:
            return None
        try:
            return _decoder.decode(value)
        except msgspec.MsgspecError as error:
            raise CorruptValue(self._key, str(error)) from error
