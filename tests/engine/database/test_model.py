"""Random sequences of operations against a plain model, and a recount of every index and counter.

After each step the whole store is read and everything that is derived (wake rows, leases, lists,
tag rows, unique keys, waiters, the prune index, gauges) is computed again from records, statuses
and queues, and must be equal row by row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.engine.database.world import START, World, at, signals_event

from perdure.engine.database import (
    control,
    finish,
    lease as leasing,
    prune as pruning,
    signals,
    tags as tagging,
)
from perdure.engine.database.keys import SILENCED_INDEX, WakeKind
from perdure.engine.database.lease import Lease
from perdure.engine.database.rows import Phase, Prune, Status, WakeConditions, decode
from perdure.engine.errors import (
    LeaseLost,
    UniqueKeyTaken,
    WorkflowBusy,
    WorkflowFinished,
    WorkflowNotFound,
)
from perdure.engine.history.failure import Failure
from perdure.engine.tags import Tags
from perdure.ids import Id
from perdure.kv import Database
from perdure.kv.memory import MemoryDriver
from perdure.kv.tuple import unpack

T = TypeVar("T")
NAMES = st.sampled_from(["order", "invoice"])
SIGNALS = st.sampled_from(["paid", "sent"])
TAGS = st.dictionaries(
    st.sampled_from(["a", "b"]), st.sampled_from([1, "1", True, "ü\0"]), max_size=2
)
NUMBERS = st.integers(0, 20)


@dataclass
class Modelled:
    """What the model knows of a workflow."""

    phase: Phase = Phase.SLEEPING
    due: bool = True
    silenced: bool = False
    waits: set[str] = field(default_factory=set)
    children: set[Id] = field(default_factory=set)
    pending: list[tuple[str, bytes]] = field(default_factory=list)
    cancel: bool = False
    lease: Lease | None = None
    unique: bool = False
    prune: Prune = Prune.ALL


def any_in(*phases: Phase) -> Callable[[Workflows], bool]:
    """The precondition that some workflow is in one of these phases."""
    return lambda self: self.pick(0, *phases) is not None


class Workflows(RuleBasedStateMachine):
    """The operations, each done to the store and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model: dict[Id, Modelled] = {}
        self.names: dict[Id, str] = {}
        self.stale: list[Lease] = []
        self.world = self.do(self.make_world())

    async def make_world(self) -> World:
        return World(Database(MemoryDriver()))

    def do(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(operation)

    def teardown(self) -> None:
        self.do(self.world.db.close())
        self.runner.close()

    def pick(self, number: int, *phases: Phase) -> Id | None:
        ids = [i for i, m in self.model.items() if not phases or m.phase in phases]
        return ids[number % len(ids)] if ids else None

    def running(self, number: int) -> tuple[Id, Modelled, Lease] | None:
        workflow_id = self.pick(number, Phase.RUNNING)
        if workflow_id is None:
            return None
        found = self.model[workflow_id]
        assert found.lease is not None
        return workflow_id, found, found.lease

    def closes(self, workflow_id: Id, phase: Phase) -> None:
        found = self.model[workflow_id]
        found.phase, found.due, found.silenced = phase, False, False
        found.waits, found.children, found.unique = set(), set(), found.unique
        if found.lease is not None:
            self.stale.append(found.lease)
        found.lease = None
        if phase is not Phase.DEAD:
            found.pending = []
        for parent in self.model.values():
            if parent.phase is Phase.SLEEPING and workflow_id in parent.children:
                parent.due = True

    @initialize(unique=st.lists(st.booleans(), min_size=4, max_size=8))
    def begin_with_some_that_run(self, unique: list[bool]) -> None:
        for number, one in enumerate(unique):
            name = ("order", "invoice")[number % 2]
            self.dispatch(name=name, tags={"a": 1}, unique=one, prune=Prune.ALL)
            if number == 3:
                self.take(name="order")
                self.take(name="invoice")

    @rule(
        name=NAMES,
        tags=TAGS,
        unique=st.booleans(),
        prune=st.sampled_from(list(Prune)),
    )
    def dispatch(self, name: str, tags: Tags, unique: bool, prune: Prune) -> None:
        holders = [
            i
            for i, m in self.model.items()
            if m.unique and self.names[i] == name and not m.phase.closed
        ]
        workflow_id = self.do(
            self.world.dispatch(
                name=name, tags=tags, unique="key" if unique else False, prune=prune
            )
        )
        if unique and holders:
            assert [workflow_id] == holders
        else:
            assert workflow_id not in self.model
            self.model[workflow_id] = Modelled(unique=unique, prune=prune)
            self.names[workflow_id] = name

    @precondition(any_in(Phase.SLEEPING))
    @rule(name=NAMES)
    def take(self, name: str) -> None:
        leases = self.do(self.world.take(name))
        expected = {
            i
            for i, m in self.model.items()
            if self.names[i] == name and m.phase is Phase.SLEEPING and m.due and not m.silenced
        }
        assert {lease.workflow_id for lease in leases} == expected
        for lease in leases:
            found = self.model[lease.workflow_id]
            found.phase, found.due, found.lease = Phase.RUNNING, False, lease
            found.waits, found.children = set(), set()

    @precondition(any_in(Phase.RUNNING))
    @rule(number=NUMBERS, names=st.sets(SIGNALS), child=st.none() | NUMBERS, deadline=st.booleans())
    def suspend(self, number: int, names: set[str], child: int | None, deadline: bool) -> None:
        picked = self.running(number)
        if picked is None:
            return
        workflow_id, found, lease = picked
        chosen = None if child is None else self.pick(child)
        children = () if chosen is None or chosen == workflow_id else (chosen,)
        conditions = WakeConditions(
            deadline=START * 2 if deadline else None,
            signals=tuple(sorted(names)),
            children=children,
        )
        if conditions.empty:
            return
        at_once = self.do(
            finish.suspend(self.world.db, self.world.keys, lease, conditions, self.world.now)
        )
        due = (
            found.cancel
            or any(name in names for name, _ in found.pending)
            or any(self.model[child_id].phase.closed for child_id in children)
        )
        assert at_once == due
        self.stale.append(lease)
        found.phase, found.lease, found.due = Phase.SLEEPING, None, due
        found.waits, found.children = (set(), set()) if due else (names, set(children))

    @precondition(any_in(Phase.RUNNING))
    @rule(number=NUMBERS, phase=st.sampled_from([Phase.COMPLETE, Phase.DEAD, Phase.CANCELLED]))
    def close(self, number: int, phase: Phase) -> None:
        picked = self.running(number)
        if picked is None:
            return
        workflow_id, _, lease = picked
        world = self.world
        if phase is Phase.COMPLETE:
            self.do(finish.complete(world.db, world.keys, lease, b"", world.now))
        elif phase is Phase.DEAD:
            failure = Failure("ValueError", "no")
            self.do(finish.fail(world.db, world.keys, lease, failure, world.now))
        else:
            self.do(finish.cancelled(world.db, world.keys, lease, None, None, world.now))
        self.closes(workflow_id, phase)

    @precondition(any_in(*Phase))
    @rule(number=NUMBERS)
    def terminate(self, number: int) -> None:
        workflow_id = self.pick(number)
        if workflow_id is None:
            return
        ending = control.terminate(self.world.db, self.world.keys, workflow_id, "", self.world.now)
        if self.model[workflow_id].phase.closed:
            with pytest.raises(WorkflowFinished):
                self.do(ending)
        else:
            self.do(ending)
            self.closes(workflow_id, Phase.TERMINATED)

    @precondition(any_in(*Phase))
    @rule(number=NUMBERS, name=SIGNALS, large=st.booleans())
    def publish(self, number: int, name: str, large: bool) -> None:
        workflow_id = self.pick(number)
        if workflow_id is None:
            return
        found = self.model[workflow_id]
        body = bytes(5_000) if large else b"%d" % self.world.now
        publishing = self.world.publish(workflow_id, name, body)
        if found.phase.closed:
            with pytest.raises(WorkflowFinished):
                self.do(publishing)
            return
        woken = self.do(publishing)
        wakes = name in found.waits and not found.due and not found.silenced
        assert (woken is not None) == wakes
        found.due = found.due or wakes
        found.pending.append((name, body))

    @precondition(any_in(Phase.RUNNING))
    @rule(number=NUMBERS, names=st.sets(SIGNALS, min_size=1), limit=st.integers(1, 3))
    def receive(self, number: int, names: set[str], limit: int) -> None:
        picked = self.running(number)
        if picked is None:
            return
        _, found, lease = picked
        expected = [each for each in found.pending if each[0] in names][:limit]
        taken = self.do(
            signals.take_signals(
                self.world.db, self.world.keys, lease, sorted(names), limit, at(1), signals_event
            )
        )
        assert [(signal.name, signal.body) for signal in taken] == expected
        for each in expected:
            found.pending.remove(each)

    @precondition(any_in(Phase.SLEEPING, Phase.RUNNING))
    @rule(number=NUMBERS)
    def request_cancel(self, number: int) -> None:
        workflow_id = self.pick(number, Phase.SLEEPING, Phase.RUNNING)
        if workflow_id is None:
            return
        found = self.model[workflow_id]
        self.do(
            control.request_cancel(self.world.db, self.world.keys, workflow_id, "", self.world.now)
        )
        asleep = found.phase is Phase.SLEEPING and not found.silenced and not found.cancel
        found.due = found.due or asleep
        found.cancel = True

    @precondition(any_in(Phase.SLEEPING, Phase.RUNNING))
    @rule(number=NUMBERS)
    def silence(self, number: int) -> None:
        workflow_id = self.pick(number, Phase.SLEEPING, Phase.RUNNING)
        if workflow_id is None:
            return
        found = self.model[workflow_id]
        silencing = control.silence(self.world.db, self.world.keys, workflow_id, self.world.now)
        if found.phase is Phase.RUNNING:
            with pytest.raises(WorkflowBusy):
                self.do(silencing)
            return
        assert self.do(silencing) is not found.silenced
        found.silenced = True

    @precondition(any_in(Phase.SLEEPING))
    @rule(number=NUMBERS)
    def unsilence(self, number: int) -> None:
        workflow_id = self.pick(number, Phase.SLEEPING)
        if workflow_id is None:
            return
        found = self.model[workflow_id]
        woken = self.do(
            control.unsilence(self.world.db, self.world.keys, workflow_id, self.world.now)
        )
        assert (woken is not None) == found.silenced
        found.due = found.due or found.silenced
        found.silenced = False

    @precondition(any_in(Phase.DEAD))
    @rule(number=NUMBERS)
    def revive(self, number: int) -> None:
        workflow_id = self.pick(number, Phase.DEAD)
        if workflow_id is None:
            return
        found = self.model[workflow_id]
        taken = found.unique and any(
            m.unique and not m.phase.closed and self.names[i] == self.names[workflow_id]
            for i, m in self.model.items()
        )
        reviving = control.revive(self.world.db, self.world.keys, workflow_id, self.world.now)
        if taken:
            with pytest.raises(UniqueKeyTaken):
                self.do(reviving)
        else:
            self.do(reviving)
            found.phase, found.due = Phase.SLEEPING, True

    @precondition(any_in(Phase.RUNNING))
    @rule()
    def failover(self) -> None:
        self.do(
            leasing.release_lost(
                self.world.db, self.world.keys, self.world.worker, self.world.now, 100
            )
        )
        for found in self.model.values():
            if found.lease is not None:
                self.stale.append(found.lease)
                found.phase, found.lease, found.due = Phase.SLEEPING, None, True

    @precondition(any_in(*Phase))
    @rule(number=NUMBERS, tags=TAGS)
    def set_tags(self, number: int, tags: Tags) -> None:
        workflow_id = self.pick(number)
        if workflow_id is not None:
            self.do(tagging.set_tags(self.world.db, self.world.keys, workflow_id, tags))

    @precondition(any_in(Phase.COMPLETE, Phase.CANCELLED, Phase.TERMINATED))
    @rule()
    def prune(self) -> None:
        self.do(pruning.prune(self.world.db, self.world.keys, START * 2, 100, self.world.now))
        closed = {Phase.COMPLETE, Phase.CANCELLED, Phase.TERMINATED}
        for workflow_id, found in list(self.model.items()):
            if found.phase in closed and found.prune is Prune.ALL:
                del self.model[workflow_id]
            elif found.phase in closed and found.prune is Prune.HISTORY:
                found.prune = Prune.NONE

    @precondition(any_in(Phase.DEAD, Phase.COMPLETE))
    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        workflow_id = self.pick(number, Phase.DEAD, Phase.COMPLETE)
        if workflow_id is not None:
            self.do(control.delete(self.world.db, self.world.keys, workflow_id))
            del self.model[workflow_id]

    @precondition(lambda self: self.stale)
    @rule(number=NUMBERS)
    def a_stale_lease_writes_nothing(self, number: int) -> None:
        lease = self.stale[number % len(self.stale)]
        with pytest.raises(LeaseLost):
            self.do(finish.complete(self.world.db, self.world.keys, lease, b"late", self.world.now))

    @rule()
    def nobody_is_found_under_a_new_id(self) -> None:
        with pytest.raises(WorkflowNotFound):
            self.do(self.world.publish(Id.new()))

    @invariant()
    def everything_derived_equals_a_recount(self) -> None:
        recount = Recount(self.world, self.do(self.world.rows()))
        assert recount.phases == {i: (m.phase, m.silenced) for i, m in self.model.items()}
        assert recount.pending == {i: len(m.pending) for i, m in self.model.items() if m.pending}
        pruned = {i for i, m in self.model.items() if m.prune is Prune.NONE}
        recount.check(self.do(self.world.gauges()), pruned)


class Recount:
    """Everything that is derived, computed from what is not."""

    def __init__(self, world: World, rows: list[tuple[bytes, bytes]]) -> None:
        self.keys = world.keys
        self.rows = dict(rows)
        self.statuses: dict[Id, Status] = {}
        self.pending: dict[Id, int] = {}
        self.signals: dict[str, int] = {}
        workflows = self.keys.workflow(b"")
        queues = self.keys.signals(b"")
        for key, value in rows:
            if key.startswith(workflows):
                workflow_id = Id(key[len(workflows) : len(workflows) + Id.SIZE])
                if key == self.keys.status(workflow_id):
                    self.statuses[workflow_id] = decode.status(value[1:])
            elif key.startswith(queues):
                workflow_id = Id(key[len(queues) : len(queues) + Id.SIZE])
                name = decode.pending_signal(value[1:]).name
                self.pending[workflow_id] = self.pending.get(workflow_id, 0) + 1
                self.signals[name] = self.signals.get(name, 0) + 1
        self.phases = {
            i: (status.phase, status.silenced_at is not None) for i, status in self.statuses.items()
        }

    def derived(self, workflow_id: Id, status: Status, pruned: set[Id]) -> set[bytes]:
        """The rows outside of its own region that a workflow must have."""
        keys, name = self.keys, status.name
        record = decode.record(self.rows[keys.record(workflow_id)][1:])
        is_open = not status.phase.closed
        found = {keys.listed(name, record.created_at, workflow_id, open=is_open)}
        for key, value in record.tags.items():
            found.add(keys.tagged(name, key, value, open=is_open) + workflow_id)
        if record.unique is not None and is_open:
            assert self.rows[keys.unique(name, record.unique)] == workflow_id
            found.add(keys.unique(name, record.unique))
        if status.worker is not None:
            assert status.phase is Phase.RUNNING
            found.add(keys.lease(status.worker, workflow_id))
        if status.silenced_at is not None:
            found.add(keys.index(SILENCED_INDEX, name, status.silenced_at, workflow_id))
        else:
            for at_time, kind in (
                (status.immediate_at, WakeKind.IMMEDIATE),
                (status.deadline, WakeKind.DEADLINE),
            ):
                if at_time is not None:
                    assert status.phase is Phase.SLEEPING
                    found.add(keys.wake(name, at_time, workflow_id, kind))
        for child in status.children:
            row = keys.waiter(child, workflow_id)
            # One that is woken already needs none: its child may have died and been revived since.
            needed = status.immediate_at is None or row in self.rows
            if needed and child in self.statuses and not self.statuses[child].phase.closed:
                found.add(row)
        if status.phase in finish.INDEXED_PHASES:
            found.add(keys.index(status.phase, name, status.changed_at, workflow_id))
        if status.phase.closed and status.phase is not Phase.DEAD and workflow_id not in pruned:
            found.add(keys.prune(status.changed_at, workflow_id))
        return found

    def check(self, gauges: Any, pruned: set[Id]) -> None:
        expected: set[bytes] = set()
        counts: dict[str, dict[str, int]] = {}
        for workflow_id, status in self.statuses.items():
            expected |= self.derived(workflow_id, status, pruned)
            of_name = counts.setdefault(status.name, {})
            phase = status.phase.name.lower()
            of_name[phase] = of_name.get(phase, 0) + 1
        own = (self.keys.workflow(b""), self.keys.signals(b""), self.keys.gauges())
        others = {key for key in self.rows if not key.startswith(own)}
        assert [unpack(key, len(self.keys.prefix)) for key in others ^ expected] == []
        stray = {
            Id(key[len(own[0]) : len(own[0]) + Id.SIZE])
            for key in self.rows
            if key.startswith(own[0])
        }
        assert stray == set(self.statuses)
        assert gauges.workflows == counts
        assert gauges.signals == self.signals


TestWorkflows = Workflows.TestCase
TestWorkflows.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
