"""The local activity manager: the rows of the catalogue for local activities, by their names."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import RetryPolicy
from temporalio.api.enums.v1 import ApplicationErrorCategory, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.activity_result import (
    ActivityExecutionResult,
    Cancellation,
    Failure as FailureResult,
    Success,
    WillCompleteAsync,
)
from temporalio.bridge.proto.activity_task import ActivityCancelReason, ActivityTask
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity
from tests.core.support.history_builder import (
    application_failure,
    cancelled_failure,
    duration,
    payload,
)

from perdure.core.local_activities.entry import Instant
from perdure.core.local_activities.requests import (
    AttemptOver,
    CancelsDelivered,
    LocalActivityCancel,
    LocalActivityRequest,
    LocalOutcome,
    LocalResult,
    PermitReleased,
    Resolved,
)
from perdure.core.local_activities.tasks import LocalActivities, is_local_token
from perdure.core.run_info import RunInfo

WALL = 1_800_000_000.0
RETRY = RetryPolicy(initial_interval=duration(1), backoff_coefficient=10, maximum_attempts=5)


def at(seconds: float) -> Instant:
    """So many seconds after the test began."""
    return Instant(seconds, WALL + seconds)


def run_info(run_id: str) -> RunInfo:
    return RunInfo("namespace", "workflow-id", run_id, "workflow-type", "task-queue")


def request(seq: int = 1, *, run_id: str = "run", **fields: object) -> LocalActivityRequest:
    command = ScheduleLocalActivity(
        seq=seq,
        activity_id=str(seq),
        activity_type="activity",
        **{"schedule_to_close_timeout": duration(1000), "attempt": 1} | fields,  # type: ignore[arg-type]
    )
    return LocalActivityRequest(run_info(run_id), command)


def failed(failure: Failure | None = None) -> ActivityExecutionResult:
    return ActivityExecutionResult(failed=FailureResult(failure=failure or application_failure()))


SUCCESS = ActivityExecutionResult(completed=Success(result=payload("done")))
CANCELLED = ActivityExecutionResult(cancelled=Cancellation(failure=cancelled_failure()))


class World:
    """A manager and a lang that takes what it gets."""

    def __init__(self) -> None:
        self.manager = LocalActivities()
        self.permits = 0

    def request(
        self, *requests: LocalActivityRequest | LocalActivityCancel, when: float = 0
    ) -> None:
        self.manager.request(requests, at(when))

    def start(self, when: float = 0) -> ActivityTask:
        self.permits += 1
        task = self.manager.start_next(f"permit-{self.permits}", at(when))
        assert task is not None
        return task

    def complete(
        self, task: ActivityTask, result: ActivityExecutionResult = SUCCESS, when: float = 0
    ) -> None:
        assert self.manager.complete(task.task_token, result, at(when))

    def wake(self, when: float) -> None:
        assert self.manager.next_deadline() == pytest.approx(when)
        self.manager.wake(at(when))

    def cancel(self) -> ActivityTask:
        task = self.manager.take_cancel()
        assert task is not None
        return task

    def resolved(self) -> LocalResult:
        """The one resolution that happened."""
        (event,) = (event for event in self.manager.drain() if isinstance(event, Resolved))
        return event.result

    def nothing_resolved(self) -> None:
        assert not [event for event in self.manager.drain() if isinstance(event, Resolved)]


@pytest.fixture
def world() -> World:
    return World()


def test_a_local_activity_from_request_to_result(world: World) -> None:
    world.request(request(arguments=[payload(1)], retry_policy=RETRY), when=3)
    task = world.start(when=4)
    assert is_local_token(task.task_token)
    start = task.start
    assert start.is_local
    assert (start.activity_type, start.activity_id, start.attempt) == ("activity", "1", 1)
    assert list(start.input) == [payload(1)]
    assert start.workflow_execution.run_id == "run"
    assert start.scheduled_time.seconds == int(WALL) + 3
    assert start.started_time.seconds == int(WALL) + 4
    assert start.start_to_close_timeout == duration(1000)
    assert start.retry_policy == RETRY
    world.complete(task, when=6)
    released, measured, resolved = world.manager.drain()
    assert released == PermitReleased("permit-1", "activity")
    assert measured == AttemptOver(
        activity_type="activity",
        workflow_type="workflow-type",
        outcome=LocalOutcome.COMPLETED,
        benign=False,
        runtime=2,
        since_scheduled=3,
    )
    assert isinstance(resolved, Resolved)
    assert resolved.run_id == "run"
    result = resolved.result
    assert (result.seq, result.outcome, result.attempt) == (1, LocalOutcome.COMPLETED, 1)
    assert result.payload == payload("done")
    assert result.runtime == pytest.approx(2)
    assert result.original_schedule_time.seconds == int(WALL) + 3
    assert world.manager.is_idle


def test_an_activity_sees_the_default_retries(world: World) -> None:
    world.request(request())
    policy = world.start().start.retry_policy
    assert policy == RetryPolicy(
        initial_interval=duration(1), backoff_coefficient=2, maximum_interval=duration(100)
    )


def test_max_concurrent_respected(world: World) -> None:
    # Nothing starts without a permit, and a permit comes back only when lang is done.
    world.request(*(request(seq) for seq in range(1, 4)))
    first, second = world.start(), world.start()
    assert world.manager.unfinished == 3
    assert world.manager.has_queued
    world.complete(second)
    world.complete(first)
    permits = [e.permit for e in world.manager.drain() if isinstance(e, PermitReleased)]
    assert permits == ["permit-2", "permit-1"]
    assert world.start().start.activity_id == "3"
    assert world.manager.start_next("unused", at(0)) is None


def test_respects_timer_backoff_threshold(world: World) -> None:
    policy = RetryPolicy(initial_interval=duration(10), backoff_coefficient=10)
    world.request(request(retry_policy=policy, local_retry_threshold=duration(5)))
    world.complete(world.start(), failed(), when=1)
    result = world.resolved()
    assert (result.outcome, result.backoff, result.attempt) == (LocalOutcome.FAILED, 10, 1)
    assert world.manager.is_idle


def test_without_a_threshold_a_minute_is_waited_locally(world: World) -> None:
    policy = RetryPolicy(initial_interval=duration(50), backoff_coefficient=2)
    world.request(request(retry_policy=policy))
    world.complete(world.start(), failed())
    world.nothing_resolved()
    world.wake(50)
    world.complete(world.start(50), failed(), when=50)
    assert world.resolved().backoff == 100


def test_retries_locally_with_a_new_token(world: World) -> None:
    world.request(request(retry_policy=RETRY, start_to_close_timeout=duration(3)))
    first = world.start()
    world.complete(first, failed(), when=2)
    world.nothing_resolved()
    assert not world.manager.has_queued
    world.wake(3)
    second = world.start(3)
    assert second.start.attempt == 2
    assert second.task_token != first.task_token
    assert second.start.current_attempt_scheduled_time.seconds == int(WALL) + 3
    assert second.start.scheduled_time.seconds == int(WALL)
    world.complete(second, when=4)
    result = world.resolved()
    assert (result.outcome, result.attempt, result.runtime) == (LocalOutcome.COMPLETED, 2, 1)


def test_attempts_run_out(world: World) -> None:
    world.request(request(retry_policy=RetryPolicy(maximum_attempts=2)))
    world.complete(world.start(), failed())
    world.wake(1)
    world.complete(world.start(1), failed(), when=1)
    result = world.resolved()
    assert (result.outcome, result.backoff, result.attempt) == (LocalOutcome.FAILED, None, 2)
    assert result.failure == application_failure()


def test_respects_non_retryable_error_types(world: World) -> None:
    policy = RetryPolicy(non_retryable_error_types=["fault"])
    world.request(request(retry_policy=policy))
    world.complete(world.start(), failed(application_failure(kind="Fault")))
    result = world.resolved()
    assert (result.outcome, result.backoff) == (LocalOutcome.FAILED, None)


def test_a_non_retryable_failure_is_final(world: World) -> None:
    world.request(request(retry_policy=RETRY))
    world.complete(world.start(), failed(application_failure(non_retryable=True)))
    assert world.resolved().backoff is None


def test_can_cancel_in_flight(world: World) -> None:
    world.request(request())
    task = world.start()
    world.request(LocalActivityCancel("run", 1))
    cancel = world.cancel()
    assert cancel.task_token == task.task_token
    assert cancel.cancel.reason == ActivityCancelReason.CANCELLED
    assert cancel.cancel.details.is_cancelled
    world.nothing_resolved()
    world.complete(task, CANCELLED, when=1)
    assert world.resolved().outcome is LocalOutcome.CANCELLED


def test_can_cancel_during_local_backoff(world: World) -> None:
    world.request(request(retry_policy=RETRY))
    world.complete(world.start(), failed())
    world.request(LocalActivityCancel("run", 1))
    result = world.resolved()
    assert result.outcome is LocalOutcome.CANCELLED
    assert result.failure is not None
    assert result.failure.HasField("canceled_failure_info")
    assert result.runtime is None
    assert world.manager.is_idle
    assert world.manager.next_deadline() is None


def test_can_cancel_while_queued(world: World) -> None:
    world.request(request(), LocalActivityCancel("run", 1))
    assert world.resolved().outcome is LocalOutcome.CANCELLED
    assert world.manager.start_next("unused", at(0)) is None
    assert world.manager.take_cancel() is None


def test_a_cancel_of_what_is_over_is_ignored(world: World) -> None:
    world.request(request())
    world.complete(world.start())
    world.resolved()
    world.request(LocalActivityCancel("run", 1), LocalActivityCancel("other", 9))
    assert world.manager.drain() == []
    assert world.manager.take_cancel() is None


def test_lang_is_not_told_to_cancel_what_it_has_completed(world: World) -> None:
    world.request(request())
    task = world.start()
    world.request(LocalActivityCancel("run", 1))
    world.complete(task)
    assert world.manager.take_cancel() is None
    assert world.resolved().outcome is LocalOutcome.COMPLETED


def test_cancelled_attempt_is_not_retried_locally(world: World) -> None:
    world.request(request(retry_policy=RETRY))
    task = world.start()
    world.request(LocalActivityCancel("run", 1))
    world.complete(task, failed())
    result = world.resolved()
    assert (result.outcome, result.backoff) == (LocalOutcome.FAILED, None)


def test_sched_to_start_timeout(world: World) -> None:
    world.request(request(schedule_to_start_timeout=duration(2)))
    assert world.manager.start_next("unused", at(3)) is None
    result = world.resolved()
    assert result.outcome is LocalOutcome.TIMED_OUT
    assert result.failure is not None
    kind = result.failure.timeout_failure_info.timeout_type
    assert kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START


def test_schedule_to_start_counts_the_wait_in_this_queue_only(world: World) -> None:
    world.request(request(schedule_to_start_timeout=duration(2), retry_policy=RETRY))
    world.complete(world.start(1), failed(), when=5)
    world.wake(6)
    assert world.start(7).start.attempt == 2


def test_local_x_to_close_timeout_start_to_close(world: World) -> None:
    """Rows: x_to_close_timeout."""
    world.request(
        request(start_to_close_timeout=duration(2), retry_policy=RetryPolicy(maximum_attempts=1))
    )
    task = world.start()
    assert task.start.start_to_close_timeout == duration(2)
    world.wake(2)
    result = world.resolved()
    assert result.outcome is LocalOutcome.TIMED_OUT
    assert result.failure is not None
    kind = result.failure.timeout_failure_info.timeout_type
    assert kind == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    cancel = world.cancel()
    assert cancel.cancel.reason == ActivityCancelReason.TIMED_OUT
    assert cancel.cancel.details.is_timed_out
    # The slot is lang's until lang says that it is done.
    assert world.manager.unfinished == 1
    world.complete(task)
    assert world.manager.drain() == [PermitReleased("permit-1", "activity")]


def test_local_x_to_close_timeout_schedule_to_close(world: World) -> None:
    world.request(
        request(schedule_to_close_timeout=duration(2), start_to_close_timeout=duration(50))
    )
    task = world.start(1)
    assert task.start.start_to_close_timeout == duration(2)
    world.wake(2)
    result = world.resolved()
    assert result.runtime == pytest.approx(1)
    assert result.failure is not None
    kind = result.failure.timeout_failure_info.timeout_type
    assert kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE
    assert world.cancel().task_token == task.task_token


def test_an_attempt_that_timed_out_is_retried(world: World) -> None:
    world.request(request(start_to_close_timeout=duration(2), retry_policy=RETRY))
    first = world.start()
    world.wake(2)
    world.nothing_resolved()
    world.wake(3)
    second = world.start(3)
    assert second.start.attempt == 2
    # What the first attempt says now is too late.
    world.complete(first, when=4)
    world.nothing_resolved()
    world.complete(second, when=4)
    assert world.resolved().attempt == 2


def test_schedule_to_close_spans_attempts(world: World) -> None:
    world.request(request(schedule_to_close_timeout=duration(5), retry_policy=RETRY))
    world.complete(world.start(), failed(), when=1)
    world.wake(2)
    world.complete(world.start(2), failed(), when=2)
    world.wake(5)
    result = world.resolved()
    assert result.outcome is LocalOutcome.TIMED_OUT
    assert world.manager.take_cancel() is None
    assert world.manager.is_idle


def test_schedule_to_close_ends_a_backoff(world: World) -> None:
    # The compiled core forgets such an activity, and its workflow hangs.
    world.request(request(schedule_to_close_timeout=duration(0.5), retry_policy=RETRY))
    world.complete(world.start(), failed())
    world.wake(0.5)
    assert world.manager.start_next("permit", at(2)) is None
    assert world.resolved().outcome is LocalOutcome.TIMED_OUT


def test_time_that_the_workflow_spent_backing_off_counts(world: World) -> None:
    """Rows: schedule_to_close_timeout_across_timer_backoff."""
    began = Timestamp(seconds=int(WALL) - 7)
    limit = duration(10)
    world.request(request(attempt=3, original_schedule_time=began, schedule_to_close_timeout=limit))
    task = world.start()
    assert (task.start.attempt, task.start.scheduled_time) == (3, began)
    world.wake(3)
    assert world.resolved().original_schedule_time == began


def test_no_time_is_left_at_all(world: World) -> None:
    began = Timestamp(seconds=int(WALL) - 10)
    limit = duration(10)
    world.request(request(attempt=3, original_schedule_time=began, schedule_to_close_timeout=limit))
    assert world.resolved().outcome is LocalOutcome.TIMED_OUT
    assert world.manager.is_idle


def test_nonfirst_la_attempt_count_is_accurate(world: World) -> None:
    manager = world.manager
    world.request(request(1, retry_policy=RETRY), request(2), request(3, run_id="other"))
    world.complete(world.start(), failed())
    assert manager.repeated_attempts("run") == 0
    world.wake(1)
    retried = next(
        task for task in (world.start(1), world.start(1), world.start(1)) if task.start.attempt == 2
    )
    # Attempts in the task in which the activity was begun do not count.
    assert manager.repeated_attempts("run") == 0
    manager.task_completed("run")
    world.complete(retried, failed(), when=1)
    world.wake(11)
    world.start(11)
    assert manager.repeated_attempts("run") == 1
    assert manager.repeated_attempts("other") == 0
    manager.task_completed("run")
    assert manager.repeated_attempts("run") == 0
    # One that comes back after a timer of the workflow has begun in this task.
    world.request(request(4, attempt=2), when=12)
    world.start(12)
    assert manager.repeated_attempts("run") == 0


def test_cancel_all_in_run_drops_la_not_yet_dispatched(world: World) -> None:
    """Rows: queued_la_cancelled_by_eviction_does_not_surface."""
    world.request(request(1), request(2, run_id="other"))
    world.manager.cancel_all("run")
    assert world.manager.drain() == [CancelsDelivered("run")]
    assert world.start().start.workflow_execution.run_id == "other"
    assert world.manager.start_next("unused", at(0)) is None


def test_cancel_all_waits_until_lang_took_the_cancels(world: World) -> None:
    world.request(request(1), request(2), request(3))
    first, second = world.start(), world.start()
    world.manager.cancel_all("run")
    assert world.manager.drain() == []
    assert world.cancel().task_token == first.task_token
    assert world.manager.drain() == []
    assert world.cancel().task_token == second.task_token
    assert world.manager.drain() == [CancelsDelivered("run")]
    # What they answer is nobody's business any more.
    world.complete(first, CANCELLED)
    world.complete(second)
    world.nothing_resolved()
    assert world.manager.is_idle


def test_a_completion_stands_for_the_delivery_of_its_cancel(world: World) -> None:
    world.request(request())
    task = world.start()
    world.manager.cancel_all("run")
    world.complete(task)
    assert CancelsDelivered("run") in world.manager.drain()
    assert world.manager.take_cancel() is None


def test_duplicate_cancel_requests_queue_one_cancel_and_report_delivery(world: World) -> None:
    world.request(request())
    task = world.start()
    world.request(LocalActivityCancel("run", 1), LocalActivityCancel("run", 1))
    world.manager.cancel_all("run")
    assert world.cancel().task_token == task.task_token
    assert world.manager.take_cancel() is None
    assert world.manager.drain() == [CancelsDelivered("run")]


def test_a_cancel_that_was_delivered_before_does_not_hold_the_eviction(world: World) -> None:
    world.request(request())
    world.start()
    world.request(LocalActivityCancel("run", 1))
    world.cancel()
    world.manager.cancel_all("run")
    assert world.manager.drain() == [CancelsDelivered("run")]


def test_a_forgotten_run_resolves_nothing_and_returns_its_permits(world: World) -> None:
    world.request(request(1), request(2, retry_policy=RETRY), request(3))
    first, second = world.start(), world.start()
    world.complete(second, failed())
    world.manager.drain()
    world.manager.forget("run")
    assert world.manager.unfinished == 1
    assert world.manager.next_deadline() is None
    assert world.manager.start_next("unused", at(9)) is None
    world.complete(first, when=9)
    assert world.manager.drain() == [PermitReleased("permit-1", "activity")]
    assert world.manager.is_idle


def test_a_request_that_comes_twice_is_run_once(world: World) -> None:
    world.request(request(), request())
    world.start()
    assert world.manager.start_next("unused", at(0)) is None
    assert world.manager.unfinished == 1


def test_an_answer_to_no_attempt(world: World) -> None:
    assert not world.manager.complete(b"unknown", SUCCESS, at(0))
    world.request(request())
    task = world.start()
    world.complete(task)
    assert not world.manager.complete(task.task_token, SUCCESS, at(0))


def test_a_local_activity_cannot_be_completed_by_a_client(world: World) -> None:
    world.request(request(retry_policy=RETRY))
    world.complete(world.start(), ActivityExecutionResult(will_complete_async=WillCompleteAsync()))
    result = world.resolved()
    assert (result.outcome, result.backoff) == (LocalOutcome.FAILED, None)
    assert result.failure is not None
    assert "completed later by a client" in result.failure.message


def test_a_failure_that_speaks_of_a_timeout_is_still_a_failure(world: World) -> None:
    failure = Failure(message="slow")
    failure.timeout_failure_info.SetInParent()
    world.request(request(retry_policy=RetryPolicy(maximum_attempts=1)))
    world.complete(world.start(), failed(failure))
    assert world.resolved().outcome is LocalOutcome.FAILED


def test_every_attempt_is_measured_when_it_ends(world: World) -> None:
    """Time-outs end an attempt for who measures, whatever lang says later."""
    policy = RetryPolicy(initial_interval=duration(1), backoff_coefficient=1)
    world.request(request(retry_policy=policy, start_to_close_timeout=duration(5)))
    stray = world.start()
    world.wake(5)
    world.complete(stray, when=6)
    world.wake(6)
    benign = application_failure()
    benign.application_failure_info.category = (
        ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN
    )
    world.complete(world.start(when=6), failed(benign), when=7)
    world.wake(8)
    world.complete(world.start(when=8), CANCELLED, when=10)
    measured = [event for event in world.manager.drain() if isinstance(event, AttemptOver)]
    assert [(m.outcome, m.benign, m.runtime) for m in measured] == [
        (LocalOutcome.TIMED_OUT, False, 5),
        (LocalOutcome.FAILED, True, 1),
        (LocalOutcome.CANCELLED, False, 2),
    ]


def test_backing_off_la_cancelled_by_eviction_does_not_surface(world: World) -> None:
    """Nothing is running, so nobody has to be told; and its retry never comes."""
    world.request(request(retry_policy=RETRY))
    world.complete(world.start(), failed())
    world.manager.drain()
    assert world.manager.next_deadline() is not None
    world.manager.cancel_all("run")
    assert world.manager.drain() == [CancelsDelivered("run")]
    assert world.manager.next_deadline() is None
    assert world.manager.is_idle


def test_timer_backoff_concurrent_with_non_timer_backoff(world: World) -> None:
    """One is reported, to be a timer of the workflow; the other one waits and is tried again."""
    long = RetryPolicy(initial_interval=duration(100))
    world.request(
        request(1, retry_policy=long, local_retry_threshold=duration(5)),
        request(2, retry_policy=RETRY, local_retry_threshold=duration(5)),
    )
    world.complete(world.start(), failed())
    world.complete(world.start(), failed())
    result = world.resolved()
    assert (result.seq, result.backoff) == (1, 100)
    world.wake(1)
    again = world.start(1)
    assert (again.start.activity_id, again.start.attempt) == ("2", 2)
    world.complete(again, when=1)
    assert world.resolved().seq == 2
