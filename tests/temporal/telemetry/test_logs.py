"""What is logged: of a worker in normal life and in trouble, and how it reaches Python."""

from __future__ import annotations

import io
import logging
import queue
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import (
    GetSystemInfoResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.common import ExternalStorageMetrics
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    LoggingFormat,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.core.actions import TaskOver
from perdure.core.inputs import Problem, ProblemKind
from perdure.temporal.connection.retry import POLLS, Retries
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.telemetry.logs import BufferedLogEntry, Log
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.diagnostics.slow_tasks import SlowTasks, warning_threshold

WORKER = "temporalio_sdk_core::worker"


class Kept(logging.Handler):
    """Keeps what is forwarded to a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.records: queue.Queue[logging.LogRecord] = queue.Queue()
        self.logger = logging.Logger("forwarded", logging.DEBUG)  # noqa: LOG001
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put(record)

    def until(self, text: str) -> list[BufferedLogEntry]:
        """All records up to one whose message begins so."""
        found = []
        while True:
            record: Any = self.records.get(timeout=20)
            found.append(record.temporal_log)
            if record.temporal_log.message.startswith(text):
                return found


def kept_runtime(**options: Any) -> tuple[Kept, Runtime]:
    kept = Kept()
    level = TelemetryFilter(core_level="DEBUG", other_level="OFF")
    forwarding = LogForwardingConfig(kept.logger, **options)
    config = TelemetryConfig(logging=LoggingConfig(filter=level, forwarding=forwarding))
    return kept, Runtime(telemetry=config)


def test_forwarded_records_say_as_much_as_is_wanted() -> None:
    kept, runtime = kept_runtime(
        append_target_to_name=False,
        prepend_target_on_message=False,
        append_log_fields_to_message=False,
    )
    before = time.time()
    runtime._core_runtime.write_test_info_log("this", "extra")
    record = kept.records.get(timeout=20)
    assert (record.name, record.getMessage()) == ("forwarded", "this")
    assert before - 1 <= record.created <= time.time()
    kept, runtime = kept_runtime()
    runtime._core_runtime.write_test_debug_log("that", "extra")
    record = kept.records.get(timeout=20)
    assert record.name == "forwarded-sdk_core::temporal_sdk_bridge::runtime"
    assert record.getMessage().endswith("that {'extra_data': 'extra'}")


def test_colors_can_be_switched_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for form in (LoggingFormat.COMPACT, LoggingFormat.PRETTY):
        config = LoggingConfig(filter="info", format=form)
        runtime = Runtime(telemetry=TelemetryConfig(logging=config))
        runtime._core_runtime.write_test_info_log("plain", "x")
    compact, pretty, *_ = capsys.readouterr().out.splitlines()
    assert compact.endswith("  INFO temporal_sdk_bridge::runtime: plain extra_data=x")
    assert pretty.endswith("  INFO temporal_sdk_bridge::runtime: plain, extra_data: x")


def test_a_directive_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="target=LOUD")))
    assert "ignoring `target=LOUD`" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [True, False])
def test_a_console_that_is_gone_stops_nobody(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    console = io.StringIO()
    console.close()
    monkeypatch.setattr(sys, "stdout", console if closed else None)
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="info")))
    runtime._core_runtime.write_test_info_log("unheard", "x")


def entries(act: Callable[[Journal], None]) -> list[tuple[int, str, str]]:
    """Level, target and message of what an act writes."""
    written: queue.Queue[Any] = queue.Queue()
    config = LoggingConfig(filter="debug")._to_bridge_config()
    object.__setattr__(config, "forward_to", written.put)
    act(Journal(Log(config), namespace="namespace", task_queue="queue"))
    return [(each.level, each.target, each.message) for each in written.get(timeout=20)]


GONE, BROKEN = RPCError(5, "gone", b""), RPCError(14, "broken", b"")


@pytest.mark.parametrize(
    ("act", "level", "target", "begins"),
    [
        (lambda j: j.created(), 20, "", "Initializing worker"),
        (lambda j: j.shutdown_began(), 20, "", "Initiated shutdown"),
        (lambda j: j.workflows_over(), 20, "::workflow::workflow_stream", "Workflow shutdown is"),
        (
            lambda j: j.expect_heartbeat_details(GetSystemInfoResponse.Capabilities()),
            30,
            "",
            "Temporal Server 1.16.0 or newer is required",
        ),
        (lambda j: j.server_not_told(BROKEN), 10, "", "shutdown_worker rpc errored"),
        (lambda j: j.server_not_told(GONE), 30, "", "shutdown_worker rpc errored"),
        (
            lambda j: j.task_fails("run", RespondWorkflowTaskFailedRequest()),
            30,
            "::workflow",
            "Failing workflow task",
        ),
        (
            lambda j: j.completion_refused("run", Problem(ProblemKind.NOT_FOUND, "text")),
            30,
            "::workflow",
            "Task not found when completing",
        ),
        (
            lambda j: j.completion_refused("run", Problem(ProblemKind.UNHANDLED_COMMAND, "text")),
            10,
            "::workflow",
            "Unhandled command response when completing",
        ),
        (
            lambda j: j.completion_refused("run", Problem(ProblemKind.OTHER, "text")),
            30,
            "::workflow",
            "Error while completing workflow activation",
        ),
        (lambda j: j.run_evicted("run"), 10, "::workflow::workflow_stream", "Evicting run"),
        (
            lambda j: j.activity_not_reported(b"token", GONE),
            30,
            "::activities",
            "Activity not found on completion.",
        ),
        (
            lambda j: j.activity_not_reported(b"token", BROKEN),
            30,
            "::activities",
            "Network error while completing activity",
        ),
        (
            lambda j: j.heartbeat_not_recorded(b"token", GONE),
            10,
            "::activities::activity_heartbeat_manager",
            "Activity not found when recording heartbeat",
        ),
        (
            lambda j: j.heartbeat_not_recorded(b"token", BROKEN),
            30,
            "::activities::activity_heartbeat_manager",
            "Error when recording heartbeat: Status { code: Unavailable",
        ),
        (
            lambda j: j.local_activity_unwanted(b"token"),
            30,
            "::activities::local_activities",
            "Tried to complete untracked local activity",
        ),
    ],
)
def test_trouble_is_logged_in_the_words_of_the_official_core(
    act: Callable[[Journal], None], level: int, target: str, begins: str
) -> None:
    ((shown, found, message),) = entries(act)
    assert (shown, found) == (level, f"{WORKER}{target}")
    assert message.startswith(begins)


def test_retries_are_logged_at_first_and_after_many() -> None:
    def act(journal: Journal) -> None:
        retries = Retries(POLLS, poll=True, now=0, random=lambda: 0.5)
        for _ in range(20):
            retries.after(14, "broken", 0)
            journal.poll_retried("poll_workflow_task_queue", retries, BROKEN)

    found = entries(act)
    assert found[0][2] == "gRPC call poll_workflow_task_queue failed on first attempt"
    assert found[-1] == (
        30,
        "temporalio_client::retry",
        "gRPC call poll_workflow_task_queue retried 20 times",
    )
    assert [level for level, _, _ in found].count(10) == 1


def storage(count: int, driver: str) -> ExternalStorageMetrics:
    metrics = ExternalStorageMetrics(
        payload_count=count, total_size_bytes=count * 100, driver_names=[driver]
    )
    metrics.total_duration.FromMilliseconds(count)
    return metrics


def test_a_slow_task_is_warned_of_with_its_transfers() -> None:
    written: queue.Queue[Any] = queue.Queue()
    config = LoggingConfig(filter="warn")._to_bridge_config()
    object.__setattr__(config, "forward_to", written.put)
    slow = SlowTasks(Log(config), 5)
    for count, driver in ((1, "a"), (2, "b")):
        slow.completed(
            WorkflowActivationCompletion(
                run_id="run", payload_download_metrics=storage(count, driver)
            )
        )
    task = TaskOver("run", "Type", 0, event_id=4, attempt=1, history_size=99)
    slow.over(task, 6.5)
    slow.over(task, 5)
    (entry,) = written.get(timeout=20)
    assert entry.message == ("[TMPRL1104] run:4:1 Workflow task duration exceeded 5 seconds.")
    assert entry.fields == {
        "workflow_type": "Type",
        "event_id": 4,
        "attempt": 1,
        "workflow_task_duration": 6500,
        "workflow_history_size": 99,
        "payload_download_count": 3,
        "payload_download_size": 300,
        "payload_download_duration": 3,
        "payload_download_drivers": "['a', 'b']",
        "payload_upload_count": 0,
        "payload_upload_size": 0,
        "payload_upload_duration": 0,
        "payload_upload_drivers": "[]",
    }
    assert written.empty()


@pytest.mark.parametrize(("text", "seconds"), [("", 5), ("9", 9), ("0", 0), ("0.5", 5), ("x", 5)])
def test_the_environment_says_what_is_slow(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: int
) -> None:
    monkeypatch.setenv("TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS", text)
    assert warning_threshold() == seconds


@workflow.defn
class FailsOnce:
    failed: set[str] = set()  # noqa: RUF012

    @workflow.run
    async def run(self) -> None:
        if workflow.info().run_id not in FailsOnce.failed:
            FailsOnce.failed.add(workflow.info().run_id)
            raise RuntimeError("once")


async def test_the_life_of_a_worker_is_logged(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_WORKFLOW_TASK_DURATION_WARN_SECONDS", "0")
    kept, runtime = kept_runtime()
    client = await Client.connect(server, runtime=runtime)
    task_queue = f"queue-{uuid.uuid4()}"
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[FailsOnce],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await client.execute_workflow(
            FailsOnce.run,
            id=task_queue,
            task_queue=task_queue,
            run_timeout=timedelta(seconds=60),
        )
    messages = [entry.message for entry in kept.until("Workflow shutdown is done")]
    assert messages[0] == "Initializing worker"
    assert "Failing workflow task" in messages
    assert "Evicting run" in messages
    assert "Initiated shutdown" in messages
    assert sum(message.startswith("[TMPRL1104]") for message in messages) == 2
