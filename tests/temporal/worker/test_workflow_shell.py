"""The workflow stream between lang and a service that a test holds in its hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskCompletedResponse,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistorySlice
from tests.core.support.stage import RUN, settings, start_timer

from perdure.core.inputs import EvictionRequested
from perdure.temporal.sdk_errors import RPCError
from perdure.temporal.slots.dealer import Permit
from perdure.temporal.telemetry.logs import Log
from perdure.temporal.worker.diagnostics.journal import Journal
from perdure.temporal.worker.workflows import WorkflowShell

Reason = RemoveFromCache.EvictionReason


class Service:
    """Answers wait for `go`; then `error` is raised, if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = asyncio.Event()
        self.error = error
        self.calls: list[str] = []

    async def _answer(self, call: str, answer: Any) -> Any:
        self.calls.append(call)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return answer

    async def complete_workflow_task(
        self, request: RespondWorkflowTaskCompletedRequest
    ) -> RespondWorkflowTaskCompletedResponse:
        answer = RespondWorkflowTaskCompletedResponse()
        return await self._answer("complete", answer)  # type: ignore[no-any-return]

    async def fail_workflow_task(self, request: RespondWorkflowTaskFailedRequest) -> None:
        await self._answer("fail", None)

    async def answer_query(self, request: RespondQueryTaskCompletedRequest) -> None:
        await self._answer("query", None)

    async def history(
        self, request: GetWorkflowExecutionHistoryRequest
    ) -> GetWorkflowExecutionHistoryResponse:
        answer = GetWorkflowExecutionHistoryResponse()
        return await self._answer("history", answer)  # type: ignore[no-any-return]


class Slot(Permit):
    """Counts how often it came back."""

    def __init__(self) -> None:
        self.released = 0

    def mark_used(self, info: object) -> None:
        del info

    def release(self) -> None:
        self.released += 1


async def activation(shell: WorkflowShell) -> WorkflowActivation:
    async with asyncio.timeout(10):
        return WorkflowActivation.FromString(await shell.mailbox.poll())


def success(*commands: Any) -> bytes:
    completion = WorkflowActivationCompletion(run_id=RUN)
    completion.successful.commands.extend(commands)
    completion.successful.SetInParent()
    return completion.SerializeToString()


async def begun(service: Service) -> tuple[WorkflowShell, Slot]:
    shell, slot, built = (
        WorkflowShell(settings(), service, journal=Journal(Log(None))),
        Slot(),
        single_timer(),
    )
    shell.new_task(built.poll(built.to_task(1)), slot)
    await activation(shell)
    return shell, slot


async def test_a_task_with_times_that_are_none() -> None:
    """They are for metrics only."""
    shell = WorkflowShell(settings(), Service(), journal=Journal(Log(None)))
    built = single_timer()
    task = built.poll(built.to_task(1))
    task.scheduled_time.seconds = -(2**60)
    task.started_time.seconds = 2**60
    shell.new_task(task, Slot())
    assert (await activation(shell)).jobs[0].HasField("initialize_workflow")


async def test_lang_may_go_on_while_its_answer_is_reported() -> None:
    """Nothing else happens with the run meanwhile, and its slot is held."""
    service = Service()
    shell, slot = await begun(service)
    shell.complete(success(start_timer()))
    await asyncio.sleep(0)
    assert service.calls == ["complete"]
    reason = Reason.LANG_REQUESTED
    shell.feed(EvictionRequested(RUN, "wanted", reason))
    poll = shell.mailbox.poll()
    assert not poll.done()
    assert slot.released == 0
    service.go.set()
    eviction = WorkflowActivation.FromString(await poll)
    assert eviction.jobs[0].remove_from_cache.reason == reason
    assert slot.released == 1


@pytest.mark.parametrize(
    ("error", "text", "reason"),
    [
        (RPCError(13, "broken", b""), "broken", Reason.FATAL),
        (RPCError(5, "gone", b""), "gone", Reason.TASK_NOT_FOUND),
        (ZeroDivisionError("unforeseen"), "unexpected ZeroDivisionError", Reason.FATAL),
    ],
    ids=["refused", "not found", "unforeseen"],
)
async def test_a_report_that_fails_evicts_its_run(
    error: Exception, text: str, reason: RemoveFromCache.EvictionReason.ValueType
) -> None:
    """Lang's call has ended long before; the failure comes as the eviction, and no slot is lost."""
    service = Service(error)
    service.go.set()
    shell, slot = await begun(service)
    shell.complete(success(start_timer()))
    job = (await activation(shell)).jobs[0].remove_from_cache
    assert text in job.message
    assert job.reason == reason
    shell.complete(success())
    assert slot.released == 1
    assert shell.stream.cached_runs == 0


@pytest.mark.parametrize("error", [RPCError(14, "gone", b""), ZeroDivisionError("unforeseen")])
async def test_a_page_that_cannot_be_had_fails_its_task(error: Exception) -> None:
    service = Service(error)
    service.go.set()
    shell, slot, built = (
        WorkflowShell(settings(), service, journal=Journal(Log(None))),
        Slot(),
        single_timer(),
    )
    part = HistorySlice(built.events[:2], 0, 8)
    shell.new_task(built.poll(part, next_page_token=b"page"), slot)
    async with asyncio.timeout(10):
        await shell.idle()
    assert service.calls == ["history", "fail"]
    assert slot.released == 1
    assert shell.stream.cached_runs == 0
