"""One seed of chaos: machines, random workflows, everything that can go wrong, and the reckoning.

First the trouble: for some minutes of simulated time workflows are started, signalled, cancelled,
silenced and revived at random, while machines are killed, paused until they are zombies, restarted,
upgraded and given wrong clocks, and the store and the bus misbehave. Then the world is healed, and
after some time every workflow must have ended as its program says, with nothing left behind.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tests.engine.chaos.program import (
    NAMES,
    SIGNALS,
    Author,
    Program,
    Seen,
    counted,
    expect,
    make_workflows,
)
from tests.engine.chaos.watch import KEYS, CommitWatch, LogWatch, recount

from perdure import (
    ActivityContext,
    EngineOptions,
    Id,
    WorkflowFinished,
    WorkflowNotFound,
    WorldError,
)
from perdure.codec import decode as decode_value
from perdure.engine.database.rows import Phase
from perdure.engine.errors import EngineNotRunning, UniqueKeyTaken, WorkflowBusy
from perdure.engine.history.events import ActivityEvent, decode_event
from perdure.kv.chunks import read_value
from perdure.testing.simulation import (
    BusTrouble,
    Machine,
    Process,
    ProcessDied,
    Simulation,
    StoreTrouble,
    simulate,
)

__all__ = ["run_seed"]

T = TypeVar("T")

PING, LOST_AFTER = 2.0, 6.0
HEALING_SECONDS = 7_200.0
PATIENCE = 300.0
NOT_NOW = (
    ProcessDied,
    UniqueKeyTaken,
    WorkflowBusy,
    WorkflowFinished,
    WorkflowNotFound,
    WorldError,
)


class Chaos:
    """The state of one run, and the witness of its programs."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = simulation.random_for("chaos")
        self.author = Author(simulation.random_for("programs"))
        self.wrong = simulation.wrong
        self.broken = True
        self.version = 1
        self.machines: list[Machine] = []
        self.started = 0
        self.tasks: dict[Id, dict[str, Any]] = {}
        self.programs: dict[Id, Program] = {}
        self.seen: dict[Id, Seen] = defaultdict(dict)
        self.worked_at: dict[int, tuple[Id, str]] = {}
        self.sent = 0
        self.surely_sent: dict[Id, list[int]] = defaultdict(list)
        self.surely_not_sent: set[int] = set()
        self.cancelled: set[Id] = set()
        self.terminated: set[Id] = set()
        self.acting: set[asyncio.Task[None]] = set()
        self.workers: dict[Process, Id] = {}
        self.watch = CommitWatch(simulation.store, self.workers.get, self.wrong)
        self.due_since: dict[tuple[Id, int], float] = {}

    # -- the witness

    def saw(self, workflow_id: Id, path: str, value: Any) -> Any:
        before = self.seen[workflow_id].setdefault(path, value)
        if before != value:
            self.wrong.append(f"{workflow_id} saw {value} at {path}, and before that {before}")
        return value

    def starts(self, child: Id, program: Program) -> None:
        self.programs.setdefault(child, program)

    def begins(self, ctx: ActivityContext, path: str) -> None:
        run = ctx._branch.run
        if self.watch.rows.get(run.lease.status_key) != run.lease.token:
            return  # a zombie, or one that is about to learn that it lost its lease
        key = run.lease.history_key + ctx._branch.key(ctx.coordinate)
        event = self.watch.rows.event(key)
        if isinstance(event, ActivityEvent) and event.output is not None:
            self.wrong.append(f"{path} of {ctx.workflow_id} runs again although it is finished")
        if ctx.attempt > 4:
            self.wrong.append(f"{path} of {ctx.workflow_id} has attempt {ctx.attempt}")

    def worked(self, ctx: ActivityContext, path: str) -> int:
        number = len(self.worked_at) + 1
        self.worked_at[number] = (ctx.workflow_id, path)
        return number

    # -- machines

    async def add_machine(self) -> None:
        self.started += 1
        random = self.random
        options = EngineOptions(
            linger=random.choice([0.0, 0.05, 1.0]),
            max_running=random.choice([1, 3, 1000]),
            pull_batch=random.choice([1, 5, 100]),
            ping_interval=PING,
            lost_after=LOST_AFTER,
            poll_interval=random.choice([1.0, 4.0]),
            metrics_interval=10.0,
            shutdown=random.choice([0.0, 1.0, 30.0]),
            version=self.version,
            prune_after=None,
            shed_load=False,
        )
        machine = self.simulation.machine(
            f"m{self.started}",
            list(make_workflows(self, self.version).values()),
            options=options,
        )
        machine.clock.jump(random.choice([0, 0, 0, random.randint(-90_000, 90_000)]))
        self.machines.append(machine)
        while machine.process.alive:
            try:
                await machine.process.call(self._start(machine))
                return
            except WorldError:
                await asyncio.sleep(0.5)
            except ProcessDied:
                return

    async def _start(self, machine: Machine) -> None:
        try:
            await machine.engine.start()
        finally:
            worker = machine.engine.worker
            if worker is not None:
                self.workers[machine.process] = worker.id

    def up(self) -> list[Machine]:
        return [m for m in self.machines if m.process.alive and m.process in self.workers]

    def awake(self) -> list[Machine]:
        return [m for m in self.up() if not m.process.paused]

    async def on_some(self, call: Callable[[Machine], Coroutine[Any, Any, T]]) -> T:
        """Let a random machine do something."""
        machines = self.awake()
        if not machines:
            raise ProcessDied("nobody")
        machine = self.random.choice(machines)
        try:
            return await machine.process.call(call(machine))
        except EngineNotRunning as error:  # it is being shut down
            raise ProcessDied(machine.process.name) from error

    # -- what people do

    async def dispatch(self) -> None:
        random = self.random
        workflow_id = Id.new(random_bytes=random.randbytes)
        name = random.choice(NAMES)
        task = {
            "program": self.author.program(),
            "tidy": random.random() < 0.5,
            "bug": random.random() < 0.2,
        }
        unique: Any = random.choice([False, False, True, f"key {random.randint(1, 3)}"])
        tags = {"kind": random.choice(["a", "b"])}
        self.tasks[workflow_id] = task
        while True:
            try:
                handle = await self.on_some(
                    lambda m: m.engine.dispatch(
                        name, task, id=workflow_id, unique=unique, tags=tags
                    )
                )
            except (ProcessDied, WorldError):
                await asyncio.sleep(random.random())
                continue
            if handle.id != workflow_id:
                del self.tasks[workflow_id]
                if unique is False or handle.id not in self.programs | self.tasks:
                    self.wrong.append(f"a dispatch found the unknown workflow {handle.id}")
            return

    def someone(self) -> Id | None:
        ids = sorted({*self.tasks, *self.programs})
        return self.random.choice(ids) if ids else None

    async def signal(self, target: Id, name: str) -> None:
        self.sent += 1
        number = self.sent
        body = SIGNALS[name](number)
        try:
            await self.on_some(lambda m: m.engine.signal(target, body))
        except (WorkflowFinished, WorkflowNotFound):
            self.surely_not_sent.add(number)
        except NOT_NOW:
            return
        else:
            self.surely_sent[target].append(number)

    async def cancel(self, target: Id) -> None:
        self.cancelled.add(target)
        await self.on_some(lambda m: m.engine.handle(None, target).cancel("chaos"))

    async def terminate(self, target: Id) -> None:
        self.terminated.add(target)
        await self.on_some(lambda m: m.engine.handle(None, target).terminate("chaos"))

    async def admin(self, what: str, target: Id) -> None:
        def ask(machine: Machine) -> Coroutine[Any, Any, object]:
            admin = machine.engine.admin
            match what:
                case "silence":
                    return admin.silence(str(target))
                case "unsilence":
                    return admin.unsilence(str(target))
                case "wake":
                    return admin.wake(str(target))
            return admin.revive(ids=[str(target)])

        await self.on_some(ask)

    # -- what goes wrong

    async def kill(self) -> None:
        machines = self.up()
        if machines:
            machine = self.random.choice(machines)
            self.machines.remove(machine)
            if self.random.random() < 0.3:
                machine.process.kill()
            else:
                machine.process.kill_after(self.random.randrange(400))
            await asyncio.sleep(self.random.choice([0, 1, 10]))
            machine.process.kill()
            await self.add_machine()

    async def restart(self) -> None:
        machines = self.awake()
        if machines:
            machine = self.random.choice(machines)
            self.machines.remove(machine)
            await self.stop(machine)
            await self.add_machine()

    async def stop(self, machine: Machine) -> None:
        try:
            await machine.shutdown()
        except ProcessDied:
            return
        for _ in range(60):
            if machine.process.tasks:  # calls from outside that were under way
                await asyncio.sleep(1)
        left = machine.process.tasks
        if left:
            self.wrong.append(f"{machine.process.name} was shut down and left {left}")
        machine.process.kill()

    async def pause(self) -> None:
        machines = self.awake()
        if machines:
            machine = self.random.choice(machines)
            machine.process.pause()
            await asyncio.sleep(self.random.random() * self.random.choice([0.2, 5, 4 * LOST_AFTER]))
            machine.process.resume()

    async def upgrade(self) -> None:
        """New code everywhere. Workers of the old code end first: they could not read new steps."""
        if self.version == 2:
            return
        self.version = 2
        old, self.machines = self.machines, []
        for process in self.simulation.processes:
            process.kill()
        for _ in old:
            await self.add_machine()

    async def jump(self) -> None:
        machines = self.up()
        if machines:
            self.random.choice(machines).clock.jump(self.random.randint(-30_000, 30_000))

    async def trouble(self) -> None:
        random, simulation = self.random, self.simulation
        simulation.store.trouble = StoreTrouble(
            conflict=random.choice([0, 0.02, 0.3]),
            unknown=random.choice([0, 0.02, 0.4]),
            slow=random.choice([0, 0.05, 0.5]),
            slowest=random.choice([0.05, 1, 8]),
            late_read=random.choice([0, 0.02, 0.1]),
            latest_read=random.choice([0.01, 0.2, 3]),
        )
        simulation.bus.trouble = BusTrouble(
            lose=random.choice([0, 0.1, 0.5, 1]),
            double=random.choice([0, 0.2]),
            latest=random.choice([0.001, 0.5, 10]),
        )

    # -- the course of things

    def act(self) -> Awaitable[None] | None:
        """Choose what happens next."""
        random = self.random
        chance = random.random()
        if chance < 0.2:
            return self.dispatch()
        if chance < 0.26:
            return self.kill()
        if chance < 0.28:
            return self.restart()
        if chance < 0.33:
            return self.pause()
        if chance < 0.35:
            return self.jump()
        if chance < 0.42:
            return self.trouble()
        if chance < 0.425:
            return self.upgrade()
        target = self.someone()
        if target is None:
            return None
        if chance < 0.7:
            return self.signal(target, random.choice(("red", "blue")))
        if chance < 0.73:
            return self.cancel(target)
        if chance < 0.75:
            return self.terminate(target)
        what = random.choice(("silence", "unsilence", "wake", "wake", "revive", "revive"))
        return self.admin(what, target)

    def spawn(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except NOT_NOW:
                return

        task = asyncio.ensure_future(quietly())
        self.acting.add(task)
        task.add_done_callback(self._acted)

    def _acted(self, task: asyncio.Task[None]) -> None:
        self.acting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.wrong.append(f"an action failed: {task.exception()!r}")

    async def rage(self) -> None:
        """The time of trouble."""
        for _ in range(self.random.randint(2, 4)):
            await self.add_machine()
        await self.trouble()
        end = self.simulation.loop.time() + self.random.choice([20, 60, 120])
        while self.simulation.loop.time() < end:
            work = self.act()
            if work is not None:
                self.spawn(work)
            await asyncio.sleep(self.random.expovariate(1.5))
            if self.random.random() < 0.05:
                await recount(self.simulation.store)

    async def heal(self) -> None:
        """Mend everything, and wait until all workflows have ended."""
        self.broken = False
        self.simulation.store.trouble = StoreTrouble()
        self.simulation.bus.trouble = BusTrouble(lose=self.random.choice([0, 0, 1]))
        for process in self.simulation.processes:
            if process.paused:
                process.resume()
        while self.acting:
            await asyncio.wait(self.acting)
        if not self.awake():
            await self.add_machine()
        end = self.simulation.loop.time() + HEALING_SECONDS
        while waiting := await self.nurse():
            if self.simulation.loop.time() > end:
                self.wrong += [f"it never ended: {line}" for line in waiting]
                return
            await asyncio.sleep(5)

    async def nurse(self) -> list[str]:
        """Help workflows on that wait for people; return those that have not ended."""
        waiting = []
        for key, _ in self.watch.rows.below(KEYS.workflow(b"")):
            start = len(KEYS.workflow(b""))
            workflow_id = Id(key[start : start + Id.SIZE])
            if key != KEYS.status(workflow_id):
                continue
            status = self.watch.rows.status(workflow_id)
            assert status is not None
            if status.phase.closed and status.phase is not Phase.DEAD:
                continue
            waiting.append(f"{workflow_id} {status}")
            since = self.due_since.setdefault(
                (workflow_id, status.epoch), self.simulation.loop.time()
            )
            if status.immediate_at is None or status.silenced_at is not None:
                del self.due_since[workflow_id, status.epoch]
            elif self.simulation.loop.time() - since > PATIENCE:
                self.wrong.append(f"{workflow_id} is due, and nobody takes it: {status}")
            try:
                if status.phase is Phase.DEAD:
                    await self.admin("revive", workflow_id)
                elif status.silenced_at is not None:
                    await self.admin("unsilence", workflow_id)
                elif status.phase is Phase.SLEEPING and status.immediate_at is None:
                    for name in status.signals:
                        await self.signal(workflow_id, name)
            except NOT_NOW:
                pass
        return waiting

    # -- the reckoning

    async def reckon(self) -> None:
        await recount(self.simulation.store)
        database = self.simulation.store.database()
        for workflow_id in sorted({*self.tasks, *self.programs}):
            status = self.watch.rows.status(workflow_id)
            if status is None:
                self.wrong.append(f"{workflow_id} is not in the store")
                continue
            await self.check_history(database, workflow_id)
            if status.phase is Phase.COMPLETE:
                await self.check_result(database, workflow_id)
            elif status.phase is Phase.CANCELLED:
                if workflow_id not in self.cancelled:
                    self.wrong.append(f"{workflow_id} was cancelled by nobody")
            elif status.phase is Phase.TERMINATED and workflow_id not in self.terminated:
                self.wrong.append(f"{workflow_id} was terminated by nobody")
        for target, numbers in self.surely_sent.items():
            queued = self.watch.queued[target]
            self.wrong += [
                f"signal {n} to {target} was lost" for n in numbers if repr(n) not in queued
            ]
        for them in self.watch.queued.values():
            for _, body in them.values():
                if isinstance(body, int) and body in self.surely_not_sent:
                    self.wrong.append(f"signal {body} was refused and yet sent")

    async def check_history(self, database: Any, workflow_id: Id) -> None:
        prefix = KEYS.history(workflow_id)
        for key, _ in self.watch.rows.below(prefix):
            value = await read_value(database.transaction(), key)
            if value is None:
                continue
            event = decode_event(value)
            if not isinstance(event, ActivityEvent) or event.output is None:
                continue
            path = decode_value(event.input or b"")["path"]
            stored = decode_value(event.output)
            if self.worked_at.get(stored[1]) != (workflow_id, path):
                self.wrong.append(f"{path} of {workflow_id}: its record is of other work")
            seen = self.seen[workflow_id].get(f"{path} work", stored)
            if seen != stored:
                self.wrong.append(f"{path} of {workflow_id}: {stored} is stored, seen was {seen}")

    async def check_result(self, database: Any, workflow_id: Id) -> None:
        program = self.programs[workflow_id]
        seen = self.seen[workflow_id]
        row = await read_value(database.transaction(), KEYS.output(workflow_id))
        result = decode_value(row or b"\xc0")
        expected = expect(program, seen)
        if result != expected:
            self.wrong.append(f"{workflow_id} returned {result}, not {expected}, of {program}")
        row = await read_value(database.transaction(), KEYS.state(workflow_id))
        counts = {} if row is None else decode_value(row)
        if counts != counted(program):
            self.wrong.append(f"{workflow_id} counted {counts}, not {counted(program)}")
        received = _bodies(program, seen)
        taken = self.watch.taken[workflow_id]
        if len({repr(body) for body in received}) != len(received):
            self.wrong.append(f"{workflow_id} received a signal twice: {received}")
        if not _has(program, "broken_join") and sorted(map(repr, received)) != sorted(
            map(repr, taken)
        ):
            self.wrong.append(f"{workflow_id} received {received}, taken were {taken}")

    async def leave(self) -> None:
        """Shut down what runs; nothing may be left."""
        await asyncio.sleep(2 * LOST_AFTER)
        for machine in self.up():
            await self.stop(machine)
        living = {m.process for m in self.machines}
        for process in self.simulation.processes:
            if process in living and process.tasks:
                self.wrong.append(f"{process.name} left {process.tasks}")


def _bodies(program: Program, seen: Seen, at: str = "") -> list[Any]:
    """All bodies of signals that a program received."""
    found: list[Any] = []
    for step in program:
        path = f"{at}/{step['n']}"
        match step["kind"]:
            case "listen" if seen.get(path) is not None:
                found.append(seen[path])
            case "listen_many":
                found += seen.get(path, [])
            case "loop":
                for turn in range(step["times"]):
                    found += _bodies(step["body"], seen, f"{path}.{turn}")
            case "join" | "broken_join":
                found += _bodies(step["members"], seen, path)
            case "closure":
                found += _bodies(step["body"], seen, path)
            case "inline":
                found += _bodies(step["program"], seen, path)
            case "dispatch":
                found += _bodies(step["between"], seen, path)
    return found


def _has(program: Program, kind: str) -> bool:
    return f"'kind': '{kind}'" in repr(program)


async def _chaos(simulation: Simulation) -> list[str]:
    chaos = Chaos(simulation)
    watch = LogWatch(chaos.wrong)
    logger = logging.getLogger("perdure")
    level, spreads = logger.level, logger.propagate
    logger.addHandler(watch)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        await chaos.rage()
        await chaos.heal()
        await chaos.reckon()
        await chaos.leave()
        await recount(simulation.store)
        await simulation.end()
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)
        logger.propagate = spreads
    return chaos.wrong


def run_seed(seed: int) -> list[str]:
    """Run one seed; return what was wrong. The same seed gives the same run."""
    return simulate(seed, _chaos)
