"""Limits of a namespace and warnings of a client (official `test_payload_size_limits`).

The server refuses payloads over 100 kB and memos over 3 kB, and takes completions in pages.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity, workflow
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import PayloadLimitsConfig, RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

PAYLOADS_ERROR = "[TMPRL1103] Attempted to upload payloads with size that exceeded the error limit."
MEMO_ERROR = "[TMPRL1103] Attempted to upload memo with size that exceeded the error limit."
PAYLOADS_WARNING = (
    "[TMPRL1103] Attempted to upload payloads with size that exceeded the warning limit."
)
MEMO_WARNING = "[TMPRL1103] Attempted to upload memo with size that exceeded the warning limit."


@activity.defn
async def letters(count: int) -> str:
    return "x" * count


@activity.defn
async def length(text: str) -> int:
    return len(text)


@activity.defn
async def large_heartbeat() -> str:
    activity.heartbeat("x" * 150_000)
    await asyncio.Event().wait()
    return "the activity is cancelled, because it is reported as failed"


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> None: ...


@workflow.defn
class Sizes:
    def __init__(self) -> None:
        self.small = False

    @workflow.run
    async def run(self, what: str, size: int) -> Any:
        if what == "result":
            return "x" * self.now(size)
        if what == "input":
            text = "x" * self.now(size)
            return await workflow.execute_activity(
                length, text, schedule_to_close_timeout=timedelta(seconds=30)
            )
        if what == "memo":
            return await workflow.execute_child_workflow(
                Child.run, memo={"text": "x" * self.now(size)}
            )
        if what == "many":
            return sum(
                await asyncio.gather(
                    *(
                        workflow.execute_activity(
                            length,
                            "x" * size,
                            schedule_to_close_timeout=timedelta(seconds=30),
                        )
                        for _ in range(40)
                    )
                )
            )
        if what == "wait":
            await workflow.wait_condition(lambda: self.small)
            return None
        return await workflow.execute_activity(
            what,
            args=[size] if size else [],
            schedule_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=5),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )

    def now(self, size: int) -> int:
        """The code is mended after the first attempt: what it makes is small then."""
        return 10 if BROKEN.get(workflow.info().workflow_id) == "mended" else size

    @workflow.query
    def letters(self, count: int) -> str:
        return "x" * count


BROKEN: dict[str, str] = {}


class Captured(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        log = record.__dict__["temporal_log"]
        if "TMPRL1103" in log.message:
            self.records.append((record.levelname, log.message, log.fields["size"]))

    async def has(self, level: str, message: str, times: int = 1) -> int:
        """The size in the record, which may take a moment to arrive."""
        while True:
            sizes = [size for *found, size in self.records if found == [level, message]]
            if len(sizes) >= times:
                return sizes[0]
            await asyncio.sleep(0.01)


@pytest.fixture
def captured() -> Iterator[Captured]:
    logger, handler = logging.getLogger(f"core-{uuid.uuid4()}"), Captured()
    logger.addHandler(handler)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)


@pytest_asyncio.fixture
async def client(strict_server: str, captured: Captured) -> Client:
    (logger,) = (
        one
        for one in logging.root.manager.loggerDict.values()
        if isinstance(one, logging.Logger) and captured in one.handlers
    )
    logs = LoggingConfig(filter="WARN", forwarding=LogForwardingConfig(logger=logger))
    return await Client.connect(
        strict_server,
        runtime=Runtime(telemetry=TelemetryConfig(logging=logs)),
        payload_limits=PayloadLimitsConfig(payloads_warn_size=20_000, memo_warn_size=1_000),
    )


def worker(client: Client, *, guarded: bool = True) -> Worker:
    return Worker(
        client,
        task_queue=str(uuid.uuid4()),
        workflows=[Sizes, Child],
        activities=[letters, length, large_heartbeat],
        disable_payload_error_limit=not guarded,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def start(client: Client, of: Worker, what: str, size: int = 0) -> WorkflowHandle[Sizes, Any]:
    return await client.start_workflow(
        Sizes.run,
        args=[what, size],
        id=str(uuid.uuid4()),
        task_queue=of.task_queue,
        task_timeout=timedelta(seconds=1),
    )


async def failed_tasks(handle: WorkflowHandle[Sizes, Any]) -> list[tuple[str, str, str]]:
    failed = [
        event.workflow_task_failed_event_attributes
        async for event in handle.fetch_history_events()
        if event.HasField("workflow_task_failed_event_attributes")
    ]
    return [
        (
            WorkflowTaskFailedCause.Name(one.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_"),
            one.failure.message,
            one.failure.application_failure_info.type,
        )
        for one in failed
    ]


@pytest.mark.parametrize(
    ("what", "size", "error"),
    [
        ("result", 150_000, PAYLOADS_ERROR),
        ("input", 150_000, PAYLOADS_ERROR),
        ("memo", 4_000, MEMO_ERROR),
    ],
)
async def test_payloads_too_large_doesnt_spam_task_fails(
    client: Client, captured: Captured, what: str, size: int, error: str
) -> None:
    """Catalogue row payloads_too_large_doesnt_spam_task_fails: once, and mended code goes on."""
    async with asyncio.timeout(30):
        async with worker(client) as running:
            handle = await start(client, running, what, size)
            assert await captured.has("ERROR", error) > size
            await captured.has("ERROR", error, times=2)
            BROKEN[handle.id] = "mended"
            await handle.result()
        assert await failed_tasks(handle) == [("PAYLOADS_TOO_LARGE", error, "PayloadsTooLarge")]


async def test_without_the_limit_the_server_itself_decides(client: Client) -> None:
    async with worker(client, guarded=False) as running:
        handle = await start(client, running, "result", 150_000)
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 30)
    ((cause, message, _),) = await failed_tasks(handle)
    assert cause == "BAD_SCHEDULE_ACTIVITY_ATTRIBUTES"
    assert message.endswith("Result exceeds size limit.")


@pytest.mark.parametrize(("what", "size"), [("letters", 150_000), ("large_heartbeat", 0)])
async def test_an_activity_with_too_much_to_say_fails(
    client: Client, captured: Captured, what: str, size: int
) -> None:
    async with worker(client) as running:
        handle = await start(client, running, what, size)
        with pytest.raises(WorkflowFailureError) as raised:
            await asyncio.wait_for(handle.result(), 30)
    assert isinstance(raised.value.cause, ActivityError)
    failure = raised.value.cause.cause
    assert isinstance(failure, ApplicationError)
    assert (failure.type, failure.message) == ("PayloadsTooLarge", PAYLOADS_ERROR)
    assert await captured.has("ERROR", PAYLOADS_ERROR) == 150_034


async def test_large_payloads_are_warned_of_and_sent(client: Client, captured: Captured) -> None:
    async with worker(client) as running:
        handle = await start(client, running, "letters", 60_000)
        assert await asyncio.wait_for(handle.result(), 30) == "x" * 60_000
    assert await captured.has("WARNING", PAYLOADS_WARNING) == 60_034
    assert all(level == "WARNING" for level, _, _ in captured.records)


async def test_a_client_warns_and_leaves_the_error_to_the_server(
    client: Client, captured: Captured
) -> None:
    with pytest.raises(RPCError, match="Blob data size exceeds limit"):
        await client.start_workflow(
            Sizes.run, args=["x" * 150_000, 1], id="large", task_queue="none"
        )
    with pytest.raises(RPCError, match="Memo size exceeds limit"):
        await client.start_workflow(
            Sizes.run, args=["", 1], id="large", task_queue="none", memo={"text": "x" * 4_000}
        )
    assert await asyncio.wait_for(captured.has("WARNING", PAYLOADS_WARNING), 10) > 150_000
    assert await asyncio.wait_for(captured.has("WARNING", MEMO_WARNING), 10) > 4_000


async def test_a_large_answer_to_a_query_fails_the_query(client: Client) -> None:
    async with worker(client) as running:
        handle = await start(client, running, "wait")
        with pytest.raises(WorkflowQueryFailedError, match="exceeds limit"):
            await handle.query(Sizes.letters, 150_000)
        with pytest.raises(WorkflowQueryFailedError, match="GRPC Message too large"):
            await handle.query(Sizes.letters, 5_000_000)
        await handle.terminate()


async def test_many_commands_go_to_the_server_in_pages(client: Client) -> None:
    """More than a page of commands, which the server puts together again (`IT/pagination_tests`
    has no counterpart in Python)."""
    async with worker(client) as running:
        handle = await start(client, running, "many", 95_000)
        assert await asyncio.wait_for(handle.result(), 30) == 40 * 95_000
    assert await failed_tasks(handle) == []
