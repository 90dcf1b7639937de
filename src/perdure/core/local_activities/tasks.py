"""Local activities: run by the worker that runs the workflow, within the workflow task.

`LocalActivities` owns every local activity of the worker from the request of its workflow to its
result: the queue, attempts and retries, time-outs, cancellation. It does no I/O and has no clock.
The shell

* hands in requests (`request`), what lang answers (`complete`) and the time (`wake`, when
  `next_deadline` says so);
* takes what lang is to be told: `take_cancel` at any time, `start_next` for each slot it got;
* carries out what `drain` returns, in order.

An entry is one local activity, named by run and `seq`; it is queued, running, or backing off to be
queued again. Every attempt has a task token of its own. An attempt that its entry has given up
(timed out, forgotten) is *stray*: lang still runs it, its slot is held until lang says that it is
over, and then nobody wants its result.

Before a run leaves the cache, `cancel_all` cancels what it has and reports when lang took the last
of the cancellations; until then and after nothing of the run is resolved any more.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from temporalio.api.common.v1.message_pb2 import Payload
from temporalio.api.enums.v1.workflow_pb2 import TimeoutType
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.bridge.proto.activity_result.activity_result_pb2 import ActivityExecutionResult
from temporalio.bridge.proto.activity_task.activity_task_pb2 import ActivityTask

from perdure.core.deadlines import Deadlines
from perdure.core.local_activities.cancellations import Cancellations
from perdure.core.local_activities.entry import (
    Entry,
    EntryKey,
    Instant,
    State,
    cancelled_failure,
    no_result_failure,
    start_of,
    timeout_failure,
)
from perdure.core.local_activities.requests import (
    CancelsDelivered,
    LocalActivityCancel,
    LocalActivityRequest,
    LocalEvent,
    LocalOutcome,
    LocalRequest,
    LocalResult,
    PermitReleased,
    Resolved,
)
from perdure.core.local_activities.retry import retry_delay

__all__ = ["LocalActivities", "is_local_token"]

_TOKEN_PREFIX: Final = b"perdure-local-activity:"

_START_TO_CLOSE: Final = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
_SCHEDULE_TO_START: Final = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
_SCHEDULE_TO_CLOSE: Final = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE


def is_local_token(token: bytes) -> bool:
    """Whether a task token names an attempt of a local activity; the server makes no such ones."""
    return token.startswith(_TOKEN_PREFIX)


class _Timer(enum.Enum):
    SCHEDULE_TO_CLOSE = "schedule to close"
    START_TO_CLOSE = "start to close"
    RETRY = "retry"


class _Attempt(NamedTuple):
    """What lang is running; `key` names the entry it belongs to, None when it is stray."""

    key: EntryKey | None
    permit: object
    activity_type: str


class LocalActivities:
    """All local activities of a worker; see the module."""

    __slots__ = (
        "_attempts",
        "_cancellations",
        "_deadlines",
        "_entries",
        "_events",
        "_queue",
        "_repeated",
        "_runs",
        "_tokens_made",
    )

    def __init__(self) -> None:
        self._entries: dict[EntryKey, Entry] = {}
        self._runs: dict[str, set[int]] = {}
        self._queue: deque[Entry] = deque()
        self._attempts: dict[bytes, _Attempt] = {}
        self._cancellations = Cancellations(self._cancels_delivered)
        self._deadlines: Deadlines[tuple[EntryKey, _Timer]] = Deadlines()
        self._events: list[LocalEvent] = []
        self._repeated: Counter[str] = Counter()
        self._tokens_made = 0

    # What the shell asks

    @property
    def has_queued(self) -> bool:
        """`start_next` may have something for the next slot."""
        return bool(self._queue)

    @property
    def is_idle(self) -> bool:
        """Nothing is wanted, and lang runs nothing and has nothing to be told."""
        return not (self._entries or self._attempts or self._cancellations)

    @property
    def unfinished(self) -> int:
        """How many, at least, are not over or still run in lang although nobody wants them."""
        return max(len(self._entries), len(self._attempts))

    def wants(self, token: bytes) -> bool:
        """Somebody waits for the result of this attempt."""
        attempt = self._attempts.get(token)
        return attempt is not None and attempt.key is not None

    def repeated_attempts(self, run_id: str) -> int:
        """Attempts begun in this workflow task by activities begun in an earlier one."""
        return self._repeated[run_id]

    def next_deadline(self) -> float | None:
        """When `wake` has something to do, on the monotonic clock."""
        return self._deadlines.next()

    def drain(self) -> list[LocalEvent]:
        """What has happened since the last time, in order."""
        events, self._events = self._events, []
        return events

    # What happens

    def request(self, requests: Iterable[LocalRequest], now: Instant) -> None:
        """What a run asks for. Some of it may be resolved at once."""
        for request in requests:
            if isinstance(request, LocalActivityCancel):
                self._cancel((request.run_id, request.seq))
            else:
                self._new(request, now)

    def take_cancel(self) -> ActivityTask | None:
        """The next cancellation for lang. It needs no slot and counts as delivered from now on."""
        return self._cancellations.take()

    def start_next(self, permit: object, now: Instant) -> ActivityTask | None:
        """The next attempt for lang, which takes the permit. None leaves the permit alone."""
        while self._queue:
            entry = self._queue.popleft()
            if entry.state is not State.QUEUED or self._entries.get(entry.key) is not entry:
                continue
            limit = entry.schedule_to_start
            if limit and now.monotonic - entry.queued_at.monotonic > limit:
                self._time_out(entry, _SCHEDULE_TO_START, now.monotonic)
                continue
            return self._start(entry, permit, now)
        return None

    def complete(self, token: bytes, result: ActivityExecutionResult, now: Instant) -> bool:
        """Lang's answer to an attempt. False if no such attempt is under way."""
        attempt = self._attempts.pop(token, None)
        if attempt is None:
            return False
        self._cancellations.attempt_over(token)
        self._events.append(PermitReleased(attempt.permit, attempt.activity_type))
        entry = self._entries.get(attempt.key) if attempt.key is not None else None
        if entry is not None and entry.token == token:
            self._ended(entry, result, now)
        return True

    def wake(self, now: Instant) -> None:
        """Let time-outs and retries happen whose time has come."""
        for key, timer in self._deadlines.due(now.monotonic):
            entry = self._entries[key]
            if timer is _Timer.RETRY:
                self._enqueue(entry, now)
            elif timer is _Timer.SCHEDULE_TO_CLOSE:
                self._give_up_attempt(entry, now)
                self._time_out(entry, _SCHEDULE_TO_CLOSE, now.monotonic)
            else:
                self._give_up_attempt(entry, now)
                failure = timeout_failure(_START_TO_CLOSE)
                self._attempt_failed(entry, LocalOutcome.TIMED_OUT, failure, now.monotonic)

    def task_completed(self, run_id: str) -> None:
        """The workflow task of the run was answered."""
        self._repeated.pop(run_id, None)
        for seq in self._runs.get(run_id, ()):
            entry = self._entries[run_id, seq]
            if entry.token:
                entry.started_in_earlier_task = True

    def cancel_all(self, run_id: str) -> None:
        """The run is to leave the cache. `CancelsDelivered` follows, maybe at once.

        Nothing of the run is resolved from now on. What is running stays until lang ends it.
        """
        for seq in list(self._runs.get(run_id, ())):
            entry = self._entries[run_id, seq]
            if entry.state is State.RUNNING:
                self._cancellations.cancel(entry)
                self._make_stray(entry)
            self._remove(entry)
        self._cancellations.withhold(run_id)

    def forget(self, run_id: str) -> None:
        """The run has left the cache."""
        for seq in list(self._runs.get(run_id, ())):
            entry = self._entries[run_id, seq]
            if entry.state is State.RUNNING:
                self._make_stray(entry)
            self._remove(entry)
        self._cancellations.forget(run_id)
        self._repeated.pop(run_id, None)

    # Requests

    def _new(self, request: LocalActivityRequest, now: Instant) -> None:
        entry = Entry(request, now)
        if entry.key in self._entries:
            return
        run_id, seq = entry.key
        self._entries[entry.key] = entry
        self._runs.setdefault(run_id, set()).add(seq)
        if entry.schedule_to_close:
            left = entry.wall_time_left
            if left <= 0:
                self._time_out(entry, _SCHEDULE_TO_CLOSE, now.monotonic)
                return
            self._deadlines.set((entry.key, _Timer.SCHEDULE_TO_CLOSE), now.monotonic + left)
        self._enqueue(entry, now)

    def _cancel(self, key: EntryKey) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.state is State.RUNNING:
            entry.cancel_requested = True
            self._cancellations.cancel(entry)
        else:
            self._resolve(entry, LocalOutcome.CANCELLED, failure=cancelled_failure())

    def _enqueue(self, entry: Entry, now: Instant) -> None:
        entry.state = State.QUEUED
        entry.queued_at = now
        self._queue.append(entry)

    # Attempts

    def _start(self, entry: Entry, permit: object, now: Instant) -> ActivityTask:
        self._tokens_made += 1
        token = b"%s%d" % (_TOKEN_PREFIX, self._tokens_made)
        entry.token = token
        entry.state = State.RUNNING
        entry.started_at = now.monotonic
        entry.lang_was_told = False
        if entry.started_in_earlier_task:
            self._repeated[entry.run.run_id] += 1
        limit = entry.start_to_close
        if limit:
            key = (entry.key, _Timer.START_TO_CLOSE)
            self._deadlines.set(key, now.monotonic + limit)
        self._attempts[token] = _Attempt(entry.key, permit, entry.command.activity_type)
        return ActivityTask(task_token=token, start=start_of(entry, now))

    def _ended(self, entry: Entry, result: ActivityExecutionResult, now: Instant) -> None:
        self._deadlines.clear((entry.key, _Timer.START_TO_CLOSE))
        at, kind = now.monotonic, result.WhichOneof("status")
        if kind == "completed":
            self._events.append(entry.over(LocalOutcome.COMPLETED, now))
            payload = result.completed.result if result.completed.HasField("result") else None
            self._resolve(entry, LocalOutcome.COMPLETED, at, payload=payload)
        elif kind == "cancelled":
            self._events.append(entry.over(LocalOutcome.CANCELLED, now))
            self._resolve(entry, LocalOutcome.CANCELLED, at, failure=result.cancelled.failure)
        else:
            failure = result.failed.failure if kind == "failed" else no_result_failure()
            self._events.append(entry.over(LocalOutcome.FAILED, now, failure))
            self._attempt_failed(entry, LocalOutcome.FAILED, failure, at)

    def _attempt_failed(
        self, entry: Entry, outcome: LocalOutcome, failure: Failure, now: float
    ) -> None:
        delay = None
        if not entry.cancel_requested:
            delay = retry_delay(entry.command.retry_policy, entry.attempt, failure)
        if delay is None or delay > entry.retry_threshold:
            self._resolve(entry, outcome, now, failure=failure, backoff=delay)
            return
        entry.attempt += 1
        entry.state = State.BACKING_OFF
        self._deadlines.set((entry.key, _Timer.RETRY), now + delay)

    def _give_up_attempt(self, entry: Entry, now: Instant) -> None:
        """Lang is told that the attempt timed out; whatever it answers comes too late."""
        if entry.state is State.RUNNING:
            self._events.append(entry.over(LocalOutcome.TIMED_OUT, now))
            self._cancellations.time_out(entry)
            self._make_stray(entry)

    def _make_stray(self, entry: Entry) -> None:
        self._attempts[entry.token] = self._attempts[entry.token]._replace(key=None)

    def _cancels_delivered(self, run_id: str) -> None:
        self._events.append(CancelsDelivered(run_id))

    # Results

    def _time_out(self, entry: Entry, kind: TimeoutType.ValueType, now: float) -> None:
        self._resolve(entry, LocalOutcome.TIMED_OUT, now, failure=timeout_failure(kind))

    def _resolve(
        self,
        entry: Entry,
        outcome: LocalOutcome,
        now: float | None = None,
        *,
        payload: Payload | None = None,
        failure: Failure | None = None,
        backoff: float | None = None,
    ) -> None:
        runtime = None
        if now is not None and entry.state is State.RUNNING:
            runtime = now - entry.started_at
        result = LocalResult(
            seq=entry.command.seq,
            outcome=outcome,
            attempt=entry.attempt,
            original_schedule_time=entry.original_schedule_time,
            payload=payload,
            failure=failure,
            runtime=runtime,
            backoff=backoff,
        )
        self._remove(entry)
        self._events.append(Resolved(entry.run.run_id, result))

    def _remove(self, entry: Entry) -> None:
        run_id, seq = entry.key
        del self._entries[entry.key]
        of_run = self._runs[run_id]
        of_run.discard(seq)
        if not of_run:
            del self._runs[run_id]
        for timer in _Timer:
            self._deadlines.clear((entry.key, timer))
