"""Nexus tasks of a worker: deadlines, cancellation, shutdown and every kind of answer.

The requests expected here are those that the compiled core sends for the same completions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior, VersioningBehavior
from temporalio.api.failure.v1 import (
    ApplicationFailureInfo,
    CanceledFailureInfo,
    Failure,
    NexusHandlerFailureInfo,
)
from temporalio.api.nexus.v1 import (
    CancelOperationRequest,
    CancelOperationResponse,
    Failure as NexusFailure,
    HandlerError,
    Request,
    Response,
    StartOperationRequest,
    StartOperationResponse,
    UnsuccessfulOperationError,
)
from temporalio.api.workflowservice.v1 import (
    PollNexusTaskQueueResponse,
    RespondNexusTaskCompletedRequest,
    RespondNexusTaskFailedRequest,
)
from temporalio.bridge.proto.nexus import NexusTaskCancelReason, NexusTaskCompletion

from perdure.core.nexus.events import (
    NexusEvent,
    NexusTaskDropped,
    NexusTaskOver,
    ReportNexusAnswer,
    TellLang,
    UnreadableTimeout,
)
from perdure.core.nexus.reports import MalformedNexusCompletion, NexusReports, NexusSettings
from perdure.core.nexus.tasks import NexusTasks
from perdure.core.versioning import DeploymentVersion

NOW = 1000.0
UNIX = 1_700_000_000_000_000_000
TOKEN = b"token"
TIMED_OUT = NexusTaskCancelReason.TIMED_OUT
SHUTDOWN = NexusTaskCancelReason.WORKER_SHUTDOWN
NON_RETRYABLE = NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE


def settings(**changes: Any) -> NexusSettings:
    return NexusSettings(
        **{"namespace": "namespace", "task_queue": "queue", "identity": "me", **changes}
    )


def polled(
    token: bytes = TOKEN, header: dict[str, str] | None = None, **changes: Any
) -> PollNexusTaskQueueResponse:
    start = StartOperationRequest(service="service", operation="operation")
    request = Request(header=header, endpoint="endpoint", **{"start_operation": start, **changes})
    request.scheduled_time.FromSeconds(1_600_000_000)
    request.capabilities.temporal_failure_responses = True
    return PollNexusTaskQueueResponse(task_token=token, request=request)


def cancel_request() -> dict[str, Any]:
    return {"cancel_operation": CancelOperationRequest(service="service", operation="operation")}


def success(token: bytes = TOKEN) -> NexusTaskCompletion:
    sync = StartOperationResponse.Sync(payload=Payload(data=b"1"))
    return completion(token, completed=started(sync_success=sync))


def completion(token: bytes = TOKEN, **status: Any) -> NexusTaskCompletion:
    return NexusTaskCompletion(task_token=token, **status)


def started(**variant: Any) -> Response:
    return Response(start_operation=StartOperationResponse(**variant))


def with_task(header: dict[str, str] | None = None, **changes: Any) -> NexusTasks:
    """One task, handed to lang."""
    tasks = NexusTasks(settings(**changes))
    tasks.polled(polled(header=header), "permit", NOW, UNIX)
    assert isinstance(tasks.drain()[-1], TellLang)
    return tasks


def cancels(events: list[NexusEvent]) -> list[tuple[bytes, int]]:
    told = [event.task.cancel_task for event in events if isinstance(event, TellLang)]
    return [(cancel.task_token, cancel.reason) for cancel in told]


# Tasks


def test_a_task_is_handed_to_lang_with_headers_in_lower_case() -> None:
    tasks = NexusTasks(settings())
    tasks.polled(polled(header={"X-Mixed-Case": "Value"}), "permit", NOW, UNIX)
    (event,) = tasks.drain()
    assert isinstance(event, TellLang)
    assert event.task.task.task_token == TOKEN
    assert dict(event.task.task.request.header) == {"x-mixed-case": "Value"}
    assert event.task.endpoint == "endpoint"


def test_nexus_request_deadline_valid_header() -> None:
    """Row nexus_request_deadline_valid_header."""
    tasks = NexusTasks(settings())
    tasks.polled(polled(header={"Request-Timeout": "1.5s"}), "permit", NOW, UNIX)
    (event,) = tasks.drain()
    assert isinstance(event, TellLang)
    assert event.task.request_deadline.ToNanoseconds() == UNIX + 1_500_000_000
    assert tasks.next_deadline() == NOW + 1.5


def test_nexus_request_deadline_missing_header() -> None:
    """Row nexus_request_deadline_missing_header."""
    tasks = NexusTasks(settings())
    tasks.polled(polled(), "permit", NOW, UNIX)
    (event,) = tasks.drain()
    assert isinstance(event, TellLang)
    assert not event.task.HasField("request_deadline")
    assert tasks.next_deadline() is None


def test_nexus_request_deadline_invalid_header() -> None:
    """Row nexus_request_deadline_invalid_header."""
    tasks = NexusTasks(settings())
    tasks.polled(polled(header={"request-timeout": "soon"}), "permit", NOW, UNIX)
    unreadable, event = tasks.drain()
    assert unreadable == UnreadableTimeout("soon")
    assert isinstance(event, TellLang)
    assert not event.task.HasField("request_deadline")
    assert tasks.next_deadline() is None


def test_a_deadline_in_the_past_is_now() -> None:
    tasks = with_task({"request-timeout": "-3s"})
    assert tasks.next_deadline() == NOW


def test_a_task_that_came_already_is_not_handed_out_again() -> None:
    tasks = with_task()
    tasks.polled(polled(), "second permit", NOW, UNIX)
    assert tasks.drain() == [NexusTaskDropped("second permit", "it is under way already")]
    assert tasks.outstanding == 1


def test_a_task_that_asks_for_nothing_is_not_handed_out() -> None:
    """The compiled core fails the poll instead, which ends the worker."""
    tasks = NexusTasks(settings())
    tasks.polled(PollNexusTaskQueueResponse(task_token=TOKEN), "permit", NOW, UNIX)
    assert tasks.drain() == [NexusTaskDropped("permit", "missing request variant")]
    assert tasks.outstanding == 0


# Cancellation


def test_lang_is_told_of_the_deadline_once() -> None:
    tasks = with_task({"request-timeout": "1s"})
    tasks.wake(NOW + 0.5)
    assert not tasks.drain()
    tasks.wake(NOW + 1)
    assert cancels(tasks.drain()) == [(TOKEN, TIMED_OUT)]
    assert tasks.next_deadline() is None
    assert tasks.outstanding == 1


def test_lang_is_not_told_of_the_deadline_of_a_completed_task() -> None:
    tasks = with_task({"request-timeout": "1s"})
    tasks.complete(success(), NOW)
    assert tasks.next_deadline() is None


def test_an_acknowledged_cancel_is_not_reported() -> None:
    tasks = with_task({"request-timeout": "1s"})
    tasks.wake(NOW + 1)
    tasks.drain()
    assert tasks.complete(completion(ack_cancel=True), NOW + 2)
    (over,) = tasks.drain()
    assert isinstance(over, NexusTaskOver)
    assert over.failure_reason == "timeout"
    assert not over.reported


def test_a_result_after_the_deadline_is_reported() -> None:
    tasks = with_task({"request-timeout": "1s"})
    tasks.wake(NOW + 1)
    tasks.drain()
    assert tasks.complete(success(), NOW + 2)
    (report,) = tasks.drain()
    assert isinstance(report, ReportNexusAnswer)


def test_a_task_is_over_when_the_server_has_its_answer() -> None:
    tasks = with_task()
    tasks.complete(success(), NOW + 1)
    assert not tasks.complete(success(), NOW + 2)
    (report,) = tasks.drain()
    assert isinstance(report, ReportNexusAnswer)
    assert tasks.outstanding == 1
    tasks.reported(TOKEN)
    assert tasks.drain() == [
        NexusTaskOver(
            permit="permit",
            scheduled=1_600_000_000.0,
            began=NOW,
            ended=NOW + 1,
            reported=True,
            failure_reason="",
        )
    ]
    assert tasks.outstanding == 0
    assert not tasks.complete(success(), NOW + 4)


# Shutdown


def test_nexus_must_complete_task_to_shutdown() -> None:
    """Row nexus_must_complete_task_to_shutdown."""
    tasks = with_task()
    tasks.polls_ended(NOW)
    assert cancels(tasks.drain()) == [(TOKEN, SHUTDOWN)]
    assert not tasks.is_finished
    tasks.complete(completion(ack_cancel=True), NOW)
    assert tasks.is_finished


def test_tasks_have_the_grace_period_to_end_by_themselves() -> None:
    tasks = with_task({"request-timeout": "1s"}, graceful_shutdown_period=5.0)
    tasks.polled(polled(b"other"), "other permit", NOW, UNIX)
    tasks.polls_ended(NOW)
    tasks.wake(NOW + 1)
    tasks.complete(success(b"other"), NOW + 2)
    tasks.reported(b"other")
    assert cancels(tasks.drain())[1:] == [(TOKEN, TIMED_OUT)]
    assert tasks.next_deadline() == NOW + 5
    tasks.wake(NOW + 5)
    assert cancels(tasks.drain()) == [(TOKEN, SHUTDOWN)]


def test_a_worker_without_tasks_stops_at_once() -> None:
    tasks = NexusTasks(settings(graceful_shutdown_period=5.0))
    assert not tasks.is_finished
    tasks.polls_ended(NOW)
    assert (tasks.is_finished, tasks.next_deadline()) == (True, None)


def test_the_grace_period_ends_with_the_last_task() -> None:
    tasks = with_task(graceful_shutdown_period=5.0)
    tasks.polls_ended(NOW)
    tasks.complete(completion(ack_cancel=True), NOW + 1)
    assert tasks.is_finished
    assert tasks.next_deadline() is None


def test_a_task_whose_answer_is_under_way_is_not_cancelled() -> None:
    tasks = with_task()
    tasks.complete(success(), NOW)
    tasks.drain()
    tasks.polls_ended(NOW)
    assert not tasks.drain()


# Answers

FAILED = Failure(
    message="message",
    stack_trace="trace",
    application_failure_info=ApplicationFailureInfo(type="Type", non_retryable=True),
    cause=Failure(message="cause", canceled_failure_info=CanceledFailureInfo()),
)
CANCELED = Failure(message="message", canceled_failure_info=CanceledFailureInfo())
HANDLER = Failure(
    message="message",
    source="source",
    stack_trace="trace",
    cause=FAILED,
    nexus_handler_failure_info=NexusHandlerFailureInfo(
        type="BAD_REQUEST", retry_behavior=NON_RETRYABLE
    ),
)
OLD = NexusFailure(message="old", metadata={"key": "value"}, details=b"{}")
FAILED_DETAILS = {
    "stackTrace": "trace",
    "applicationFailureInfo": {"type": "Type", "nonRetryable": True},
    "cause": {"message": "cause", "canceledFailureInfo": {}},
}


def answer_to(request: Request, **status: Any) -> tuple[Any, str]:
    answer = NexusReports(settings()).answer(request, completion(**status))
    assert answer.request is not None
    assert (answer.request.namespace, answer.request.identity) == ("namespace", "me")
    assert answer.request.task_token == TOKEN
    return answer.request, answer.failure_reason


def old_request(**changes: Any) -> Request:
    request = polled(**changes).request
    request.ClearField("capabilities")
    return request


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ({"sync_success": StartOperationResponse.Sync(payload=Payload(data=b"1"))}, ""),
        ({"async_success": StartOperationResponse.Async(operation_token="token")}, ""),
        ({"failure": FAILED}, "operation_failed"),
        ({"failure": CANCELED}, "operation_canceled"),
        (
            {"operation_error": UnsuccessfulOperationError(operation_state="failed", failure=OLD)},
            "operation_failed",
        ),
        ({}, ""),
    ],
)
def test_responses_are_passed_on(variant: dict[str, Any], reason: str) -> None:
    response = started(**variant)
    request, failed = answer_to(polled().request, completed=response)
    assert isinstance(request, RespondNexusTaskCompletedRequest)
    assert request.response == response
    assert failed == reason


def test_the_answer_to_a_cancel_request_is_passed_on() -> None:
    response = Response(cancel_operation=CancelOperationResponse())
    request, _ = answer_to(polled(**cancel_request()).request, completed=response)
    assert request.response == response


def test_a_failure_of_the_handler_is_passed_on() -> None:
    request, reason = answer_to(polled().request, failure=HANDLER)
    assert isinstance(request, RespondNexusTaskFailedRequest)
    assert request.failure == HANDLER
    assert not request.HasField("error")
    assert reason == "handler_error_BAD_REQUEST"


@pytest.mark.parametrize("asked", [polled().request, old_request()])
def test_an_error_of_the_handler_in_the_old_form_is_passed_on(asked: Request) -> None:
    error = HandlerError(error_type="INTERNAL", failure=OLD)
    request, reason = answer_to(asked, error=error)
    assert request.error == error
    assert reason == "handler_error_INTERNAL"


@pytest.mark.parametrize(("failure", "state"), [(FAILED, "failed"), (CANCELED, "canceled")])
def test_nexus_operation_failure_converts_to_legacy_for_old_server(
    failure: Failure, state: str
) -> None:
    """Row nexus_…converts_to_legacy_for_old_server, of an operation."""
    request, reason = answer_to(old_request(), completed=started(failure=failure))
    error = request.response.start_operation.operation_error
    assert error.operation_state == state
    assert reason == f"operation_{state}"
    assert error.failure.message == "message"
    assert dict(error.failure.metadata) == {"type": "temporal.api.failure.v1.Failure"}
    if failure is FAILED:
        assert error.failure.stack_trace == "trace"
        assert json.loads(error.failure.details) == FAILED_DETAILS


@pytest.mark.parametrize("changes", [{}, cancel_request()])
def test_nexus_handler_failure_converts_to_legacy_for_old_server(changes: dict[str, Any]) -> None:
    """Row nexus_…converts_to_legacy_for_old_server, of a handler."""
    request, reason = answer_to(old_request(**changes), failure=HANDLER)
    assert not request.HasField("failure")
    error = request.error
    assert (error.error_type, error.retry_behavior) == ("BAD_REQUEST", NON_RETRYABLE)
    assert (error.failure.message, error.failure.stack_trace) == ("message", "trace")
    assert json.loads(error.failure.details) == {
        "source": "source",
        "stackTrace": "trace",
        "cause": {"message": "message", **FAILED_DETAILS},
        "nexusHandlerFailureInfo": {
            "type": "BAD_REQUEST",
            "retryBehavior": "NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE",
        },
    }
    assert reason == "handler_error_BAD_REQUEST"


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({}, {}, "empty status field"),
        ({}, {"completed": Response()}, "must contain a status variant"),
        (
            {},
            {"completed": Response(cancel_operation=CancelOperationResponse())},
            "Nexus response was CancelOperation but request was not",
        ),
        (
            cancel_request(),
            {"completed": started()},
            "Nexus response was StartOperation but request was not",
        ),
        (
            {},
            {"completed": started(failure=HANDLER)},
            "must contain ApplicationFailureInfo or CanceledFailureInfo",
        ),
        (
            {},
            {"completed": started(failure=Failure(message="plain"))},
            "must contain ApplicationFailureInfo or CanceledFailureInfo",
        ),
        ({}, {"failure": FAILED}, "must contain a NexusHandlerFailureInfo"),
        ({}, {"failure": Failure()}, "must contain a NexusHandlerFailureInfo"),
    ],
)
def test_a_completion_that_makes_no_sense_ends_its_task(
    changes: dict[str, Any], status: dict[str, Any], problem: str
) -> None:
    tasks = NexusTasks(settings())
    tasks.polled(polled(**changes), "permit", NOW, UNIX)
    tasks.drain()
    with pytest.raises(MalformedNexusCompletion, match=problem) as caught:
        tasks.complete(completion(**status), NOW)
    assert caught.value.task_token == TOKEN
    (over,) = tasks.drain()
    assert isinstance(over, NexusTaskOver)
    assert over.permit == "permit"
    assert not over.reported
    assert tasks.outstanding == 0


def test_a_poll_names_queue_worker_and_deployment() -> None:
    version = DeploymentVersion(
        "deployment",
        "build",
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.VERSIONING_BEHAVIOR_PINNED,
    )
    request = NexusReports(settings(versioning=version, worker_instance_key="key")).poll()
    assert request.task_queue.name == "queue"
    assert request.worker_instance_key == "key"
    assert request.deployment_options.deployment_name == "deployment"
    assert not NexusReports(settings()).poll().HasField("deployment_options")
