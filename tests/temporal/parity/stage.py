"""The stage of one scenario: a task queue of its own, workers, and answers made comparable.

A scenario is a coroutine that gets a stage and returns something printable: results, chains of
exceptions, histories. Whatever differs from run to run (ids, times, identities) is taken out here,
so that two runs on two cores can be compared as text.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.json_format import MessageToDict
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

__all__ = ["SCENARIOS", "Stage", "chain", "events", "outcome", "scenario"]

Scenario = Callable[["Stage"], Awaitable[Any]]
SCENARIOS: dict[str, Scenario] = {}

_FOLDERS = re.compile(r"(?:/[\w.+-]+)+/(?=[\w-]+\.py\b)")
_NAMES = re.compile(r"Task-\d+|\d+@[\w.-]+|\b[0-9a-f]{32}\b|0x[0-9a-f]+")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VOLATILE = {
    "identity",
    "requestId",
    "binaryChecksum",
    "workerVersion",
    "historySizeBytes",
    "stackTrace",
    "taskToken",
    "workerInstanceKey",
    "externalPayloads",
    "firstWorkflowTaskBackoff",
    "namespace",
    "namespaceId",
    "prevAutoResetPoints",
}


def scenario(function: Scenario) -> Scenario:
    """Add a scenario to the list, under the names of its module and itself."""
    module = function.__module__.rpartition(".")[2]
    SCENARIOS[f"{module}.{function.__name__}"] = function
    return function


def chain(error: BaseException | None) -> list[str]:
    """An exception and its causes, outermost first, with what they say."""
    lines: list[str] = []
    while error is not None and len(lines) < 12:
        extra = []
        for name in (
            "type",
            "details",
            "non_retryable",
            "retry_state",
            "category",
            "next_retry_delay",
            "last_heartbeat_details",
            "status",
            "activity_id",
            "activity_type",
            "workflow_type",
        ):
            value = getattr(error, name, None)
            if isinstance(error, UnicodeError) or value is None or callable(value):
                continue
            extra.append(f"{name}={_plain(value)}")
        lines.append(f"{type(error).__name__}({error}) {' '.join(extra)}".strip())
        error = getattr(error, "cause", None) or error.__cause__
    return lines


def _plain(value: Any) -> Any:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else value


async def outcome(awaitable: Awaitable[Any], seconds: float = 60) -> Any:
    """The result, or the chain of the exception."""
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except Exception as error:
        return chain(error)


def events(history: Iterable[HistoryEvent]) -> list[str]:
    """One line an event: its type and its lasting attributes."""
    return [_line(event) for event in history]


def _line(event: HistoryEvent) -> str:
    name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
    attributes = getattr(event, event.WhichOneof("attributes") or "")
    fields = _lasting(MessageToDict(attributes))
    if fields.get("markerName") == "core_local_activity":
        _unwrap(fields)
    if event.HasField("user_metadata"):
        fields["userMetadata"] = _lasting(MessageToDict(event.user_metadata))
    if event.event_group_markers:
        fields["groups"] = [_lasting(MessageToDict(group)) for group in event.event_group_markers]
    return f"{event.event_id} {name} {fields}"


def _unwrap(marker: dict[str, Any]) -> None:
    """Markers of local activities that were cancelled or timed out differ on purpose.

    The compiled core records the bare failure, and a replay shows lang that instead of what it saw
    when it happened; ours records what lang saw.
    """
    failure = marker.get("failure", {})
    if failure.get("message") in ("Local Activity cancelled", "Local Activity timed out"):
        marker["failure"] = failure["cause"]
    if marker.get("failure", {}).get("message") in ("Activity cancelled", "Activity timed out"):
        data = marker["details"]["data"]["payloads"]
        data[0] = re.sub(r'"attempt":\d+', '"attempt":0', data[0])


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "metadata" in value and set(value) <= {"metadata", "data"}:
            return _payload(value)
        if "kind" in value and "name" in value:
            return value["kind"].removeprefix("TASK_QUEUE_KIND_").lower()
        fields = {
            key: _lasting_field(key, inner)
            for key, inner in sorted(value.items())
            if key not in _VOLATILE and not key.endswith(("Time", "Timestamp"))
        }
        return {key: inner for key, inner in fields.items() if inner != {}}
    if isinstance(value, list):
        return [_lasting(inner) for inner in value]
    return value


def _lasting_field(key: str, value: Any) -> Any:
    if key == "coreUsedFlags":
        return sorted(value)
    # They hold stack traces, and with them where the tests lie.
    return "<encoded>" if key == "encodedAttributes" else _lasting(value)


def _payload(value: Mapping[str, Any]) -> str:
    kinds = {
        key: base64.b64decode(text).decode() for key, text in sorted(value["metadata"].items())
    }
    data = base64.b64decode(value.get("data", ""))
    if kinds.get("encoding") == "json/plain" and b"complete_time" in data:
        data = re.sub(rb'"(seconds|nanos)":\s*\d+', rb'"\1":0', data)
    text = data.decode(errors="replace")
    return text if kinds == {"encoding": "json/plain"} else f"{kinds} {text}"


@dataclass
class Stage:
    """Where one scenario plays."""

    client: Client
    prefix: str
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    @classmethod
    def new(cls, client: Client) -> Stage:
        return cls(client, f"stage{uuid.uuid4().hex}")

    @property
    def queue(self) -> str:
        return self.prefix

    def name(self, suffix: str = "") -> str:
        """An id that is this scenario's own."""
        return f"{self.prefix}-{suffix}" if suffix else f"{self.prefix}-{uuid.uuid4()}"

    def worker(
        self, workflows: Iterable[type] = (), activities: Iterable[Any] = (), **options: Any
    ) -> Worker:
        """A worker of the stage's queue."""
        options.setdefault("task_queue", self.queue)
        options.setdefault("max_heartbeat_throttle_interval", timedelta(milliseconds=100))
        client = options.pop("client", self.client)
        return Worker(client, workflows=list(workflows), activities=list(activities), **options)

    async def start(
        self, workflow: Any, *arguments: Any, suffix: str = "", **options: Any
    ) -> WorkflowHandle[Any, Any]:
        options.setdefault("task_queue", self.queue)
        options.setdefault("id", self.name(suffix))
        client = options.pop("client", self.client)
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(
            getattr(workflow, "run", workflow), args=list(arguments), **options
        )
        return handle

    async def begin(
        self, workflow: Any, *arguments: Any, **options: Any
    ) -> WorkflowHandle[Any, Any]:
        """Start a workflow, and wait until its first task is done."""
        handle = await self.start(workflow, *arguments, **options)
        await self.until(handle, "WORKFLOW_TASK_COMPLETED")
        return handle

    async def run(self, workflow: Any, *arguments: Any, **options: Any) -> Any:
        """What a workflow comes to."""
        try:
            handle = await self.start(workflow, *arguments, **options)
        except Exception as error:
            return chain(error)
        return await outcome(handle.result())

    async def history(self, handle: WorkflowHandle[Any, Any]) -> list[str]:
        return events((await handle.fetch_history()).events)

    async def until(
        self, handle: WorkflowHandle[Any, Any], kind: str, count: int = 1
    ) -> list[HistoryEvent]:
        """Wait until the history has events of a kind; returns them."""
        wanted = EventType.Value(f"EVENT_TYPE_{kind}")
        while True:
            found = [
                event
                for event in (await handle.fetch_history()).events
                if event.event_type == wanted
            ]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)

    @contextmanager
    def logs(self, level: int = logging.WARNING) -> Iterator[list[str]]:
        """The lines the SDK logs for this stage."""
        handler = _Collector(self.prefix, level)
        logger = logging.getLogger("temporalio")
        logger.addHandler(handler)
        try:
            yield handler.lines
        finally:
            logger.removeHandler(handler)

    @contextmanager
    def warned(self) -> Iterator[list[str]]:
        """The warnings that name this stage."""
        found: list[str] = []
        _WARNED[self.prefix] = found
        try:
            yield found
        finally:
            del _WARNED[self.prefix]

    def comparable(self, value: Any) -> Any:
        """The same for every run of the scenario."""
        if isinstance(value, Mapping):
            return {str(key): self.comparable(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.comparable(inner) for inner in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, datetime):
            return "<time>"
        if isinstance(value, timedelta):
            return str(value)
        text = _UUID.sub("<uuid>", str(value).replace(self.prefix, "<stage>"))
        return _FOLDERS.sub("", _NAMES.sub("<name>", text))


_WARNED: dict[str, list[str]] = {}


def note_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Stands in for `warnings.showwarning`."""
    for prefix, found in _WARNED.items():
        if prefix in str(message) or category.__name__.startswith("Unfinished"):
            found.append(f"{category.__name__}: {message}")


@contextmanager
def warnings_noted() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note_warning
        yield


class _Collector(logging.Handler):
    def __init__(self, prefix: str, level: int) -> None:
        super().__init__(level)
        self.prefix = prefix
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        whole = record.getMessage() + str(record.__dict__)
        if self.prefix in whole:
            error = record.exc_info[1] if record.exc_info else None
            text = record.getMessage().split(" ({")[0]
            self.lines.append(
                f"{record.name} {record.levelname} {text}" + (f" {chain(error)}" if error else "")
            )
