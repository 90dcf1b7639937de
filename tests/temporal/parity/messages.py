"""Signals and queries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import WorkflowHandle
from temporalio.common import QueryRejectCondition, RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

MINUTE = timedelta(minutes=1)


@workflow.defn
class Collects:
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.done = False

    @workflow.run
    async def run(self, first: str = "") -> list[Any]:
        self.log.append(["run", first])
        await workflow.wait_condition(lambda: self.done)
        return self.log

    @workflow.signal
    def plain(self, value: str) -> None:
        self.log.append(["plain", value])

    @workflow.signal(name="other name")
    async def slow(self, value: int, more: str = "default") -> None:
        await asyncio.sleep(0.01)
        self.log.append(["slow", value, more])

    @workflow.signal(dynamic=True)
    def anything(self, name: str, arguments: Sequence[RawValue]) -> None:
        values = [workflow.payload_converter().from_payload(a.payload) for a in arguments]
        self.log.append(["dynamic", name, values])

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.signal
    def fails(self) -> None:
        raise ApplicationError("signal failed", "detail", type="Bad", non_retryable=True)

    @workflow.query
    def read(self) -> list[Any]:
        return self.log

    @workflow.query(name="named query")
    def named(self, suffix: str) -> str:
        return f"{len(self.log)}{suffix}"

    @workflow.query
    def broken(self) -> str:
        raise ApplicationError("query failed", 7, type="BadQuery")

    @workflow.query
    def broken_plainly(self) -> str:
        raise ValueError("plain trouble")

    @workflow.query
    def writes(self) -> str:
        workflow.upsert_memo({"a": 1})
        return "never"

    @workflow.query(dynamic=True)
    def any_query(self, name: str, arguments: Sequence[RawValue]) -> Any:
        return [name, len(arguments)]


@scenario
async def signals_of_all_kinds(stage: Stage) -> Any:
    async with stage.worker([Collects]):
        handle = await stage.begin(Collects, "x")
        await handle.signal(Collects.plain, "one")
        await handle.signal("other name", args=[3, "more"])
        await handle.signal("unheard of", args=[1, "b"])
        await handle.signal(Collects.slow, args=[4, "d"])
        while len(await handle.query(Collects.read)) < 5:
            await asyncio.sleep(0.05)
        await handle.signal(Collects.finish)
        return sorted(map(str, await outcome(handle.result())))


@scenario
async def signals_before_the_first_task(stage: Stage) -> Any:
    handle = await stage.start(
        Collects, "x", start_signal="plain", start_signal_args=["with start"]
    )
    await handle.signal("unheard of", 1)
    await handle.signal(Collects.plain, "two")
    await handle.signal(Collects.finish)
    async with stage.worker([Collects]):
        return [await outcome(handle.result()), await stage.history(handle)]


@scenario
async def a_signal_that_fails(stage: Stage) -> Any:
    async with stage.worker([Collects]):
        handle = await stage.begin(Collects)
        await handle.signal(Collects.fails)
        return [await outcome(handle.result()), await stage.history(handle)]


@scenario
async def a_signal_with_bad_arguments(stage: Stage) -> Any:
    with stage.logs() as lines:
        async with stage.worker([BadArguments]):
            handle = await stage.begin(BadArguments)
            await handle.signal("number", "not a number")
            await handle.signal("number", 5)
            return [await outcome(handle.result()), lines]


@workflow.defn
class BadArguments:
    def __init__(self) -> None:
        self.got: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: bool(self.got))
        return self.got

    @workflow.signal
    def number(self, value: int) -> None:
        self.got.append(value)


@scenario
async def an_unknown_signal_and_query(stage: Stage) -> Any:
    with stage.logs() as lines:
        async with stage.worker([BadArguments]):
            handle = await stage.begin(BadArguments)
            await handle.signal("who", 1)
            answers = [
                await outcome(handle.query("what")),
                await outcome(handle.query("__stack_trace_x")),
            ]
            await handle.signal("number", 5)
            return [answers, await outcome(handle.result()), lines]


@workflow.defn
class LateHandlers:
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.ready = False

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: self.ready)
        workflow.set_signal_handler("late", self.got.append)
        await asyncio.sleep(0.01)
        workflow.set_dynamic_signal_handler(self.any_signal)
        workflow.set_query_handler("asked", lambda: len(self.got))
        workflow.set_dynamic_query_handler(self.any_query)
        handlers = [
            workflow.get_signal_handler("late") is not None,
            workflow.get_dynamic_signal_handler() is not None,
            workflow.get_signal_handler("none") is None,
            workflow.get_query_handler("asked") is not None,
            workflow.get_dynamic_query_handler() is not None,
        ]
        return [*self.got, handlers]

    def any_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self.got.append([name, len(args)])

    def any_query(self, name: str, args: Sequence[RawValue]) -> str:
        return name

    @workflow.signal
    def go(self) -> None:
        self.ready = True


@scenario
async def handlers_set_late_get_buffered_signals(stage: Stage) -> Any:
    async with stage.worker([LateHandlers]):
        handle = await stage.begin(LateHandlers)
        await handle.signal("late", 1)
        await handle.signal("later", 2)
        await handle.signal("late", 3)
        await handle.signal(LateHandlers.go)
        result = await outcome(handle.result())
        return [result, await handle.query("asked"), await handle.query("dynamic one")]


@scenario
async def queries(stage: Stage) -> Any:
    async with stage.worker([Collects]):
        handle = await stage.begin(Collects)

        async def all_queries() -> list[Any]:
            return [
                await outcome(handle.query(Collects.read)),
                await outcome(handle.query(Collects.named, "!")),
                await outcome(handle.query(Collects.broken)),
                await outcome(handle.query(Collects.broken_plainly)),
                await outcome(handle.query(Collects.writes)),
                await outcome(handle.query("dynamic", args=[1, 2])),
                await outcome(handle.query("named query", args=[])),
            ]

        open_ = await all_queries()
        rejected = await outcome(
            handle.query(Collects.read, reject_condition=QueryRejectCondition.NONE)
        )
        await handle.signal(Collects.finish)
        await handle.result()
        closed = await all_queries()
        refused = await outcome(
            handle.query(Collects.read, reject_condition=QueryRejectCondition.NOT_OPEN)
        )
    async with stage.worker([Collects], max_cached_workflows=0):
        again = await all_queries()
    return [open_, rejected, closed, refused, again == closed]


@scenario
async def queries_while_a_task_is_in_progress(stage: Stage) -> Any:
    async with stage.worker([Collects]):
        handle = await stage.begin(Collects)
        await handle.query(Collects.read)

        async def burst(number: int) -> Any:
            await handle.signal(Collects.plain, str(number))
            return await handle.query(Collects.named, "")

        counts = await asyncio.gather(*(burst(n) for n in range(12)))
        await handle.signal(Collects.finish)
        log = await handle.result()
        return [sorted(map(str, log)), all(1 <= int(c) <= 13 for c in counts), max(counts, key=int)]


@scenario
async def a_query_before_the_first_task(stage: Stage) -> Any:
    handle = await stage.start(Collects)
    asked = asyncio.create_task(outcome(handle.query(Collects.read)))
    await asyncio.sleep(0.3)
    async with stage.worker([Collects]):
        return [await asked, await stage.history(handle)]


@scenario
async def a_query_without_a_worker(stage: Stage) -> Any:
    handle = await stage.start(Collects)
    return await outcome(handle.query(Collects.read, rpc_timeout=timedelta(seconds=1)))


@workflow.defn
class Unfinished:
    def __init__(self) -> None:
        self.started = 0
        self.brief = False

    @workflow.run
    async def run(self, how: str) -> str:
        self.brief = how == "wait"
        await workflow.wait_condition(lambda: self.started >= 4)
        if how == "fail":
            raise ApplicationError("failed")
        if how == "wait":
            await workflow.wait_condition(workflow.all_handlers_finished)
        if how == "cancelled":
            await asyncio.sleep(100)
        return "done"

    @workflow.signal
    async def hangs(self) -> None:
        self.started += 1
        await workflow.wait_condition(lambda: False, timeout=0.2 if self.brief else 1000)

    @workflow.signal(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def hangs_quietly(self) -> None:
        self.started += 1
        await workflow.wait_condition(lambda: False, timeout=0.2 if self.brief else 1000)

    @workflow.update
    async def updates(self) -> str:
        self.started += 1
        await workflow.wait_condition(lambda: False, timeout=0.2 if self.brief else 1000)
        return "never"

    @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def updates_quietly(self) -> str:
        self.started += 1
        await workflow.wait_condition(lambda: False, timeout=0.2 if self.brief else 1000)
        return "never"


async def _unfinished(stage: Stage, how: str) -> Any:
    with stage.warned() as warned, stage.logs() as lines:
        async with stage.worker([Unfinished]):
            handle: WorkflowHandle[Any, Any] = await stage.begin(Unfinished, how)
            for name in ("hangs", "hangs_quietly"):
                await handle.signal(name)
            updates = [
                asyncio.create_task(outcome(handle.execute_update(name, id=f"the {name}")))
                for name in ("updates", "updates_quietly")
            ]
            if how == "cancelled":
                await stage.until(handle, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED", 2)
                await handle.cancel()
            result = await outcome(handle.result())
            return [result, [await u for u in updates], sorted(warned), lines]


@scenario
async def unfinished_handlers(stage: Stage) -> Any:
    """One after the other: the warnings name no workflow."""
    return [await _unfinished(stage, how) for how in ("return", "fail", "wait", "cancelled")]


@workflow.defn
class Initialised:
    @workflow.init
    def __init__(self, name: str, count: int = 2) -> None:
        self.log = [f"init {name} {count}"]

    @workflow.run
    async def run(self, name: str, count: int = 2) -> list[str]:
        self.log.append("run")
        await workflow.wait_condition(lambda: len(self.log) > 3)
        return self.log

    @workflow.signal
    def note(self, text: str) -> None:
        self.log.append(text)

    @workflow.update
    def tell(self, text: str) -> int:
        self.log.append(text)
        return len(self.log)


@scenario
async def workflow_init(stage: Stage) -> Any:
    handle = await stage.start(Initialised, "a", start_signal="note", start_signal_args=["sig"])
    update = asyncio.create_task(outcome(handle.execute_update(Initialised.tell, "upd")))
    await asyncio.sleep(0.3)
    async with stage.worker([Initialised]):
        return [await outcome(handle.result()), await update, await stage.history(handle)]


@workflow.defn
class SignalsThenActs:
    def __init__(self) -> None:
        self.values: list[Any] = []

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: len(self.values) == 30)
        return self.values

    @workflow.signal
    async def add(self, value: int) -> None:
        self.values.append(
            await workflow.execute_activity(double, value, start_to_close_timeout=MINUTE)
        )


@activity.defn
async def double(value: int) -> int:
    return value * 2


@scenario
async def many_signals(stage: Stage) -> Any:
    async with stage.worker([SignalsThenActs], [double]):
        handle = await stage.begin(SignalsThenActs)
        await asyncio.gather(*(handle.signal(SignalsThenActs.add, n) for n in range(30)))
        return sorted(await outcome(handle.result()))


@workflow.defn
class StackTraces:
    @workflow.run
    async def run(self) -> None:
        workflow.set_current_details("the **current** details")
        first = asyncio.create_task(self.waits(), name="named task")
        await asyncio.gather(first, self.sleeps())

    async def waits(self) -> None:
        await workflow.wait_condition(lambda: False)

    async def sleeps(self) -> None:
        await asyncio.sleep(1000)

    @workflow.signal(description="a signal")
    def sig(self) -> None: ...

    @workflow.update(description="an update")
    def upd(self) -> None: ...

    @workflow.query(description="a query")
    def ask(self) -> str:
        return workflow.get_current_details()


def _frames(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return [re.sub(r"Task-\d+", "Task", t.strip()) for t in text.splitlines() if "File" not in t]


@scenario
async def stack_traces_and_metadata(stage: Stage) -> Any:
    async with stage.worker([StackTraces]):
        handle = await stage.begin(StackTraces, suffix="traced")
        enhanced = await outcome(handle.query("__enhanced_stack_trace"))
        trace = await outcome(handle.query("__stack_trace"))
        return [
            sorted("\n".join(_frames(stack.strip())) for stack in trace.split("\n\n")),
            str(enhanced).count("stacks {"),
            await outcome(handle.query("__temporal_workflow_metadata")),
            await outcome(handle.query(StackTraces.ask)),
        ]
