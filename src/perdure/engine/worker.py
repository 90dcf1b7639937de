"""The worker: finds due workflows, takes its share of them, and runs them.

The pull loop waits for a doorbell, a timer, a free place or the poll interval, looks at the names
that may have something due, leases what is this worker's share, and starts runs. The ping loop
keeps the worker among the living. Everything else that has to be done now and then is
`housekeeping`. None of the loops ends because of an error; all try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from perdure.clock import wait, wait_event
from perdure.engine import subjects
from perdure.engine.context.run import Run
from perdure.engine.database.finish import set_aside
from perdure.engine.database.keys import WakeKind
from perdure.engine.database.lease import Lease, Wake, due, take, upcoming
from perdure.engine.database.load import read_cancel
from perdure.engine.database.rows import WorkflowRecord
from perdure.engine.errors import CorruptRecord, LeaseLost
from perdure.engine.housekeeping import Housekeeping
from perdure.engine.runner import Runner
from perdure.engine.suspension import RunAborted
from perdure.engine.timers import TimerWheel
from perdure.errors import WorldError
from perdure.fleet import Assignment, CpuMeter, Fleet, SheddingCurve
from perdure.ids import Id
from perdure.kv import Subspace

if TYPE_CHECKING:
    from perdure.engine.registry import Registry
    from perdure.engine.services import Services

__all__ = ["Slot", "Worker"]

_UPCOMING_LIMIT = 2_000
_SHED_PAUSE_SECONDS = 0.25
_PROGRESS_SECONDS = 7.0


class _Place:
    """Where one leased workflow runs. `run` is None until it is loaded."""

    __slots__ = ("lease", "run")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.run: Run | None = None

    def lose(self) -> None:
        """End the run: the lease is gone. One that is not loaded yet finds out by itself."""
        if self.run is not None:
            self.run.end(RunAborted(LeaseLost(self.lease.workflow_id)))
            self.run.pulse.beat()


class Worker:
    """Runs the registered workflows of one engine. Bound to the engine's event loop."""

    def __init__(self, services: Services, registry: Registry) -> None:
        options = services.options
        self._services = services
        self._registry = registry
        self.id = services.new_id()
        self._fleet = Fleet(
            services.database,
            Subspace(services.keys.node),
            self.id,
            services.clock,
            names=registry.names,
            version=options.version,
            ping_interval=options.ping_interval,
            lost_after=options.lost_after,
        )
        self._timers = TimerWheel()
        self._runner = Runner(services, registry, self._slept_until)
        self._running: dict[Id, _Place] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._listener = services.doorbell.listen(*registry.names)
        self._dirty: set[str] = set(registry.names)
        self._stopping = False
        self.reserved = 0
        """How many places are kept for workflows whose dispatch is under way."""
        self._loops: list[asyncio.Task[None]] = []
        self._next_poll = 0.0
        self._turn = 0
        self._cpu = CpuMeter(services.clock)
        self._curve = SheddingCurve()
        self._housekeeping = Housekeeping(services, self._fleet, self._running)
        self._subscription = services.pubsub.subscribe(
            subjects.worker(self.id), self._hear_attention
        )

    # -- life

    async def start(self, *, alone: bool = False) -> None:
        """Join the fleet and begin to pull. The doorbell was subscribed before (no lost ring).

        `alone` says that nobody else can have the store open. Then all other members are dead, and
        what they held goes on at once instead of after `lost_after`.
        """
        if alone:
            await self._housekeeping.succeed()
        await self._fleet.join()
        self._loops = [
            asyncio.create_task(self._pull_loop(), name="perdure-pull"),
            asyncio.create_task(self._ping_loop(), name="perdure-ping"),
            asyncio.create_task(self._housekeeping.run(), name="perdure-housekeeping"),
        ]

    async def stop(self, timeout: float) -> None:
        """Stop pulling, let runs reach their next step, give the rest back, leave the fleet.

        Pings go on meanwhile, so that nobody takes what is still running. What has not ended after
        `timeout` seconds is cancelled and given back.
        """
        if self._stopping:
            return
        self._stopping = True
        self._listener.event.set()
        if self._loops:
            await asyncio.wait(self._loops[:1])
        await self._retire()
        for place in self._running.values():
            if place.run is not None:
                place.run.stop()
        await self._drain(timeout)
        for loop in self._loops:
            loop.cancel()
        if self._loops:
            await asyncio.wait(self._loops)
        await self._abandon()
        self._listener.close()
        self._subscription.close()
        await self._leave()

    async def _retire(self) -> None:
        try:
            await self._fleet.retire()
        except WorldError as error:
            self._complain("the worker could not announce its shutdown", error)

    async def _drain(self, timeout: float) -> None:
        clock = self._services.clock
        end = clock.monotonic() + timeout
        while self._tasks:
            left = end - clock.monotonic()
            if left <= 0:
                return
            everyone = asyncio.ensure_future(asyncio.wait(list(self._tasks)))
            try:
                done = await wait(clock, everyone, timeout=min(left, _PROGRESS_SECONDS))
            finally:
                everyone.cancel()
            if not done:
                self._services.log.info(
                    "shutting down: waiting for running steps",
                    runs={name: n for name, n in self._services.metrics.in_memory.items() if n},
                    seconds_left=round(left),
                )

    async def _abandon(self) -> None:
        """Cancel runs that did not end in time. Their last commit may or may not have happened."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _leave(self) -> None:
        """Give back every lease that is left and disappear."""
        try:
            await self._housekeeping.leave()
            await self._fleet.leave()
        except WorldError as error:
            self._complain("the worker could not say goodbye; others notice in a while", error)

    @property
    def running(self) -> int:
        """How many workflows are in memory."""
        return len(self._running)

    # -- pulling

    async def _pull_loop(self) -> None:
        clock = self._services.clock
        event = self._listener.event
        while not self._stopping:
            try:
                pause = await self._pull_once()
            except Exception as error:  # a defect with one name must not end the pulling
                self._complain("looking for work failed, it is tried again", error)
                self._dirty |= self._registry.names
                pause = 1.0
            if pause <= 0 or event.is_set() or self._stopping:
                await asyncio.sleep(0)
                continue
            await wait_event(clock, event, timeout=pause)

    async def _pull_once(self) -> float:
        """Look at every name that may have work; return the seconds until the next look."""
        services = self._services
        clock = services.clock
        rung = self._listener.take()
        if rung:
            services.metrics.bumped(len(rung))
        self._dirty |= rung
        self._dirty |= self._timers.take_due(clock.now())
        if clock.monotonic() >= self._next_poll:
            await self._poll()
        started = 0
        for name in self._dirty_in_turn():
            free = services.options.max_running - len(self._running)
            if free <= 0:
                break
            started += await self._pull_name(name, free)
        return self._idle_seconds(progress=started > 0)

    def _dirty_in_turn(self) -> list[str]:
        """Return the names to look at; each comes first in its turn, so that none starves."""
        names = sorted(self._dirty)
        self._turn += 1
        first = self._turn % len(names) if names else 0
        return names[first:] + names[:first]

    def _idle_seconds(self, *, progress: bool) -> float:
        """Return how long to wait. `progress` says that the last look started something."""
        clock = self._services.clock
        pause = self._next_poll - clock.monotonic()
        due_at = self._timers.next()
        if due_at is not None:
            pause = min(pause, (due_at - clock.now()) / 1000)
        if self._dirty and len(self._running) < self._services.options.max_running:
            # More is due: go on at once, or soon if what is due is left to others for now.
            pause = 0.0 if progress else min(pause, _SHED_PAUSE_SECONDS)
        return max(pause, 0.0)

    async def _poll(self) -> None:
        """The safety net: look at all names, and fetch the deadlines of the near future."""
        services = self._services
        options = services.options
        self._next_poll = services.clock.monotonic() + options.poll_interval
        self._dirty |= self._registry.names
        now = services.clock.now()
        until = now + round(2 * options.poll_interval * 1000)
        for name in sorted(self._registry.names):
            times = await upcoming(
                services.database, services.keys, name, now, until, _UPCOMING_LIMIT
            )
            for at in times:
                self._timers.add(at, name)
            if len(times) == _UPCOMING_LIMIT:
                # There is more than was read: look again when the last of these is due.
                soon = services.clock.monotonic() + max(times[-1] - now, 0) / 1000
                self._next_poll = min(self._next_poll, soon)

    def _slept_until(self, deadline: int, name: str) -> None:
        horizon = self._services.clock.now() + round(self._services.options.poll_interval * 2000)
        if deadline <= horizon:
            before = self._timers.next()
            self._timers.add(deadline, name)
            if before is None or deadline < before:
                self._listener.event.set()

    async def _pull_name(self, name: str, free: int) -> int:
        """Lease what is due under one name and start it; return how many were started."""
        services = self._services
        options = services.options
        now = services.clock.now()
        limit = 2 * min(free, options.pull_batch)
        wakes = await due(services.database, services.keys, name, now + 1, limit)
        chosen = self._choose(wakes, now)
        started = 0
        for batch in _batches(chosen, min(free, options.pull_batch)):
            if started >= free or self._stopping:
                break
            began = services.clock.monotonic()
            try:
                leases = await take(services.database, services.keys, batch, self.id, now)
            except CorruptRecord as error:
                await self._set_aside(error, batch)
                return started + 1
            services.metrics.pulled(len(leases), services.clock.monotonic() - began)
            woken_at = {w.workflow_id: w.ts for w in batch if w.kind == WakeKind.IMMEDIATE}
            for lease in leases:
                since = woken_at.get(lease.workflow_id)
                if since is not None:
                    services.metrics.woken(lease.name, max(now - since, 0) / 1000)
                self.begin(lease)
            started += len(leases)
        if len(wakes) < limit and len(chosen) == len(wakes):
            self._dirty.discard(name)
        return started

    async def _set_aside(self, error: CorruptRecord, batch: list[Wake]) -> None:
        """Take a workflow that nobody can lease out of the way of the others."""
        services = self._services
        for wake in batch:
            if wake.workflow_id == error.workflow_id:
                self._complain("a workflow cannot be read and is set aside", error)
                now = services.clock.now()
                closed = await set_aside(services.database, services.keys, wake, now)
                if closed is not None:
                    services.announce_end(wake.workflow_id, closed.woken)

    def _choose(self, wakes: list[Wake], now: int) -> list[Wake]:
        """Leave out what other workers should take, and some of the rest under high load."""
        members = self._fleet.members
        if members == (self._fleet.own,):
            return wakes
        assignment = Assignment(members, self._fleet.own, version_pin=self._fleet.version_pin)
        chosen = [w for w in wakes if assignment.takes(w.name, w.workflow_id, w.ts, now)]
        if not self._services.options.shed_load or len(members) < 2:
            return chosen
        cpu = self._cpu.usage()
        self._services.metrics.load_sampled(cpu, self._curve.ratio(cpu))
        random = self._services.random
        return [wake for wake in chosen if self._curve.keeps(cpu, random.random())]

    # -- starting at once what is dispatched here

    def reserve(self, name: str) -> Slot | None:
        """Keep a place for a workflow that is about to be dispatched from this process.

        It is then born leased to this worker: nobody has to find it. None when it should go
        through the wake index like all others: the name is not served here, there is no room, or
        other workers are there to share the load.
        """
        if self._stopping or name not in self._registry:
            return None
        if len(self._running) + self.reserved >= self._services.options.max_running:
            return None
        if self._fleet.members != (self._fleet.own,):
            return None
        return Slot(self)

    def begin(self, lease: Lease, record: WorkflowRecord | None = None) -> None:
        """Run a leased workflow; `record` is given if it was created just now."""
        workflow_id = lease.workflow_id
        older = self._running.get(workflow_id)
        if older is not None:
            # It lost the lease without noticing, and the workflow came back to this worker.
            older.lose()
        self._running[workflow_id] = place = _Place(lease)
        self._services.metrics.workflow_in_memory(lease.name, 1)
        task = asyncio.create_task(self._run(place, record))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _run(self, place: _Place, record: WorkflowRecord | None) -> None:
        lease = place.lease

        def started(run: Run) -> None:
            place.run = run
            if self._stopping:
                run.stop()

        try:
            await self._runner.run(lease, record, started)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # A defect in the engine itself: the reconciliation gives the lease back.
            self._complain("a run ended in an unforeseen way and is given back", error)
        finally:
            full = len(self._running) >= self._services.options.max_running
            if self._running.get(lease.workflow_id) is place:
                del self._running[lease.workflow_id]
            self._services.metrics.workflow_in_memory(lease.name, -1)
            if full:
                self._listener.event.set()

    # -- attention

    def _hear_attention(self, payload: bytes) -> None:
        task = asyncio.create_task(self._look_after(Id(payload)))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _look_after(self, workflow_id: Id) -> None:
        """Tell a running workflow what happened to it in the store: cancelled, or taken away."""
        place = self._running.get(workflow_id)
        run = None if place is None else place.run
        if place is None or run is None:
            return
        services = self._services
        try:
            alive, request = await read_cancel(services.database, services.keys, run.lease)
        except WorldError as error:
            self._complain("looking after a running workflow failed", error)
            return
        if not alive:
            place.lose()
        elif request is not None and run.cancel is None:
            run.request_cancel(request)

    # -- staying alive

    async def _ping_loop(self) -> None:
        """Ping, and notice what happened to our runs in the store if the message was lost.

        A loop of its own: no chore, however long it takes, may keep the pings.
        """
        clock = self._services.clock
        while True:
            await clock.sleep(self._services.options.ping_interval)
            try:
                await self._fleet.ping()
                self._services.metrics.pinged(clock.now())
                for workflow_id in list(self._running):
                    await self._look_after(workflow_id)
            except Exception as error:  # the next ping may work
                self._complain("a ping failed", error)

    def _complain(self, event: str, error: Exception) -> None:
        self._services.log.warning(event, error=f"{type(error).__name__}: {error}")


class Slot:
    """A reserved place in a worker; a context manager that gives it back if it was not used."""

    __slots__ = ("_worker", "worker_id")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.worker_id = worker.id
        worker.reserved += 1

    def start(self, lease: Lease, record: WorkflowRecord) -> None:
        """Run the workflow that was created for this slot."""
        self._worker.begin(lease, record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.reserved -= 1


def _batches(wakes: list[Wake], size: int) -> Iterable[list[Wake]]:
    for start in range(0, len(wakes), size):
        yield wakes[start : start + size]
