"""A store with workflows in every state, made without an engine: what a worker would do to it."""

import asyncio
from collections.abc import Sequence
from functools import partial

from perdure.clock import VirtualClock
from perdure.codec import encode
from perdure.engine.admin.admin import Admin
from perdure.engine.database import finish
from perdure.engine.database.dispatch import Dispatch, dispatch
from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease, due, take
from perdure.engine.database.rows import Prune, WakeConditions
from perdure.engine.database.steps import write_event
from perdure.engine.history.events import Event
from perdure.engine.history.failure import Failure
from perdure.engine.history.location import pack_location, parse_location
from perdure.engine.tags import Tags
from perdure.ids import Id
from perdure.kv import Database
from perdure.pubsub import MemoryPubSub

WORKER = Id.new()


class World:
    """An open store, the admin interface on it, and what a worker would do to it."""

    def __init__(self, database: Database, clock: VirtualClock, pubsub: MemoryPubSub) -> None:
        self.database = database
        self.clock = clock
        self.pubsub = pubsub
        self.keys = Keys()
        self.admin = Admin(database, self.keys, pubsub, clock)
        self.rung: list[str] = []

    def listen(self, *subjects: str) -> None:
        """Remember publications on these subjects in `rung`."""
        for subject in subjects:
            self.pubsub.subscribe(subject, partial(self._heard, subject))

    async def heard(self) -> None:
        """Let what was published arrive."""
        await asyncio.sleep(0)
        await self.pubsub.flush()

    def _heard(self, subject: str, _payload: bytes) -> None:
        self.rung.append(subject)

    async def dispatch(
        self,
        name: str = "fulfil",
        value: object = None,
        *,
        tags: Tags | None = None,
        unique: bool | str = False,
        parent: Id | None = None,
        prune: Prune = Prune.ALL,
    ) -> Id:
        self.clock.advance(1)
        request = Dispatch(
            id=Id.new(),
            name=name,
            input=encode(value),
            tags=tags or {},
            ray_id=Id.new(),
            unique=unique,
            parent=parent,
            prune=prune,
        )
        return (await dispatch(self.database, self.keys, request, self.clock.now())).id

    async def lease(self, workflow_id: Id, name: str = "fulfil") -> Lease:
        now = self.clock.now()
        wakes = await due(self.database, self.keys, name, now + 1, 1000)
        own = [wake for wake in wakes if wake.workflow_id == workflow_id]
        [lease] = await take(self.database, self.keys, own, WORKER, now)
        return lease

    async def sleeping(
        self, wake: WakeConditions, name: str = "fulfil", *, tags: Tags | None = None
    ) -> Id:
        workflow_id = await self.dispatch(name, tags=tags)
        await self.suspend(await self.lease(workflow_id, name), wake)
        return workflow_id

    async def suspend(self, lease: Lease, wake: WakeConditions) -> None:
        await finish.suspend(self.database, self.keys, lease, wake, self.clock.now())

    async def dead(self, message: str, name: str = "fulfil", *, unique: bool | str = False) -> Id:
        workflow_id = await self.dispatch(name, unique=unique)
        lease = await self.lease(workflow_id, name)
        failure = Failure("ValueError", message, stack="Traceback...\n", code="")
        await finish.fail(self.database, self.keys, lease, failure, self.clock.now())
        return workflow_id

    async def complete(
        self, output: object = None, name: str = "fulfil", *, prune: Prune = Prune.ALL
    ) -> Id:
        workflow_id = await self.dispatch(name, prune=prune)
        lease = await self.lease(workflow_id, name)
        await finish.complete(self.database, self.keys, lease, encode(output), self.clock.now())
        return workflow_id

    async def record(self, lease: Lease, events: Sequence[tuple[str, Event]]) -> None:
        for location, event in events:
            key = pack_location(parse_location(location))
            await write_event(self.database, lease, key, event)
