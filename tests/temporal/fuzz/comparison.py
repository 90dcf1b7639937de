"""Runs a program on both cores and says what does not agree.

For each program:

* both cores run it live, with the same client actions; the determined part of the outcomes
  (the end's kind and value, answers to updates, a query after the end) is the same;
* the histories of all runs on our core, of children too, replay on both cores without
  nondeterminism, and each ends exactly as its last event says, times and random numbers included;
* the histories of the compiled core end on ours as they do when the compiled core replays them;
* they also replay by the code of the next release, whose patches are deprecated or gone.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError, RPCStatusCode
from tests.temporal.fuzz.compiled import compiled_host
from tests.temporal.fuzz.host import host, queue_of, quiet_client
from tests.temporal.fuzz.interpreter import Program

__all__ = ["Cores", "Workers", "both_cores", "disagreements", "disagreements_of_all"]

T = TypeVar("T")

LIVENESS = 120.0
_CLOSES = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "completed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "canceled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "continued_as_new",
}


class Workers(Protocol):
    """What both kinds of host can do."""

    async def evict(self, run_id: str) -> None: ...

    async def replay(self, histories: dict[str, list[str]], *, later: bool) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Cores:
    """The workers of each core by name, with the prefix of their queues, and a client."""

    client: Client
    workers: dict[str, Workers]
    prefixes: dict[str, str]


@asynccontextmanager
async def both_cores(server: str) -> AsyncIterator[Cores]:
    """Our core in this process, the compiled one in another, at the same server."""
    client = await quiet_client(server)
    prefixes = {name: f"{name}-{uuid.uuid4()}" for name in ("ours", "compiled")}
    async with (
        host(client, prefixes["ours"]) as ours,
        compiled_host(server, prefixes["compiled"]) as compiled,
    ):
        yield Cores(client, {"ours": ours, "compiled": compiled}, prefixes)


async def disagreements_of_all(
    cores: Cores, programs: Sequence[dict[str, Any]], *, at_once: int = 6
) -> list[list[str]]:
    """What does not agree of each program; some of them run at the same time."""
    turns = asyncio.Semaphore(at_once)

    async def one(program: dict[str, Any]) -> list[str]:
        async with turns:
            try:
                return await disagreements(cores, program)
            except Exception:  # the other programs still have something to say
                return [f"the client failed: {traceback.format_exc()}"]

    return await asyncio.gather(*map(one, programs))


async def disagreements(cores: Cores, program: dict[str, Any]) -> list[str]:
    """What does not agree when a program runs on both cores; nothing if all is well."""
    names = list(cores.workers)
    runs = [_Run(cores, name, program) for name in names]
    try:
        async with asyncio.timeout(LIVENESS):
            outcomes = await asyncio.gather(
                *(run.outcome() for run in runs), return_exceptions=True
            )
    except TimeoutError:
        return [f"no end in {LIVENESS:.0f} s: {await run.where()}" for run in runs]
    finally:
        await asyncio.gather(*(run.stop() for run in runs))
    problems = []
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            text = f"the client of {name} failed: {outcome!r}"
            if name == names[0]:
                return [text]
            # What the other core did not answer is no expectation. (The compiled one was seen to
            # leave a query that fails without an answer when it caches nothing.)
            sys.stderr.write(f"set aside: {text}\n")
        elif outcome != outcomes[0]:
            problems.append(f"outcomes differ: {names[0]} {outcomes[0]}, {name} {outcome}")
    for name, run, outcome in zip(names, runs, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            continue
        histories = await run.histories()
        found = await _replays(cores, histories, of_ours=name == names[0])
        problems += [f"of {name}: {problem}" for problem in found]
    return problems


async def _replays(
    cores: Cores, histories: dict[str, WorkflowHistory], *, of_ours: bool
) -> list[str]:
    """How replays end otherwise than expected.

    Ours must be repeated by both cores. The compiled core does not always repeat its own (the time
    after an abandoned local activity): then ours must do what the compiled one does.
    """
    problems = []
    texts = {
        run_id: [history.workflow_id, history.to_json()] for run_id, history in histories.items()
    }
    for later in (False, True):
        ends = {
            name: await workers.replay(texts, later=later)
            for name, workers in cores.workers.items()
        }
        how = "later code" if later else "replay"
        for run_id, history in histories.items():
            kind, closed = _close(history)
            expected = [kind, closed] if of_ours else ends["compiled"][run_id]
            for name in ends:
                found = ends[name][run_id]
                if kind == "unfinished" and found[0] != "error":
                    continue
                if found != expected:
                    problems.append(f"{how} of {run_id} on {name}: {found} for {expected}")
    return problems


def _close(history: WorkflowHistory) -> tuple[str, Any]:
    """How the last event says that the run ended, in the words of the interpreter."""
    event = history.events[-1]
    kind = _CLOSES.get(event.event_type, "unfinished")
    payloads: Any = ()
    if kind == "completed":
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
    elif kind == "failed":
        failure = event.workflow_execution_failed_event_attributes.failure
        payloads = failure.application_failure_info.details.payloads
    elif kind == "continued_as_new":
        payloads = event.workflow_execution_continued_as_new_event_attributes.input.payloads
    if not payloads:
        return kind, None
    return kind, PayloadConverter.default.from_payload(payloads[-1])


class _Run:
    """One program on one core, with its client."""

    def __init__(self, cores: Cores, name: str, program: dict[str, Any]) -> None:
        self.client = cores.client
        self.workers = cores.workers[name]
        self.queue = queue_of(cores.prefixes[name], program["cache"])
        self.program = program
        self.id = f"program-{uuid.uuid4()}"
        self.answers: dict[str, Any] = {}
        self.handle: WorkflowHandle[Any, Any]

    async def outcome(self) -> Any:
        """Run it with all the client does; the part that must be the same on each core."""
        self.handle = await self.client.start_workflow(
            Program.run,
            args=[self.program, {}],
            id=self.id,
            task_queue=self.queue,
            task_timeout=timedelta(seconds=5),
        )
        async with asyncio.TaskGroup() as updates:
            await self.act(self.program["free"], updates)
            for step in self.program["main"]:
                if step["op"] == "gate" and not await self.gate(step["name"], updates):
                    break
        await self.handle.signal(Program.finish)
        end = await self.end()
        result = await _when_ready(lambda: self.handle.query(Program.result))
        return [end, result, dict(sorted(self.answers.items()))]

    async def gate(self, name: str, updates: asyncio.TaskGroup) -> bool:
        """Act at a gate; whether the workflow goes on from it."""
        while not await self.at_gate(name):
            pass
        actions = self.program["gates"][name]
        await self.act(actions, updates)
        if any(action["act"] == "cancel" for action in actions):
            return False
        await self.handle.signal(Program.opened, name)
        return True

    async def at_gate(self, name: str) -> bool:
        """Wait until it is at the gate; False if the run continued as new meanwhile."""
        try:
            return await _when_ready(lambda: self.handle.execute_update(Program.at_gate, name))
        except (WorkflowUpdateFailedError, RPCError):
            if not any(step["op"] == "continue" for step in self.program["main"]):
                raise
            return False

    async def end(self) -> Any:
        try:
            return ["completed", (await self.handle.result())["value"]]
        except WorkflowFailureError as error:
            if isinstance(error.cause, ApplicationError):
                return ["failed", error.cause.message, error.cause.details[0]["value"]]
            return ["canceled", isinstance(error.cause, CancelledError)]

    async def act(self, actions: list[dict[str, Any]], updates: asyncio.TaskGroup) -> None:
        for action in actions:
            match action["act"]:
                case "signal":
                    await self.handle.signal(Program.handle, args=[action["key"], action["body"]])
                case "poke":
                    await self.handle.signal(Program.poke)
                case "update":
                    updates.create_task(self.update(action))
                case "query":
                    await _when_ready(lambda: self.handle.query(Program.result))
                case "bad_query":
                    await self.bad_query()
                case "evict":
                    await self.workers.evict((await self.handle.describe()).run_id)
                case "pause":
                    await asyncio.sleep(action["ms"] / 1000)
                case "cancel":
                    await self.handle.cancel()
                case other:
                    raise AssertionError(other)

    async def update(self, action: dict[str, Any]) -> None:
        arguments = [action["key"], action["body"], action["reject"]]
        try:
            answer = await _when_ready(
                lambda: self.handle.execute_update(Program.answer, args=arguments)
            )
        except WorkflowUpdateFailedError as error:
            if not isinstance(error.cause, ApplicationError):
                raise
            answer = ["failed", error.cause.type, error.cause.message]
        self.answers[action["key"]] = answer

    async def bad_query(self) -> None:
        with pytest.raises(WorkflowQueryFailedError, match="no answer"):
            await _when_ready(lambda: self.handle.query(Program.bad))

    async def where(self) -> str:
        """What happened last, for a run that does not end."""
        history = await self.client.get_workflow_handle(self.id).fetch_history()
        names = [EventType.Name(event.event_type)[len("EVENT_TYPE_") :] for event in history.events]
        return f"{self.queue} {' '.join(names[-30:])}"

    async def stop(self) -> None:
        """Terminate it if it still runs."""
        handle = self.client.get_workflow_handle(self.id)
        if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
            await _if_there(handle.terminate())

    async def histories(self) -> dict[str, WorkflowHistory]:
        """Of each of its runs and of its children's, by run id."""
        found: dict[str, WorkflowHistory] = {}
        first = self.handle.first_execution_run_id
        assert first is not None
        left = [(self.id, first)]
        while left:
            workflow_id, run_id = left.pop()
            handle = self.client.get_workflow_handle(workflow_id, run_id=run_id)
            found[run_id] = history = await handle.fetch_history()
            for event in history.events:
                left += _followed(workflow_id, event)
        return found


def _followed(workflow_id: str, event: HistoryEvent) -> list[tuple[str, str]]:
    if event.HasField("workflow_execution_continued_as_new_event_attributes"):
        attributes = event.workflow_execution_continued_as_new_event_attributes
        return [(workflow_id, attributes.new_execution_run_id)]
    if event.HasField("child_workflow_execution_started_event_attributes"):
        child = event.child_workflow_execution_started_event_attributes.workflow_execution
        return [(child.workflow_id, child.run_id)]
    return []


async def _when_ready(call: Callable[[], Awaitable[T]]) -> T:
    """Call again while the server refuses, because the last workflow task failed."""
    while True:
        try:
            return await call()
        except RPCError as error:
            refused = error.status is RPCStatusCode.FAILED_PRECONDITION
            if not refused or "Workflow Task in failed state" not in error.message:
                raise
        await asyncio.sleep(0.05)


async def _if_there(call: Awaitable[Any]) -> None:
    try:
        await call
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
