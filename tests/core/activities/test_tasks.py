"""Remote activities: the rows of the catalogue that need no poller, by their names."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import (
    ActivityType,
    Header,
    RetryPolicy,
    WorkflowExecution,
    WorkflowType,
)
from temporalio.api.enums.v1 import ActivityTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatResponse,
    RespondActivityTaskCanceledRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
)
from temporalio.bridge.proto import ActivityHeartbeat, ActivityTaskCompletion
from temporalio.bridge.proto.activity_result import (
    ActivityExecutionResult,
    Cancellation,
    Failure as FailureResult,
    Success,
    WillCompleteAsync,
)
from temporalio.bridge.proto.activity_task import ActivityCancelReason, ActivityTask
from tests.core.support.history_builder import (
    application_failure,
    cancelled_failure,
    duration,
    payload,
    payloads,
)

from perdure.core.activities.events import (
    ActivityEvent,
    ActivityOver,
    HeartbeatAnswer,
    PermitUnused,
    RecordHeartbeat,
    ReportResult,
)
from perdure.core.activities.reports import (
    ActivityOutcome,
    ActivityReports,
    ActivityRequest,
    ActivitySettings,
    MalformedActivityCompletion,
)
from perdure.core.activities.tasks import Activities
from perdure.core.rate_limit import RateLimit
from perdure.core.stream_settings import eager_activity_limit
from perdure.core.versioning import BuildId, DeploymentVersion

ALIVE = RecordActivityTaskHeartbeatResponse()
CANCEL = RecordActivityTaskHeartbeatResponse(cancel_requested=True)


def polled(token: bytes = b"token", **fields: Any) -> PollActivityTaskQueueResponse:
    defaults: dict[str, Any] = {
        "task_token": token,
        "activity_id": "id",
        "activity_type": ActivityType(name="activity"),
        "workflow_type": WorkflowType(name="workflow"),
        "attempt": 1,
    }
    return PollActivityTaskQueueResponse(**(defaults | fields))


def succeeded() -> ActivityExecutionResult:
    return ActivityExecutionResult(completed=Success(result=payload("done")))


def failed(failure: Failure | None = None) -> ActivityExecutionResult:
    return ActivityExecutionResult(failed=FailureResult(failure=failure or application_failure()))


def cancelled(*details: object) -> ActivityExecutionResult:
    return ActivityExecutionResult(cancelled=Cancellation(failure=cancelled_failure(*details)))


class World:
    """A manager with a lang and a server that do as they are told."""

    def __init__(self, **settings: Any) -> None:
        self.manager = Activities(ActivitySettings("namespace", "queue", "me", **settings))

    def start(self, token: bytes = b"token", *, now: float = 0, **fields: Any) -> ActivityTask:
        self.manager.polled(polled(token, **fields), f"permit of {token.decode()}", now)
        return self.take()

    def take(self) -> ActivityTask:
        task = self.manager.next_task()
        assert task is not None
        return task

    def beat(self, *details: object, token: bytes = b"token", now: float = 0) -> None:
        self.manager.heartbeat(
            ActivityHeartbeat(task_token=token, details=payloads(*details).payloads), now
        )

    def answer(
        self,
        answer: RecordActivityTaskHeartbeatResponse | HeartbeatAnswer = ALIVE,
        *,
        token: bytes = b"token",
        now: float = 0,
    ) -> None:
        self.manager.heartbeat_answered(token, answer, now)

    def wake(self, now: float) -> None:
        assert self.manager.next_deadline() == pytest.approx(now)
        self.manager.wake(now)

    def complete(
        self, result: ActivityExecutionResult, *, token: bytes = b"token", now: float = 0
    ) -> None:
        assert self.manager.complete(ActivityTaskCompletion(task_token=token, result=result), now)

    def happened(self) -> ActivityEvent:
        """The one thing that happened."""
        (event,) = self.manager.drain()
        return event

    def sent(self) -> list[object]:
        """Details of the heartbeats to be sent, each of one value."""
        details = []
        for event in self.manager.drain():
            assert isinstance(event, RecordHeartbeat)
            details.append(event.request.details)
        return [int(one.payloads[0].data) for one in details]

    def report(self, *, token: bytes = b"token") -> ActivityRequest:
        """The request that ends the activity, which the server takes."""
        event = self.happened()
        assert isinstance(event, ReportResult)
        assert event.token == token
        self.manager.reported(token)
        return event.request

    def over(self, *, token: bytes = b"token") -> ActivityOver:
        event = self.happened()
        assert isinstance(event, ActivityOver)
        assert event.permit == f"permit of {token.decode()}"
        return event


@pytest.fixture
def world() -> World:
    return World()


def test_a_task_carries_everything_of_the_poll(world: World) -> None:
    task = world.start(
        workflow_namespace="its namespace",
        workflow_execution=WorkflowExecution(workflow_id="workflow-id", run_id="run-id"),
        header=Header(fields={"key": payload("value")}),
        input=payloads(1, 2),
        heartbeat_details=payloads("details"),
        attempt=3,
        heartbeat_timeout=duration(5),
        start_to_close_timeout=duration(6),
        schedule_to_close_timeout=duration(7),
        retry_policy=RetryPolicy(maximum_attempts=2),
        activity_run_id="standalone",
    )
    start = task.start
    assert task.task_token == b"token"
    assert (start.activity_id, start.activity_type, start.workflow_type) == (
        "id",
        "activity",
        "workflow",
    )
    assert start.workflow_namespace == "its namespace"
    assert start.workflow_execution.run_id == "run-id"
    assert start.header_fields["key"] == payload("value")
    assert list(start.input) == [payload(1), payload(2)]
    assert list(start.heartbeat_details) == [payload("details")]
    assert (start.attempt, start.retry_policy.maximum_attempts) == (3, 2)
    assert start.heartbeat_timeout == duration(5)
    assert start.start_to_close_timeout == duration(6)
    assert start.schedule_to_close_timeout == duration(7)
    assert start.run_id == "standalone"
    assert not start.is_local
    assert not start.HasField("scheduled_time")


def test_completed(world: World) -> None:
    world.start(now=1)
    world.complete(succeeded(), now=4)
    request = world.report()
    assert isinstance(request, RespondActivityTaskCompletedRequest)
    assert request.result == payloads("done")
    assert (request.task_token, request.namespace, request.identity) == (
        b"token",
        "namespace",
        "me",
    )
    over = world.over()
    assert over.outcome is ActivityOutcome.COMPLETED
    assert (over.activity_type, over.workflow_type) == ("activity", "workflow")
    assert (over.began, over.ended) == (1, 4)
    assert world.manager.outstanding == 0


def test_max_activities_respected(world: World) -> None:
    # The permit of a task is free only once the server has its result.
    world.start()
    world.complete(succeeded())
    assert isinstance(world.happened(), ReportResult)
    assert world.manager.outstanding == 1
    world.manager.reported(b"token")
    assert world.over().permit == "permit of token"


def test_failed(world: World) -> None:
    world.start()
    world.complete(failed())
    request = world.report()
    assert isinstance(request, RespondActivityTaskFailedRequest)
    assert request.failure == application_failure()
    assert not request.HasField("last_heartbeat_details")
    over = world.over()
    assert over.outcome is ActivityOutcome.FAILED
    assert not over.benign


def test_a_benign_failure_is_known_as_such(world: World) -> None:
    failure = application_failure()
    failure.application_failure_info.category = 1  # type: ignore[assignment]
    world.start()
    world.complete(failed(failure))
    world.report()
    assert world.over().benign


def test_cancelled(world: World) -> None:
    world.start()
    world.complete(cancelled("details"))
    request = world.report()
    assert isinstance(request, RespondActivityTaskCanceledRequest)
    assert request.details == payloads("details")
    assert world.over().outcome is ActivityOutcome.CANCELLED


def test_what_a_client_completes_is_not_reported(world: World) -> None:
    world.start()
    world.complete(ActivityExecutionResult(will_complete_async=WillCompleteAsync()))
    assert world.over().outcome is ActivityOutcome.LEFT_OPEN


@pytest.mark.parametrize(
    "result", [ActivityExecutionResult(), ActivityExecutionResult(completed=Success())]
)
def test_cant_complete_activity_with_unset_result_payload(
    world: World, result: ActivityExecutionResult
) -> None:
    world.start()
    with pytest.raises(MalformedActivityCompletion):
        world.complete(result)
    world.complete(succeeded())
    world.report()


def test_an_answer_to_no_task(world: World) -> None:
    completion = ActivityTaskCompletion(task_token=b"unknown", result=succeeded())
    assert not world.manager.complete(completion, 0)
    world.start()
    world.complete(succeeded())
    completion.task_token = b"token"
    assert not world.manager.complete(completion, 0)


def test_activity_not_found_returns_ok(world: World) -> None:
    # Whatever the server says to a report, it is over; lang is never told.
    world.start()
    world.complete(succeeded())
    assert isinstance(world.happened(), ReportResult)
    world.manager.reported(b"token")
    assert world.over().outcome is ActivityOutcome.COMPLETED


# Heartbeats


def test_heartbeats_are_throttled(world: World) -> None:
    world.start(heartbeat_timeout=duration(10))
    world.beat(1)
    assert world.sent() == [1]
    world.beat(2, now=1)
    world.answer(now=2)
    world.beat(3, now=3)
    assert world.sent() == []
    world.wake(8)
    assert world.sent() == [3]
    world.answer(now=8)
    world.manager.wake(16)
    assert world.sent() == []
    world.beat(4, now=17)
    assert world.sent() == [4]


def test_without_a_timeout_the_default_interval_counts() -> None:
    world = World(default_heartbeat_throttle=7.0)
    world.start()
    world.beat(1)
    world.beat(2)
    world.answer()
    world.wake(7)
    assert world.sent() == [1, 2]


def test_at_most_one_heartbeat_is_under_way(world: World) -> None:
    world.start()
    world.beat(1)
    world.beat(2)
    world.wake(30)
    assert world.sent() == [1]
    world.answer(now=31)
    assert world.sent() == [2]


def test_evict_works(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer()
    world.beat(2)
    world.manager.drain()
    world.complete(succeeded())
    assert isinstance(world.report(), RespondActivityTaskCompletedRequest)
    world.over()
    assert world.manager.next_deadline() is None
    world.beat(3)
    assert world.sent() == []


def test_evict_immediate_after_record(world: World) -> None:
    world.start()
    world.beat(1)
    assert world.sent() == [1]
    world.complete(succeeded())
    assert world.manager.drain() == []
    world.answer()
    assert isinstance(world.report(), RespondActivityTaskCompletedRequest)


def test_complete_act_with_fail_includes_latest_heartbeat(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer()
    world.beat(2)
    world.manager.drain()
    world.complete(failed())
    request = world.report()
    assert isinstance(request, RespondActivityTaskFailedRequest)
    assert request.last_heartbeat_details == payloads(2)


def test_activity_cancellation_still_flushes_latest_heartbeat(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(CANCEL)
    world.beat(2)
    assert world.sent() == [1]
    world.take()
    world.complete(cancelled())
    assert world.sent() == [2]
    world.answer()
    assert isinstance(world.report(), RespondActivityTaskCanceledRequest)


def test_a_flush_waits_for_the_heartbeat_under_way(world: World) -> None:
    world.start()
    world.beat(1)
    world.beat(2)
    assert world.sent() == [1]
    world.complete(cancelled())
    assert world.sent() == []
    world.answer()
    assert world.sent() == [2]
    world.answer(HeartbeatAnswer.FAILED)
    assert isinstance(world.report(), RespondActivityTaskCanceledRequest)


def test_a_heartbeat_that_failed_is_nobodys_problem(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(HeartbeatAnswer.FAILED)
    world.manager.drain()
    assert world.manager.next_task() is None
    world.complete(succeeded())
    world.report()


# Cancellation


def test_heartbeats_report_cancels_only_once(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(CANCEL)
    world.beat(2)
    world.wake(30)
    world.answer(CANCEL, now=30)
    task = world.take()
    assert task.task_token == b"token"
    assert task.cancel.reason == ActivityCancelReason.CANCELLED
    assert task.cancel.details.is_cancelled
    assert world.manager.next_task() is None


def test_many_concurrent_heartbeat_cancels(world: World) -> None:
    tokens = [b"%d" % number for number in range(50)]
    for token in tokens:
        world.start(token)
        world.beat(1, token=token)
    for token in reversed(tokens):
        world.answer(CANCEL, token=token)
    told = [world.take().task_token for _ in tokens]
    assert sorted(told) == sorted(tokens)
    for token in tokens:
        world.complete(cancelled(), token=token)
    assert world.manager.next_task() is None


def test_heartbeat_response_can_be_paused(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(RecordActivityTaskHeartbeatResponse(activity_paused=True))
    cancel = world.take().cancel
    assert cancel.reason == ActivityCancelReason.PAUSED
    assert cancel.details.is_paused
    assert not cancel.details.is_cancelled


def test_the_most_important_reason_counts_and_all_are_told(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(RecordActivityTaskHeartbeatResponse(activity_paused=True, activity_reset=True))
    cancel = world.take().cancel
    assert cancel.reason == ActivityCancelReason.RESET
    assert cancel.details.is_paused
    assert cancel.details.is_reset


def test_a_task_the_server_does_not_know_is_cancelled_and_not_reported(world: World) -> None:
    world.start()
    world.beat(1)
    world.manager.drain()
    world.answer(HeartbeatAnswer.NOT_FOUND)
    cancel = world.take().cancel
    assert cancel.reason == ActivityCancelReason.NOT_FOUND
    assert cancel.details.is_not_found
    world.beat(2)
    assert world.sent() == []
    world.complete(cancelled())
    assert world.over().outcome is ActivityOutcome.CANCELLED


def test_activity_timeout_no_double_resolve(world: World) -> None:
    world.start(start_to_close_timeout=duration(2), heartbeat_timeout=duration(60))
    world.wake(7)
    task = world.take()
    assert task.cancel.reason == ActivityCancelReason.TIMED_OUT
    assert task.cancel.details.is_timed_out
    assert task.cancel.details.is_not_found
    world.complete(cancelled(), now=8)
    world.over()
    assert world.manager.next_deadline() is None


def test_heartbeats_keep_an_activity_alive(world: World) -> None:
    world.start(heartbeat_timeout=duration(5))
    world.beat(1, now=4)
    world.answer(now=4)
    world.manager.wake(10)
    assert world.manager.next_task() is None
    world.wake(14)
    assert world.take().cancel.reason == ActivityCancelReason.TIMED_OUT


def test_nothing_is_timed_out_unless_the_server_said_so(world: World) -> None:
    world.start()
    assert world.manager.next_deadline() is None


def test_lang_is_not_told_to_cancel_what_it_has_completed(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer(CANCEL)
    world.complete(succeeded())
    assert world.manager.next_task() is None
    world.manager.cancel(b"token")
    assert world.manager.next_task() is None


def test_activity_cancel_interrupts_poll(world: World) -> None:
    world.start(b"running")
    world.manager.polled(polled(b"waiting"), "permit", 0)
    world.manager.cancel(b"running")
    assert world.take().cancel.reason == ActivityCancelReason.CANCELLED
    assert world.take().task_token == b"waiting"


def test_a_cancel_never_comes_before_the_start(world: World) -> None:
    world.manager.polled(polled(), "permit", 0)
    world.manager.cancel(b"token")
    assert world.take().HasField("start")
    assert world.take().HasField("cancel")
    assert world.manager.next_task() is None


# Eager activities


def test_activity_tasks_from_completion_are_delivered(world: World) -> None:
    world.manager.polled(polled(b"polled"), "permit", 0)
    world.manager.eager([polled(b"eager")], ["permit of eager", "surplus"], 0)
    assert world.take().task_token == b"eager"
    assert world.take().task_token == b"polled"
    assert world.happened() == PermitUnused("surplus")
    world.complete(succeeded(), token=b"eager")
    world.report(token=b"eager")
    world.over(token=b"eager")


def test_no_eager_activities_requested_when_worker_options_disable_it() -> None:
    def limit(*, remote: bool = True, rate: float | None = None) -> int:
        return eager_activity_limit(
            has_remote_activities=remote, max_task_queue_rate=rate, configured=3
        )

    assert limit() == 3
    assert limit(rate=10.0) == 0
    assert limit(remote=False) == 0


def test_a_task_that_comes_twice_runs_once(world: World) -> None:
    world.start()
    world.manager.polled(polled(), "again", 0)
    assert world.happened() == PermitUnused("again")
    assert world.manager.next_task() is None


# Shutdown


def test_graceful_shutdown() -> None:
    world = World(graceful_shutdown_period=5.0)
    world.start(b"a")
    world.start(b"b")
    world.manager.shutdown(1)
    world.manager.shutdown(2)
    assert world.manager.next_task() is None
    world.complete(succeeded(), token=b"b", now=2)
    world.report(token=b"b")
    world.over(token=b"b")
    world.wake(6)
    cancel = world.take()
    assert cancel.task_token == b"a"
    assert cancel.cancel.reason == ActivityCancelReason.WORKER_SHUTDOWN
    assert cancel.cancel.details.is_worker_shutdown
    assert world.manager.next_task() is None


def test_without_a_graceful_period_activities_stop_at_once(world: World) -> None:
    world.start()
    world.manager.shutdown(0)
    assert world.take().cancel.reason == ActivityCancelReason.WORKER_SHUTDOWN


def test_tasks_that_arrive_later_are_cancelled_right_after_their_start(world: World) -> None:
    world.manager.shutdown(0)
    world.manager.polled(polled(), "permit", 0)
    assert world.take().HasField("start")
    assert world.take().cancel.reason == ActivityCancelReason.WORKER_SHUTDOWN


def test_what_the_shutdown_stopped_is_tried_elsewhere(world: World) -> None:
    world.start()
    world.beat(1)
    world.answer()
    world.beat(2)
    world.manager.drain()
    world.manager.shutdown(0)
    world.take()
    world.complete(cancelled())
    request = world.report()
    assert isinstance(request, RespondActivityTaskFailedRequest)
    assert request.failure.application_failure_info.type == "WorkerShutdown"
    assert "did not complete in time" in request.failure.message
    assert not request.failure.application_failure_info.non_retryable
    assert request.last_heartbeat_details == payloads(2)


def test_can_heartbeat_acts_during_shutdown() -> None:
    world = World(graceful_shutdown_period=5.0)
    world.start()
    world.manager.shutdown(0)
    world.manager.pollers_stopped()
    world.beat(1, now=1)
    assert world.sent() == [1]


def test_worker_shutdown_awaits_activity_completion_flushing_result(world: World) -> None:
    world.start()
    world.manager.shutdown(0)
    world.manager.pollers_stopped()
    world.take()
    assert not world.manager.is_finished
    world.complete(succeeded())
    assert not world.manager.is_finished
    world.report()
    assert world.manager.is_finished


def test_activities_must_be_flushed_to_server_on_shutdown(world: World) -> None:
    world.manager.shutdown(0)
    assert not world.manager.is_finished
    world.manager.polled(polled(), "permit", 0)
    world.manager.pollers_stopped()
    assert not world.manager.is_finished


# Polling


def test_max_tq_acts_set_passed_to_poll_properly() -> None:
    settings = ActivitySettings(
        "namespace", "queue", "me", max_task_queue_activities_per_second=2.5
    )
    request = ActivityReports(settings).poll()
    assert request.task_queue_metadata.max_tasks_per_second.value == 2.5
    assert (request.namespace, request.task_queue.name, request.identity) == (
        "namespace",
        "queue",
        "me",
    )
    unlimited = ActivityReports(ActivitySettings("namespace", "queue", "me")).poll()
    assert not unlimited.HasField("task_queue_metadata")


def test_the_version_of_the_worker_is_told() -> None:
    build = BuildId("1", use_for_versioning=True)
    by_build = ActivityReports(
        ActivitySettings("n", "q", "me", versioning=build, server_knows_build_ids=True)
    ).poll()
    assert by_build.worker_version_capabilities.build_id == "1"
    assert by_build.worker_version_capabilities.use_versioning
    assert not by_build.HasField("deployment_options")
    to_older_server = ActivityReports(ActivitySettings("n", "q", "me", versioning=build)).poll()
    assert not to_older_server.HasField("worker_version_capabilities")
    deployment = DeploymentVersion("deployment", "2", use_worker_versioning=True)
    by_deployment = ActivityReports(ActivitySettings("n", "q", "me", versioning=deployment)).poll()
    assert by_deployment.deployment_options.deployment_name == "deployment"
    assert by_deployment.deployment_options.build_id == "2"
    assert not by_deployment.HasField("worker_version_capabilities")


def test_an_answer_names_the_build_and_a_failure_its_cause() -> None:
    deployment = DeploymentVersion("deployment", "2", use_worker_versioning=True)
    reports = ActivityReports(
        ActivitySettings("n", "q", "me", versioning=deployment, server_knows_build_ids=True)
    )
    answer = reports.result(b"token", failed(), last_details=None, by_shutdown=False)
    assert isinstance(answer, RespondActivityTaskFailedRequest)
    assert answer.worker_version.build_id == "2"
    assert not answer.worker_version.use_versioning
    assert answer.cause == (
        ActivityTaskFailedCause.ACTIVITY_TASK_FAILED_CAUSE_ACTIVITY_WORKER_UNHANDLED_FAILURE
    )
    too_large = reports.too_large(b"token", "large")
    assert too_large.cause == (
        ActivityTaskFailedCause.ACTIVITY_TASK_FAILED_CAUSE_PAYLOADS_TOO_LARGE
    )


def test_a_heartbeat_that_is_too_large_cancels_an_activity_that_is_over(world: World) -> None:
    world.start()
    world.beat(1)
    world.manager.drain()
    world.answer(HeartbeatAnswer.TOO_LARGE)
    cancel = world.take().cancel
    assert cancel.reason == ActivityCancelReason.CANCELLED
    assert cancel.details.is_cancelled
    world.complete(cancelled())
    assert world.over().outcome is ActivityOutcome.CANCELLED


def test_max_worker_acts_per_second_respected() -> None:
    limit = RateLimit(2)
    assert [limit.reserve(10) for _ in range(3)] == [0, 0.5, 1.0]
    assert limit.reserve(10.5) == 1.0
    # A pause is not made up for by a burst.
    assert [limit.reserve(100), limit.reserve(100)] == [0, 0.5]


def test_what_the_server_did_not_take_is_over_and_not_accepted(world: World) -> None:
    world.start()
    world.complete(succeeded())
    event = world.happened()
    assert isinstance(event, ReportResult)
    world.manager.reported(event.token, accepted=False)
    assert not world.over().accepted
