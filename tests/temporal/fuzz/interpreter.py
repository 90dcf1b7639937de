"""The one workflow that runs every random program, and its activities.

A result has two parts. The `value` is what the program determines: it is the same on both cores.
The `trace` is everything that happened, in order, with times and random numbers: it is different
from run to run, but a replay must find exactly the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import (
    ApplicationError,
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

__all__ = ["ACTIVITIES", "KEYWORD", "WORKFLOWS", "Program", "Replays", "replays"]

KEYWORD = SearchAttributeKey.for_keyword("PerdureKeyword")
MASK = "?"

_SHORT = timedelta(milliseconds=10)
_LONG = timedelta(seconds=30)


class Replays:
    """What this process replays, by run id.

    `later` are those runs that the code of the next release replays: its patches are deprecated,
    its deprecated ones are gone. `ends` says how each replayed run ended: the kind of its last
    event and what that event holds, as JSON.
    """

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.later: set[str] = set()
        self.ends: dict[str, tuple[str, str]] = {}


replays = Replays()
_stumbled: set[str] = set()


@activity.defn
async def act(kind: str, number: int) -> Any:
    if kind == "fail":
        raise ApplicationError("no", number, type="Refused", non_retryable=True)
    if kind in {"retry", "exhaust"}:
        if activity.info().attempt < 3:
            raise ApplicationError("again")
        return f"attempt {activity.info().attempt}"
    if kind in {"slow", "timeout"}:
        for _ in range(1000):
            if not activity.info().is_local:
                activity.heartbeat(number)
            await asyncio.sleep(0.02)
    return number


def _described(error: BaseException | None) -> list[Any]:
    """The chain of errors, without texts that name ids."""
    chain: list[Any] = []
    while error is not None:
        chain.append(type(error).__name__)
        if isinstance(error, ApplicationError):
            chain += [error.type, error.message]
        error = error.__cause__
    return chain


@workflow.defn(name="Program")
class Program:
    @workflow.init
    def __init__(self, program: dict[str, Any], state: dict[str, Any]) -> None:
        self.program = program
        self.handled: dict[str, Any] = state.get("handled", {})
        self.values: list[Any] = state.get("values", [])
        self.pokes = state.get("pokes", 0)
        self.finished = state.get("finished", False)
        self.open: list[str] = state.get("open", [])
        self.position = state.get("position", 0)
        self.generation = state.get("generation", 0)
        self.reached: list[str] = []
        self.leaving = False
        self.trace: list[Any] = []
        self.numbers = 0

    @workflow.run
    async def run(self, program: dict[str, Any], state: dict[str, Any]) -> Any:
        first = self.generation == 0
        detached = [self.start(step) for step in program["detached"] if first]
        abandoned = [self.start(self.quiet(step)) for step in program["abandoned"] if first]
        cancelled = False
        try:
            await self.main(detached)
        except asyncio.CancelledError:
            _forget_cancellation()
            cancelled = True
            self.values.append("cancelled")
            self.values.append(await self.do(program["on_cancel"]))
        await self.settle(detached)
        if not program.get("child"):
            await workflow.wait_condition(lambda: self.finished)
            await workflow.wait_condition(workflow.all_handlers_finished)
        self.trace.append(["end", len(abandoned)])
        end = {"value": self.result(), "trace": self.trace}
        if cancelled and not program["swallow"]:
            self.ends("canceled", None)
            raise asyncio.CancelledError
        if program["end"] == "fail":
            raise ApplicationError("the end", self.ends("failed", end), type="End")
        return self.ends("completed", end)

    async def main(self, detached: list[asyncio.Task[Any]]) -> None:
        if self.program.get("poked"):
            await workflow.wait_condition(lambda: self.pokes > 0)
        while self.position < len(self.program["main"]):
            step = self.program["main"][self.position]
            self.position += 1
            if step["op"] == "continue":
                await self.settle(detached)
                self.leaving = True
                await workflow.wait_condition(workflow.all_handlers_finished)
                state = self.ends("continued_as_new", self.state())
                workflow.continue_as_new(args=[self.program, state])
            self.values.append(await self.do(step))

    async def settle(self, detached: list[asyncio.Task[Any]]) -> None:
        while detached:
            self.values.append(await detached.pop(0))

    def state(self) -> dict[str, Any]:
        return {
            "handled": self.handled,
            "values": self.values,
            "pokes": self.pokes,
            "finished": self.finished,
            "open": self.open,
            "position": self.position,
            "generation": self.generation + 1,
            "trace": self.trace,
        }

    def ends(self, kind: str, end: Any) -> Any:
        """Note how the run ends, if it is a replay."""
        run_id = workflow.info().run_id
        if run_id in replays.running:
            replays.ends.setdefault(run_id, (kind, json.dumps(end)))
        return end

    # Handlers

    @workflow.signal
    def poke(self) -> None:
        self.pokes += 1
        self.trace.append(["poked", self.pokes])

    @workflow.signal
    def finish(self) -> None:
        self.finished = True

    @workflow.signal
    def opened(self, gate: str) -> None:
        self.open.append(gate)

    @workflow.signal
    async def handle(self, key: str, step: dict[str, Any]) -> None:
        self.handled[key] = await self.do(step)

    @workflow.update
    async def at_gate(self, gate: str) -> bool:
        await workflow.wait_condition(lambda: gate in self.reached or self.leaving)
        return gate in self.reached

    @workflow.update
    async def answer(self, key: str, step: dict[str, Any], reject: bool) -> Any:
        value = await self.do(step)
        self.handled[key] = value
        return value

    @answer.validator
    def _check(self, key: str, step: dict[str, Any], reject: bool) -> None:
        if reject:
            raise ApplicationError("rejected")

    @workflow.query
    def result(self) -> Any:
        return {"values": self.values, "handled": sorted(self.handled.items())}

    @workflow.query
    def bad(self) -> None:
        raise ApplicationError("no answer")

    # Steps

    def start(self, step: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.do(step) if isinstance(step, dict) else step)

    async def quiet(self, step: dict[str, Any]) -> None:
        """Nobody looks at what becomes of it."""
        try:
            await self.do(step)
        except asyncio.CancelledError:
            self.trace.append(["abandoned"])

    async def do(self, step: dict[str, Any]) -> Any:
        value = await getattr(self, f"do_{step['op']}")(step)
        self.trace.append([step["op"], value, workflow.time()])
        return MASK if step.get("masked") else value

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    async def caught(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The outcome as a value; a cancellation goes on."""
        try:
            return await work
        except (FailureError, WorkflowAlreadyStartedError) as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            return _described(error)

    async def do_timer(self, step: dict[str, Any]) -> Any:
        millis = step["ms"]
        if step["random"]:
            millis += workflow.random().randrange(20)
        await workflow.sleep(timedelta(milliseconds=millis))
        return "slept"

    async def do_activity(self, step: dict[str, Any]) -> Any:
        kind, number = step["kind"], self.number()
        outcome = workflow.execute_activity(
            act,
            args=[kind, number],
            start_to_close_timeout=timedelta(seconds=1) if kind == "timeout" else _LONG,
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=_retry_policy(kind),
            cancellation_type=workflow.ActivityCancellationType(step["cancel_type"]),
        )
        return _without_number(await self.caught(outcome), number)

    async def do_local_activity(self, step: dict[str, Any]) -> Any:
        kind, number = step["kind"], self.number()
        outcome = workflow.execute_local_activity(
            act,
            args=[kind, number],
            start_to_close_timeout=timedelta(seconds=0.2) if kind == "timeout" else _LONG,
            retry_policy=_retry_policy(kind),
            local_retry_threshold=timedelta(milliseconds=1) if step["backoff"] else None,
            cancellation_type=workflow.ActivityCancellationType(step["cancel_type"]),
        )
        value = _without_number(await self.caught(outcome), number)
        # The compiled core names the activity in a live time-out, but not in a replayed one.
        return value[-1:] if kind == "timeout" else value

    async def do_forever(self, step: dict[str, Any]) -> Any:
        await workflow.wait_condition(lambda: False)

    async def do_wait(self, step: dict[str, Any]) -> Any:
        timeout = None if step["ms"] is None else timedelta(milliseconds=step["ms"])
        try:
            enough = step["pokes"]
            await workflow.wait_condition(lambda: self.pokes >= enough, timeout=timeout)
        except TimeoutError:
            return "timed out"
        return "poked"

    async def do_gate(self, step: dict[str, Any]) -> Any:
        self.reached.append(step["name"])
        await workflow.wait_condition(lambda: step["name"] in self.open)
        return "passed"

    async def do_patch(self, step: dict[str, Any]) -> Any:
        later = workflow.info().run_id in replays.later
        if not step["deprecated"] and not later:
            return workflow.patched(step["id"])
        if not step["deprecated"]:
            workflow.deprecate_patch(step["id"])
        elif not later:
            workflow.deprecate_patch(f"deprecated-{step['id']}")
        return True

    async def do_memo(self, step: dict[str, Any]) -> Any:
        workflow.upsert_memo({"note": step["value"]})
        return workflow.memo_value("note", type_hint=int)

    async def do_attribute(self, step: dict[str, Any]) -> Any:
        value = step["value"]
        workflow.upsert_search_attributes(
            [KEYWORD.value_set(value) if value else KEYWORD.value_unset()]
        )
        return workflow.info().typed_search_attributes.get(KEYWORD)

    async def do_random(self, step: dict[str, Any]) -> Any:
        self.trace.append([workflow.random().random(), str(workflow.uuid4())])
        return "drawn"

    async def do_look(self, step: dict[str, Any]) -> Any:
        info = workflow.info()
        self.trace.append([info.get_current_history_length(), info.is_continue_as_new_suggested()])
        return "seen"

    async def do_yield(self, step: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return "yielded"

    async def do_raise(self, step: dict[str, Any]) -> Any:
        raise ApplicationError("raised", type="Raised")

    async def do_stumble(self, step: dict[str, Any]) -> Any:
        """The task fails, once in each run."""
        run_id = workflow.info().run_id
        mark = f"{run_id}/{self.number()}"
        if run_id not in replays.running and mark not in _stumbled:
            _stumbled.add(mark)
            raise RuntimeError("stumbled")
        return "got up"

    async def do_external(self, step: dict[str, Any]) -> Any:
        info = workflow.info()
        missing = workflow.get_external_workflow_handle(f"{info.workflow_id}/missing")
        if step["kind"] == "cancel_missing":
            return await self.caught(missing.cancel())
        if step["kind"] == "signal_missing":
            return await self.caught(missing.signal("poke"))
        itself = workflow.get_external_workflow_handle(info.workflow_id)
        return await self.caught(itself.signal("nudge"))

    @workflow.signal
    def nudge(self) -> None:
        self.trace.append(["nudged"])

    async def do_child(self, step: dict[str, Any]) -> Any:
        return await self.caught(self.child(step))

    async def child(self, step: dict[str, Any]) -> Any:
        own = workflow.info().workflow_id
        if step["mode"] == "duplicate":
            program, step = _child_program({"op": "yield"}), {"cancel_type": 0, "policy": 1} | step
            name = own
        else:
            program = _child_program(step["body"], poked=step["mode"] == "poke")
            name = f"{own}/{self.generation}.{self.number()}"
        handle = await workflow.start_child_workflow(
            Program.run,
            args=[program, {}],
            id=name,
            cancellation_type=workflow.ChildWorkflowCancellationType(step["cancel_type"]),
            parent_close_policy=workflow.ParentClosePolicy(step["policy"]),
            task_timeout=timedelta(seconds=5),
        )
        if step["mode"] == "poke":
            await handle.signal(Program.poke)
        elif step["mode"] == "cancel":
            handle.cancel()
        elif step["mode"] == "cancel_external":
            await workflow.get_external_workflow_handle(handle.id).cancel()
        try:
            return (await handle)["value"]["values"]
        except (FailureError, asyncio.CancelledError) as error:
            expected = step["mode"].startswith("cancel") and not _cancelled_from_outside()
            if expected and is_cancelled_exception(error):
                return "child cancelled"
            raise

    async def do_sequence(self, step: dict[str, Any]) -> Any:
        return [await self.do(one) for one in step["steps"]]

    async def do_gather(self, step: dict[str, Any]) -> Any:
        return list(await asyncio.gather(*(self.do(one) for one in step["steps"])))

    async def do_first(self, step: dict[str, Any]) -> Any:
        tasks = [self.start(one) for one in step["steps"]]
        try:
            await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [number for number, task in enumerate(tasks) if task.done()]
            for task in tasks:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return [[number, _shown(outcomes[number])] for number in ended]

    async def do_cancel(self, step: dict[str, Any]) -> Any:
        task = self.start(step["body"])
        try:
            if step["after"] is not None:
                await self.do(step["after"])
        finally:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if _cancelled_from_outside():
                raise
            return "cancelled"

    async def do_attempt(self, step: dict[str, Any]) -> Any:
        try:
            value = await self.do(step["body"])
        except asyncio.CancelledError:
            _forget_cancellation()
            after = await self.do(step["after"])
            if step["swallow"]:
                return ["swallowed", after]
            raise
        return [value, await self.do(step["after"])]


def _cancelled_from_outside() -> bool:
    """Whether somebody cancelled the running task itself, not what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _retry_policy(kind: str) -> RetryPolicy:
    attempts = {"exhaust": 2, "slow": 1, "timeout": 1}.get(kind, 0)
    return RetryPolicy(initial_interval=_SHORT, backoff_coefficient=1.0, maximum_attempts=attempts)


def _without_number(value: Any, number: int) -> Any:
    """Numbers are given in the order of starting, which races decide."""
    return "own number" if value == number else value


def _shown(outcome: Any) -> Any:
    return _described(outcome) if isinstance(outcome, BaseException) else outcome


def _child_program(step: dict[str, Any], *, poked: bool = False) -> dict[str, Any]:
    return {
        "child": True,
        "poked": poked,
        "main": [step],
        "detached": [],
        "abandoned": [],
        "on_cancel": {"op": "yield"},
        "swallow": False,
        "end": "return",
    }


ACTIVITIES: list[Callable[..., Any]] = [act]
WORKFLOWS = [Program]
