"""Calls of Nexus operations, and how each of them ends: the same on every core.

As a program (`python -m tests.temporal.support.nexus_stories ADDRESS`) it tells them on the
compiled core, prints what it saw, reads the histories another core has left, replays them and
prints how many.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from temporalio.api.nexus.v1 import EndpointSpec, EndpointTarget
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.worker import Replayer, Worker
from tests.temporal.support.nexus_sample import WORKFLOWS, Ask, Call, Desk, Threads

__all__ = [
    "STORIES",
    "Told",
    "create_endpoint",
    "described",
    "replay_all",
    "tell",
    "until",
    "wait_for",
]

_SHORT = 3.0
"""The shortest time-out with which the server still delivers an operation, and some more."""

_ENDLESS = ("WAIT_COMPLETED", "door")
"""The way to cancel and the operation that only a time-out ends."""

_HANDLER_ERRORS = (
    "BAD_REQUEST",
    "UNAUTHENTICATED",
    "UNAUTHORIZED",
    "NOT_FOUND",
    "REQUEST_TIMEOUT",
    "CONFLICT",
    "RESOURCE_EXHAUSTED",
    "INTERNAL",
    "NOT_IMPLEMENTED",
    "UNAVAILABLE",
    "UPSTREAM_TIMEOUT",
)

STORIES: dict[str, dict[str, Any]] = {
    "nexus_basic": {"operation": "greet", "input": "you"},
    "in a thread": {"operation": "greet", "input": "you", "service": "Threads"},
    "headers": {"operation": "headers", "headers": {"X-Mixed-Case": "Value"}},
    "surroundings": {"operation": "surroundings"},
    "nexus_async": {"operation": "order", "input": "books"},
    "a workflow by the Temporal client": {"operation": "errand", "input": "bread"},
    "a workflow that fails": {"operation": "order", "input": "fail"},
    "input of another type": {"operation": "order", "input": 17},
    "no such operation": {"operation": "nothing"},
    "no such service": {"operation": "greet", "service": "Nobody"},
    "a retried failure": {"operation": "fail", "input": "bug", "schedule_to_close": _SHORT},
    **{
        f"fails: {kind}": {"operation": "fail", "input": kind}
        for kind in ("failed", "canceled", "application", *_HANDLER_ERRORS)
    },
    # Time-outs
    "too late": {"operation": "wait", "schedule_to_close": _SHORT},
    "too late in a thread": {
        "operation": "wait",
        "service": "Threads",
        "schedule_to_close": _SHORT,
    },
    "nobody starts it": {"operation": "greet", "endpoint": "nobody", "schedule_to_start": 2},
    "it does not close": {"operation": "door", "input": "open", "start_to_close": 1},
    # Cancellation
    **{
        f"nexus_cancel_before_start: {kind}": {
            "operation": "order",
            "input": "wait",
            "cancel": "before",
            "cancellation_type": kind,
        }
        for kind in ("WAIT_COMPLETED", "ABANDON", "TRY_CANCEL", "WAIT_REQUESTED")
    },
    **{
        f"nexus_cancellation_types: {kind}, {operation} {input}": {
            "operation": operation,
            "input": input,
            "cancel": "started",
            "cancellation_type": kind,
            **(
                {"schedule_to_close": _SHORT}
                if (kind, operation) == ("WAIT_COMPLETED", "door")
                else {}
            ),
        }
        for kind in ("WAIT_COMPLETED", "ABANDON", "TRY_CANCEL", "WAIT_REQUESTED")
        for operation, input in (("order", "wait"), ("door", "open"), ("door", "locked"))
    },
}
"""By name, what the caller asks for."""


@dataclass
class Told:
    """How every story ended, what handlers were told, and the histories of the callers."""

    ends: dict[str, Any]
    reasons: list[str | None]
    histories: dict[str, str]


async def create_endpoint(client: Client, task_queue: str) -> str:
    """An endpoint that leads to the task queue; its name."""
    name = f"endpoint-{task_queue}"
    worker = EndpointTarget.Worker(namespace=client.namespace, task_queue=task_queue)
    spec = EndpointSpec(name=name, target=EndpointTarget(worker=worker))
    await client.operator_service.create_nexus_endpoint(CreateNexusEndpointRequest(spec=spec))
    return name


async def wait_for(handle: WorkflowHandle[Any, Any], attributes: str) -> None:
    """Until the history has an event of this kind."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.WhichOneof("attributes") == f"{attributes}_event_attributes":
            return


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again."""
    while True:
        if await condition():
            return
        await asyncio.sleep(0.05)


def described(error: BaseException | None) -> list[dict[str, str]]:
    """An error and its causes, with everything a user may look at."""
    chain = []
    while error is not None:
        names = ("type", "retryable", "non_retryable", "details", "service", "operation")
        fields = {name: str(getattr(error, name)) for name in names if hasattr(error, name)}
        chain.append({"class": type(error).__name__, "text": str(error), **fields})
        error = error.__cause__
    return chain


async def tell(client: Client) -> Told:
    """Let all stories happen, at the same time."""
    queue = str(uuid.uuid4())
    endpoint = await create_endpoint(client, queue)
    nobody = await create_endpoint(client, str(uuid.uuid4()))
    desk, threads = Desk(), Threads()
    histories: dict[str, str] = {}

    async def story(name: str, ask: dict[str, Any]) -> Any:
        id = str(uuid.uuid4())
        given = dict(ask)
        if given["operation"] in {"order", "errand"} and isinstance(given["input"], str):
            given["input"] = [f"order-{id}", given["input"]]
        if given["operation"] == "surroundings":
            given["input"] = id
        given["endpoint"] = nobody if "endpoint" in given else endpoint
        handle = await client.start_workflow(Call.run, Ask(**given), id=id, task_queue=queue)
        try:
            end = await handle.result()
        except WorkflowFailureError as error:
            end = described(error)
        histories[name] = (await handle.fetch_history()).to_json()
        return json.loads(json.dumps(end).replace(queue, "QUEUE"))

    with ThreadPoolExecutor(20) as executor:
        async with Worker(
            client,
            task_queue=queue,
            workflows=WORKFLOWS,
            nexus_service_handlers=[desk, threads],
            nexus_task_executor=executor,
        ):
            ends = await asyncio.gather(*(story(*one) for one in STORIES.items()))
    return Told(dict(zip(STORIES, ends, strict=True)), desk.reasons + threads.reasons, histories)


async def replay_all(histories: dict[str, str]) -> int:
    """Replay them; how many, when all can be replayed."""

    async def read() -> AsyncIterator[WorkflowHistory]:
        for name, history in histories.items():
            yield WorkflowHistory.from_json(name, history)

    await Replayer(workflows=WORKFLOWS).replay_workflows(read())
    return len(histories)


async def main(address: str) -> None:
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    runtime = Runtime(telemetry=TelemetryConfig(logging=quiet))  # its log goes to stdout
    told = await tell(await Client.connect(address, runtime=runtime))
    sys.stdout.write(json.dumps(vars(told)) + "\n")
    sys.stdout.flush()
    replayed = await replay_all(json.loads(sys.stdin.readline()))
    sys.stdout.write(json.dumps(replayed) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
