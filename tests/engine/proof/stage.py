"""A store in memory that can die and come back, with engines on a clock that moves by itself.

The clock stands still while anything can run and then jumps to the next timer, so a workflow that
sleeps for a day takes a millisecond and every run of a test is the same run. What the proofs share
is here too: activities that notice when they run again although they are recorded as finished, and
what is left of a workflow in the store, in a form that can be compared.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from perdure import ActivityContext, Engine, EngineOptions, Id, Workflow
from perdure.clock import VirtualClock
from perdure.engine.database.gauges import gauges
from perdure.engine.database.inspect import history_rows
from perdure.engine.database.keys import Keys
from perdure.engine.history.events import (
    ActivityEvent,
    ChildResultEvent,
    Event,
    LoopEvent,
    MessageSendEvent,
    SignalSendEvent,
    SignalsEvent,
    SleepEvent,
    SubWorkflowEvent,
    TagsEvent,
    VersionCheckEvent,
    decode_event,
    describe_event,
)
from perdure.engine.history.location import format_location, unpack_location
from perdure.kv import Database
from perdure.kv.chunks import read_value
from perdure.kv.faults import Crash, Faults
from perdure.kv.memory import MemoryDriver
from perdure.pubsub import MemoryPubSub

T = TypeVar("T")

KEYS = Keys()
MOST_TURNS = 20_000
OPTIONS = EngineOptions(prune_after=None, shed_load=False, metrics_interval=1e6)


class Stage:
    """The store, its clock, and the engines that were started on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.driver = MemoryDriver(clock=self.clock)
        self.random = random.Random(7)
        self.ran: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.engines: list[Engine] = []
        self._older = asyncio.all_tasks()
        asyncio.get_running_loop().set_exception_handler(self._hear_loop)
        self._open()

    def _open(self) -> None:
        self.database = Database(self.driver, clock=self.clock, random=self.random)
        self.pubsub_name = f"stage:{id(self.driver)}"

    @property
    def faults(self) -> Faults:
        return self.driver.faults

    def _hear_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crash):
            self.wrong.append(f"{context['message']}: {context.get('exception')!r}")

    # -- engines

    async def engine(
        self,
        *workflows: Workflow[Any, Any],
        worker: bool = True,
        options: EngineOptions = OPTIONS,
    ) -> Engine:
        """Start an engine with these workflows; the clock moves meanwhile if it has to."""
        engine = self.prepare(*workflows, worker=worker, options=options)
        await self.until(engine.start())
        return engine

    def prepare(
        self,
        *workflows: Workflow[Any, Any],
        worker: bool = True,
        options: EngineOptions = OPTIONS,
    ) -> Engine:
        """Make an engine that is still to be started."""
        engine = Engine(
            self.database,
            workflows=workflows,
            worker=worker,
            options=options,
            clock=self.clock,
            pubsub=MemoryPubSub.shared(self.pubsub_name),
            random=random.Random(self.random.random()),
        )
        self.engines.append(engine)
        return engine

    async def die(self) -> None:
        """End everything that runs, as the death of the process would."""
        mine = {asyncio.current_task(), *self._older}
        tasks = [task for task in asyncio.all_tasks() if task not in mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.engines.clear()

    async def restart(self) -> None:
        """Die, and open again what was durable."""
        await self.die()
        self.driver = self.driver.reopen()
        self._open()

    async def close(self) -> None:
        """Shut the engines down; fail if anything went wrong behind the scenes."""
        for engine in self.engines:
            await self.until(engine.shutdown())
        self.engines.clear()
        assert not self.wrong, self.wrong

    # -- time

    async def settle(self) -> None:
        """Let everything run that can run without the clock moving."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(MOST_TURNS):
            await asyncio.sleep(0)
            if not ready:
                return
        raise AssertionError("something runs round and round without the clock moving")

    async def pass_time(self, seconds: float) -> None:
        """Move the clock by this much, with everything that happens on the way."""
        end = self.clock.monotonic() + seconds
        while True:
            await self.settle()
            step = self.clock.next_timer_in()
            left = end - self.clock.monotonic()
            if step is None or step > left:
                self.clock.advance(max(left, 0) * 1000)
                await self.settle()
                return
            self.clock.advance(step * 1000)

    async def until(self, awaitable: Awaitable[T], within: float = 100_000) -> T:
        """Move the clock until `awaitable` is done, and return its result."""
        task = asyncio.ensure_future(awaitable)
        end = self.clock.monotonic() + within
        try:
            while True:
                await self.settle()
                if task.done():
                    # It may have died just behind the result.
                    self.driver.rows()
                    return task.result()
                step = self.clock.next_timer_in()
                assert step is not None, "nothing will ever happen"
                assert self.clock.monotonic() + step < end, f"not done within {within} s"
                self.clock.advance(step * 1000)
        finally:
            task.cancel()

    # -- activities

    async def note(self, ctx: ActivityContext, what: str) -> None:
        """Count a call of an activity; it is wrong if the call is recorded as finished already."""
        self.ran[what] += 1
        key = ctx._branch.key(ctx.coordinate)
        for prefix in (KEYS.history(ctx.workflow_id), KEYS.forgotten(ctx.workflow_id)):
            stored = await read_value(self.database.transaction(), prefix + key, snapshot=True)
            event = None if stored is None else decode_event(stored)
            if isinstance(event, ActivityEvent) and event.output is not None:
                self.wrong.append(f"{what} runs again although it is recorded as finished")

    # -- what is stored

    async def story(self, workflow_id: Id) -> list[str]:
        """The whole history, without what differs from run to run (times and ids)."""
        lines = []
        for forgotten in (False, True):
            rows = await history_rows(self.database, KEYS, workflow_id, forgotten=forgotten)
            for key, value in rows:
                event = decode_event(value)
                at = format_location(unpack_location(key))
                mark = "forgotten " if forgotten else ""
                lines.append(f"{mark}{at} {describe_event(event)} {_content(event)}")
        return lines

    async def leftovers(self) -> list[str]:
        """Rows that must not be there once every workflow has ended."""
        regions = {
            "wake": KEYS.wakes("")[:-2],
            "lease": KEYS._lease,
            "waiter": KEYS._waiter,
            "signal": KEYS._signal,
            "open": KEYS._open,
            "unique": KEYS._unique,
        }
        found = []
        for name, prefix in regions.items():
            rows = await self.database.transaction().get_range(prefix, prefix + b"\xff")
            found += [f"{name} {key!r}" for key, _ in rows]
        return found

    async def counts(self) -> dict[str, dict[str, int]]:
        """The counters of workflows by name and phase, without zeros; pending signals as "*"."""
        found = await gauges(self.database, KEYS)
        named: Iterable[tuple[str, dict[str, int]]] = found.workflows.items()
        told = {name: {k: v for k, v in phases.items() if v} for name, phases in named}
        pending = {name: count for name, count in found.signals.items() if count}
        return {**told, **({"*": pending} if pending else {})}


def _content(event: Event) -> object:
    match event:
        case ActivityEvent():
            failures = [failure.kind for failure in event.failures]
            return event.attempts, event.output, failures, event.retry_at is None
        case SignalsEvent():
            return [(signal.name, signal.body) for signal in event.signals]
        case SignalSendEvent():
            return event.body, event.missing
        case MessageSendEvent():
            return event.topic, event.body
        case SubWorkflowEvent():
            return event.tags, event.input
        case ChildResultEvent():
            return event.phase, event.output
        case LoopEvent():
            return event.iteration, event.state, event.output
        case SleepEvent():
            return event.state
        case TagsEvent():
            return event.tags
        case VersionCheckEvent():
            return event.inner
        case _:
            return ""
