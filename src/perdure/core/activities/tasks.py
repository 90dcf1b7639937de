"""Activities that the server hands out: from a polled task to the report of its result.

`Activities` owns every activity task of the worker until the server knows how it ended. It does no
I/O and has no clock. The shell

* hands in polled tasks (`polled`), eager ones (`eager`), lang's heartbeats and completions, the
  answers of the RPCs, and the time (`wake`, when `next_deadline` says so);
* takes what lang is to be told with `next_task`: cancellations first, then eager tasks, then polled
  ones;
* carries out what `drain` returns, in order; each `RecordHeartbeat` is answered by one
  `heartbeat_answered`, each `ReportResult` by one `reported`.

Lang is told once at most that an activity is cancelled, whatever the reason, and never after it
completed the task. At most one heartbeat of an activity is under way; a completion waits for it.
A task that the server has given up (not found, or by our own count timed out) is not reported.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final, TypeAlias

from temporalio.api.common.v1.message_pb2 import Payloads
from temporalio.api.workflowservice.v1.request_response_pb2 import (
    PollActivityTaskQueueResponse,
    RecordActivityTaskHeartbeatResponse,
)
from temporalio.bridge.proto.activity_task.activity_task_pb2 import (
    ActivityCancellationDetails,
    ActivityCancelReason,
    ActivityTask,
    Cancel,
)
from temporalio.bridge.proto.core_interface_pb2 import ActivityHeartbeat, ActivityTaskCompletion

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
    ActivitySettings,
    is_benign,
    outcome_of,
    start_task,
)
from perdure.core.activities.running_activity import RunningActivity
from perdure.core.deadlines import Deadlines

__all__ = ["Activities"]

_PATIENCE: Final = 5.0
"""Seconds past its time-out after which a task counts as given up by the server."""

_Reason: TypeAlias = ActivityCancelReason.ValueType


class _Timer(enum.Enum):
    THROTTLE = "throttle"
    HEARTBEAT_TIMEOUT = "heartbeat timeout"
    START_TO_CLOSE = "start to close"
    GRACE = "grace"


class Activities:
    """All activity tasks of a worker; see the module."""

    __slots__ = (
        "_activities",
        "_cancels",
        "_deadlines",
        "_eager",
        "_events",
        "_grace_is_over",
        "_polled",
        "_pollers_stopped",
        "_settings",
        "_shutdown",
        "reports",
    )

    def __init__(self, settings: ActivitySettings) -> None:
        self._settings = settings
        self.reports: Final = ActivityReports(settings)
        self._activities: dict[bytes, RunningActivity] = {}
        self._cancels: OrderedDict[bytes, ActivityTask] = OrderedDict()
        self._eager: deque[RunningActivity] = deque()
        self._polled: deque[RunningActivity] = deque()
        self._deadlines: Deadlines[tuple[bytes, _Timer]] = Deadlines()
        self._events: list[ActivityEvent] = []
        self._shutdown = False
        self._grace_is_over = False
        self._pollers_stopped = False

    # What the shell asks

    @property
    def outstanding(self) -> int:
        """Tasks that are not over."""
        return len(self._activities)

    @property
    def is_finished(self) -> bool:
        """Shutdown is complete: lang's polls end."""
        return self._shutdown and self._pollers_stopped and not self._activities

    def next_deadline(self) -> float | None:
        """When `wake` has something to do."""
        return self._deadlines.next()

    def drain(self) -> list[ActivityEvent]:
        """What has happened since the last time, in order."""
        events, self._events = self._events, []
        return events

    # Tasks

    def polled(self, task: PollActivityTaskQueueResponse, permit: object, now: float) -> None:
        """A task from a poll, not an empty one."""
        self._add(self._polled, task, permit, now)

    def eager(
        self,
        tasks: Iterable[PollActivityTaskQueueResponse],
        permits: Iterable[object],
        now: float,
    ) -> None:
        """Tasks that came with the answer to a workflow task, and the permits taken for them."""
        for permit, task in zip_longest(permits, tasks):
            if task is None:
                self._events.append(PermitUnused(permit))
            else:
                self._add(self._eager, task, permit, now)

    def next_task(self) -> ActivityTask | None:
        """The next thing for lang."""
        if self._cancels:
            return self._cancels.pop(next(iter(self._cancels)))
        queue = self._eager or self._polled
        if not queue:
            return None
        activity = queue.popleft()
        start, activity.start = activity.start, None
        if activity.cancel_task is not None:
            self._cancels[activity.token] = activity.cancel_task
        return start

    # Heartbeats

    def heartbeat(self, heartbeat: ActivityHeartbeat, now: float) -> None:
        """Lang says that an activity is alive. Too late is no error."""
        activity = self._activities.get(heartbeat.task_token)
        if activity is None or activity.result is not None or not activity.server_knows:
            return
        if activity.heartbeat_timeout:
            self._expect(activity, _Timer.HEARTBEAT_TIMEOUT, activity.heartbeat_timeout, now)
        if activity.throttle.record(Payloads(payloads=heartbeat.details)):
            self._send_heartbeat(activity, now)

    def heartbeat_answered(
        self,
        token: bytes,
        answer: RecordActivityTaskHeartbeatResponse | HeartbeatAnswer,
        now: float,
    ) -> None:
        """What became of `RecordHeartbeat`."""
        activity = self._activities[token]
        activity.sending = False
        if answer is HeartbeatAnswer.NOT_FOUND:
            activity.server_knows = False
            self._cancel(
                activity,
                ActivityCancelReason.NOT_FOUND,
                ActivityCancellationDetails(is_not_found=True),
            )
        elif answer is HeartbeatAnswer.TOO_LARGE:
            activity.server_knows = False
            self.cancel(token)
        elif not isinstance(answer, HeartbeatAnswer):
            self._obey(activity, answer)
        if activity.result is not None:
            self._finish(activity, now)
        elif activity.interval_is_over:
            activity.interval_is_over = False
            self._interval_elapsed(activity, now)

    # Results

    def complete(self, completion: ActivityTaskCompletion, now: float) -> bool:
        """Lang's answer to a task. False if no such task is waiting for one.

        Raises `MalformedActivityCompletion`, changing nothing.
        """
        token = completion.task_token
        outcome_of(token, completion.result)
        activity = self._activities.get(token)
        if activity is None or activity.result is not None or not activity.taken:
            return False
        activity.result = completion.result
        activity.ended = now
        self._cancels.pop(token, None)
        for timer in _Timer:
            self._deadlines.clear((token, timer))
        self._finish(activity, now)
        return True

    def reported(self, token: bytes, *, accepted: bool = True) -> None:
        """`ReportResult` was answered. Errors are the shell's to log: lang is never told."""
        self._over(self._activities[token], accepted=accepted)

    # Cancellation and shutdown

    def cancel(self, token: bytes) -> None:
        """Somebody who may asks for the activity to be cancelled (a worker command)."""
        activity = self._activities.get(token)
        if activity is not None:
            self._cancel(
                activity,
                ActivityCancelReason.CANCELLED,
                ActivityCancellationDetails(is_cancelled=True),
            )

    def shutdown(self, now: float) -> None:
        """No more polls. After the graceful period every activity is told to stop."""
        if self._shutdown:
            return
        self._shutdown = True
        period = self._settings.graceful_shutdown_period
        if period > 0:
            self._deadlines.set((b"", _Timer.GRACE), now + period)
        else:
            self._end_grace()

    def pollers_stopped(self) -> None:
        """No `polled` will follow."""
        self._pollers_stopped = True

    def wake(self, now: float) -> None:
        """Let happen what is due."""
        for token, timer in self._deadlines.due(now):
            if timer is _Timer.GRACE:
                self._end_grace()
            elif timer is _Timer.THROTTLE:
                self._interval_elapsed(self._activities[token], now)
            else:
                self._give_up(self._activities[token])

    # Inside

    def _add(
        self,
        queue: deque[RunningActivity],
        task: PollActivityTaskQueueResponse,
        permit: object,
        now: float,
    ) -> None:
        if task.task_token in self._activities:
            self._events.append(PermitUnused(permit))
            return
        activity = RunningActivity(start_task(task), permit, self._settings, now)
        self._activities[activity.token] = activity
        queue.append(activity)
        if activity.heartbeat_timeout:
            self._expect(activity, _Timer.HEARTBEAT_TIMEOUT, activity.heartbeat_timeout, now)
        if activity.start_to_close:
            self._expect(activity, _Timer.START_TO_CLOSE, activity.start_to_close, now)
        if self._grace_is_over:
            self._stop(activity)

    def _expect(self, activity: RunningActivity, timer: _Timer, limit: float, now: float) -> None:
        self._deadlines.set((activity.token, timer), now + limit + _PATIENCE)

    def _give_up(self, activity: RunningActivity) -> None:
        activity.server_knows = False
        details = ActivityCancellationDetails(is_timed_out=True, is_not_found=True)
        self._cancel(activity, ActivityCancelReason.TIMED_OUT, details)

    def _send_heartbeat(self, activity: RunningActivity, now: float) -> None:
        """The interval counts from here, not from the answer."""
        assert activity.throttle.latest is not None
        activity.sending = True
        if activity.result is None:
            self._deadlines.set((activity.token, _Timer.THROTTLE), now + activity.interval)
        request = self.reports.heartbeat(activity.token, activity.throttle.latest)
        self._events.append(RecordHeartbeat(activity.token, request))

    def _interval_elapsed(self, activity: RunningActivity, now: float) -> None:
        if not activity.server_knows:
            return
        if activity.sending:
            activity.interval_is_over = True
        elif activity.throttle.elapsed():
            self._send_heartbeat(activity, now)

    def _obey(self, activity: RunningActivity, answer: RecordActivityTaskHeartbeatResponse) -> None:
        if answer.cancel_requested:
            reason = ActivityCancelReason.CANCELLED
        elif answer.activity_reset:
            reason = ActivityCancelReason.RESET
        elif answer.activity_paused:
            reason = ActivityCancelReason.PAUSED
        else:
            return
        details = ActivityCancellationDetails(
            is_cancelled=answer.cancel_requested,
            is_reset=answer.activity_reset,
            is_paused=answer.activity_paused,
        )
        self._cancel(activity, reason, details)

    def _cancel(
        self, activity: RunningActivity, reason: _Reason, details: ActivityCancellationDetails
    ) -> None:
        if activity.cancel_task is not None or activity.result is not None:
            return
        activity.cancel_task = ActivityTask(
            task_token=activity.token, cancel=Cancel(reason=reason, details=details)
        )
        if activity.taken:
            self._cancels[activity.token] = activity.cancel_task

    def _end_grace(self) -> None:
        self._grace_is_over = True
        for activity in self._activities.values():
            self._stop(activity)

    def _stop(self, activity: RunningActivity) -> None:
        self._cancel(
            activity,
            ActivityCancelReason.WORKER_SHUTDOWN,
            ActivityCancellationDetails(is_worker_shutdown=True),
        )

    def _finish(self, activity: RunningActivity, now: float) -> None:
        """Report the result, after what has to come before it."""
        if activity.sending:
            return
        result, throttle = activity.result, activity.throttle
        assert result is not None
        by_shutdown = activity.stopped_by_shutdown
        outcome = outcome_of(activity.token, result)
        request = None
        if activity.server_knows:
            flush = outcome is ActivityOutcome.CANCELLED and not by_shutdown
            if flush and throttle.has_unsent and throttle.elapsed():
                self._send_heartbeat(activity, now)
                return
            request = self.reports.result(
                activity.token, result, last_details=throttle.latest, by_shutdown=by_shutdown
            )
        if request is None:
            self._over(activity, accepted=False)
        else:
            self._events.append(ReportResult(activity.token, request))

    def _over(self, activity: RunningActivity, *, accepted: bool) -> None:
        result = activity.result
        assert result is not None
        del self._activities[activity.token]
        self._events.append(
            ActivityOver(
                permit=activity.permit,
                activity_type=activity.activity_type,
                workflow_type=activity.workflow_type,
                scheduled=activity.scheduled,
                outcome=outcome_of(activity.token, result),
                benign=is_benign(result),
                began=activity.began,
                ended=activity.ended,
                accepted=accepted,
            )
        )
