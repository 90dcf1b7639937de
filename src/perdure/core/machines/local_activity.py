"""Local activity: run by this worker within the workflow task, remembered by a marker.

Live: a request goes to the manager, its result becomes a job for lang and a marker for history.
Replay: nothing runs; the marker is read one sequence ahead, its result becomes the job, and the
marker's event later confirms it. A machine that still waits when a live task starts was never
finished: it begins to run then, and counts as live.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import Payload
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    ActivityCancellationType,
)

from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.failures import (
    ActivityIdentity,
    local_activity_cancelled,
    local_activity_timed_out,
)
from perdure.core.history.events import describe
from perdure.core.local_activities.requests import LocalOutcome, LocalResult
from perdure.core.machines.fields import check_same
from perdure.core.machines.host import LocalHost
from perdure.core.machines.local_marker import LOCAL_ACTIVITY_MARKER, LocalMarker, read_local_marker
from perdure.core.machines.machine import Machine, Table

__all__ = ["LocalActivityMachine"]


class State(IntEnum):
    EXECUTING = auto()
    REPLAYING = auto()
    REQUEST_SENT = auto()
    MARKER_COMMAND_CREATED = auto()
    RESULT_NOTIFIED = auto()
    WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD = auto()
    RESOLVED_FROM_MARKER_LOOK_AHEAD_WAITING_MARKER_EVENT = auto()
    MARKER_COMMAND_RECORDED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    HANDLE_RESULT = auto()
    COMMAND_RECORD_MARKER = auto()
    MARKER_RECORDED = auto()
    HANDLE_KNOWN_RESULT = auto()
    LIVE_TASK_STARTED = auto()
    CANCEL_TRY = auto()
    CANCEL_WAIT = auto()
    CANCEL_ABANDON = auto()
    CANCEL_UNSENT = auto()


S, E = State, Event

_CANCELS: Final = (E.CANCEL_TRY, E.CANCEL_WAIT, E.CANCEL_ABANDON)
_CANCEL_EVENT: Final = {
    ActivityCancellationType.TRY_CANCEL: E.CANCEL_TRY,
    ActivityCancellationType.WAIT_CANCELLATION_COMPLETED: E.CANCEL_WAIT,
    ActivityCancellationType.ABANDON: E.CANCEL_ABANDON,
}
_OVER: Final = (
    S.MARKER_COMMAND_CREATED,
    S.RESULT_NOTIFIED,
    S.RESOLVED_FROM_MARKER_LOOK_AHEAD_WAITING_MARKER_EVENT,
    S.MARKER_COMMAND_RECORDED,
)


class _Result:
    """What lang was told, for the marker."""

    __slots__ = (
        "activation_index",
        "attempt",
        "backoff",
        "complete_time",
        "failure",
        "kind",
        "original_schedule_time",
        "payload",
    )

    def __init__(self, kind: LocalOutcome, attempt: int) -> None:
        self.kind = kind
        self.attempt = attempt
        self.payload: Payload | None = None
        self.failure: Failure | None = None
        self.backoff: int | None = None
        self.complete_time: int | None = None
        self.original_schedule_time: Timestamp | None = None
        self.activation_index: int | None = None


class LocalActivityMachine(Machine):
    """One local activity of lang (or one of its rounds between backoffs), known by its `seq`."""

    __slots__ = (
        "_cancel_event",
        "_identity",
        "_local",
        "_result",
        "_scheduled_at",
        "_was_cancelled",
        "body",
        "seq",
        "site",
    )

    table = Table(
        "LocalActivity",
        State,
        Event,
        {
            (S.EXECUTING, E.SCHEDULE): (S.REQUEST_SENT, "request"),
            (S.REPLAYING, E.SCHEDULE): (
                S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD,
                "wait",
            ),
            (S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD, E.HANDLE_KNOWN_RESULT): (
                S.RESOLVED_FROM_MARKER_LOOK_AHEAD_WAITING_MARKER_EVENT,
                "resolve_known",
            ),
            (S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD, E.LIVE_TASK_STARTED): (
                S.REQUEST_SENT,
                "request_late",
            ),
            **{
                (S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD, cancel): (
                    S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD,
                    "remember_cancel",
                )
                for cancel in _CANCELS
            },
            (S.REQUEST_SENT, E.HANDLE_RESULT): (S.MARKER_COMMAND_CREATED, "resolve"),
            (S.REQUEST_SENT, E.CANCEL_TRY): (S.MARKER_COMMAND_CREATED, "ask_and_resolve"),
            (S.REQUEST_SENT, E.CANCEL_WAIT): (S.REQUEST_SENT, "ask"),
            (S.REQUEST_SENT, E.CANCEL_ABANDON): (S.MARKER_COMMAND_CREATED, "resolve_cancelled"),
            (S.REQUEST_SENT, E.CANCEL_UNSENT): (S.MARKER_COMMAND_CREATED, "resolve_cancelled"),
            (S.MARKER_COMMAND_CREATED, E.COMMAND_RECORD_MARKER): (S.RESULT_NOTIFIED, None),
            (S.RESULT_NOTIFIED, E.MARKER_RECORDED): (S.MARKER_COMMAND_RECORDED, "check_marker"),
            (S.RESOLVED_FROM_MARKER_LOOK_AHEAD_WAITING_MARKER_EVENT, E.MARKER_RECORDED): (
                S.MARKER_COMMAND_RECORDED,
                "check_marker",
            ),
            **{
                (state, cancel): (state, "ask_again")
                for state in _OVER
                for cancel in (E.CANCEL_TRY, E.CANCEL_WAIT)
            },
        },
        initial=S.EXECUTING,
        final=(S.MARKER_COMMAND_RECORDED,),
        ignored=tuple((state, E.CANCEL_ABANDON) for state in _OVER),
        history={EventType.EVENT_TYPE_MARKER_RECORDED: E.MARKER_RECORDED},
        commands={CommandType.COMMAND_TYPE_RECORD_MARKER: E.COMMAND_RECORD_MARKER},
    )

    def __init__(self, host: LocalHost, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        body = command.body
        self._local = host
        self.seq: int = body.seq
        self.body = body
        self.site = command.site
        if not (
            body.HasField("schedule_to_close_timeout") or body.HasField("start_to_close_timeout")
        ):
            raise FatalError(f"{body.activity_id!r}: a local activity needs a timeout to close")
        self._identity = ActivityIdentity(body.activity_id, body.activity_type)
        self._cancel_event = _CANCEL_EVENT.get(body.cancellation_type, E.CANCEL_WAIT)
        self._scheduled_at = host.time_now
        self._was_cancelled = False
        self._result: _Result | None = None
        if host.replaying:
            self.state = int(S.REPLAYING)
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        identity = self._identity
        return (
            f"LocalActivity(seq {self.seq}, id {identity.activity_id!r},"
            f" type {identity.activity_type!r})"
        )

    @property
    def awaits_marker(self) -> bool:
        """True if its marker has no command in the queue, because this is a replay."""
        return self.state in _WITHOUT_COMMAND

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want it any more."""
        self._cancel(command)

    def handle_result(self, result: LocalResult) -> None:
        """The manager's result."""
        self.fire(E.HANDLE_RESULT, result)

    def handle_known(self, marker: LocalMarker) -> None:
        """The result that history holds."""
        self.fire(E.HANDLE_KNOWN_RESULT, marker)

    def live_task_started(self) -> None:
        """Nothing of history is left: run it."""
        self.fire(E.LIVE_TASK_STARTED)

    # Effects

    def request(self, _: None) -> None:
        self._local.request_local(self)

    def wait(self, _: None) -> None:
        self._local.await_known_local(self)

    def request_late(self, _: None) -> None:
        self._local.request_local(self)
        if self._was_cancelled:
            self._cancel(None)

    def remember_cancel(self, _: LangCommand | None) -> None:
        self._was_cancelled = True

    def resolve(self, result: LocalResult) -> None:
        told = _Result(result.outcome, result.attempt)
        told.payload = result.payload
        told.original_schedule_time = result.original_schedule_time
        if result.runtime is not None:
            told.complete_time = self._scheduled_at + round(result.runtime * 1e9)
        if result.backoff is not None:
            told.backoff = round(result.backoff * 1e9)
        told.failure = self._wrapped(result.failure, is_over=result.backoff is None)
        self._tell(told)

    def ask(self, _: LangCommand | None) -> None:
        self._local.cancel_local(self.seq)

    def ask_and_resolve(self, command: LangCommand | None) -> None:
        self._local.cancel_local(self.seq)
        self.resolve_cancelled(command)

    def resolve_cancelled(self, _: LangCommand | None) -> None:
        told = _Result(LocalOutcome.CANCELLED, max(self.body.attempt, 1))
        told.failure = Failure()
        local_activity_cancelled(told.failure, self._identity, None)
        told.original_schedule_time = Timestamp()
        if self.body.HasField("original_schedule_time"):
            told.original_schedule_time.CopyFrom(self.body.original_schedule_time)
        else:
            told.original_schedule_time.FromNanoseconds(self._scheduled_at)
        self._tell(told)

    def ask_again(self, _: LangCommand | None) -> None:
        """It is over for lang, but the manager may still have it, backing off."""
        if self._result is not None:
            self._local.cancel_local(self.seq)

    def resolve_known(self, marker: LocalMarker) -> None:
        told = _Result(marker.outcome, marker.attempt)
        told.payload = marker.result
        told.failure = self._wrapped(marker.failure, is_over=marker.backoff is None)
        told.backoff = marker.backoff
        told.complete_time = marker.complete_time
        told.original_schedule_time = marker.original_schedule_time
        self._give(told)

    def check_marker(self, event: HistoryEvent) -> None:
        marker = read_local_marker(event)
        if marker is None:
            raise NondeterminismError(
                f"history has {describe(event)} of another kind where the workflow's code now asks"
                f" for {self.describe()}"
            )
        if marker.seq != self.seq:
            raise NondeterminismError(
                f"{describe(event)} of history is about the local activity with seq {marker.seq},"
                f" but the workflow's code now asks for {self.describe()}"
            )
        told = self._result
        if told is not None and told.kind is not LocalOutcome.CANCELLED:
            was_success = marker.outcome is LocalOutcome.COMPLETED
            if (told.kind is LocalOutcome.COMPLETED) != was_success:
                raise NondeterminismError(
                    f"{describe(event)} of history says that {self.describe()} ended as"
                    f" {marker.outcome.value}, but here it ended as {told.kind.value}"
                )
        if self.host.checks_identity():
            check_same(event, "local activity id", marker.activity_id, self._identity.activity_id)
            check_same(
                event, "local activity type", marker.activity_type, self._identity.activity_type
            )
        self.body = None
        if told is not None:
            told.payload = told.failure = None

    # Parts

    def _wrapped(self, failure: Failure | None, *, is_over: bool) -> Failure | None:
        """Bare time-outs and cancellations become failures of this activity.

        Other cores leave them bare in markers, and then in replays too. Lang saw them wrapped when
        it happened, so it does here, and the markers written here hold what lang saw.
        """
        if failure is None or not is_over:
            return failure
        kind = failure.WhichOneof("failure_info")
        if kind not in ("timeout_failure_info", "canceled_failure_info"):
            return failure
        wrapped = Failure()
        if kind == "timeout_failure_info":
            local_activity_timed_out(wrapped, self._identity, failure)
        else:
            local_activity_cancelled(wrapped, self._identity, failure)
        return wrapped

    def _cancel(self, command: LangCommand | None) -> None:
        """A request that has not gone out yet is simply taken back."""
        is_unsent = self.state == S.REQUEST_SENT and self._local.withdraw_local(self.seq)
        self.on_command(E.CANCEL_UNSENT if is_unsent else self._cancel_event, command)

    def _tell(self, told: _Result) -> None:
        """Live: tells lang, and remembers it by a marker."""
        self._result = told
        told.activation_index = self._local.activation_index
        self._local.local_is_over(self.seq)
        self._give(told)
        self.host.queue_command(self, CommandType.COMMAND_TYPE_RECORD_MARKER, self._build)

    def _give(self, told: _Result) -> None:
        if told.complete_time is not None:
            self._local.advance_time(told.complete_time)
        job = self.host.new_job().resolve_activity
        job.seq = self.seq
        job.is_local = True
        resolution = job.result
        if told.backoff is not None:
            resolution.backoff.attempt = told.attempt + 1
            resolution.backoff.backoff_duration.FromNanoseconds(told.backoff)
            if told.original_schedule_time is not None:
                resolution.backoff.original_schedule_time.CopyFrom(told.original_schedule_time)
        elif told.kind is LocalOutcome.COMPLETED:
            resolution.completed.SetInParent()
            if told.payload is not None:
                resolution.completed.result.CopyFrom(told.payload)
        else:
            is_cancelled = told.kind is LocalOutcome.CANCELLED
            ended: Any = resolution.cancelled if is_cancelled else resolution.failed
            ended.SetInParent()
            if told.failure is not None:
                ended.failure.CopyFrom(told.failure)

    def _build(self) -> Command:
        told = self._result
        assert told is not None
        command = self.new_command(CommandType.COMMAND_TYPE_RECORD_MARKER)
        attributes = command.record_marker_command_attributes
        attributes.marker_name = LOCAL_ACTIVITY_MARKER
        marker = LocalMarker(
            seq=self.seq,
            attempt=told.attempt,
            activity_id=self._identity.activity_id,
            activity_type=self._identity.activity_type,
            complete_time=told.complete_time,
            backoff=told.backoff,
            original_schedule_time=told.original_schedule_time,
            activation_index=told.activation_index,
            outcome=told.kind,
            result=told.payload,
            failure=told.failure,
        )
        attributes.details["data"].payloads.add().CopyFrom(marker.data())
        if told.kind is LocalOutcome.COMPLETED:
            result = attributes.details["result"]
            result.SetInParent()
            if told.payload is not None:
                result.payloads.add().CopyFrom(told.payload)
        elif told.failure is not None:
            attributes.failure.CopyFrom(told.failure)
        if self.body.include_arguments_in_marker:
            attributes.details["input"].payloads.extend(self.body.arguments)
        return command


_WITHOUT_COMMAND: Final = frozenset(
    {
        int(S.WAITING_RESOLVE_FROM_MARKER_LOOK_AHEAD),
        int(S.RESOLVED_FROM_MARKER_LOOK_AHEAD_WAITING_MARKER_EVENT),
    }
)
