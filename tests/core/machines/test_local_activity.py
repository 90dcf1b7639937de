"""Local activities: live, from markers, and cancelled in both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.command.v1 import RecordMarkerCommandAttributes
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import (
    ActivityCancellationType,
)
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import (
    START,
    HistoryBuilder,
    application_failure,
    cancelled_failure,
    payload,
    timeout_failure,
)

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.local_activities.requests import LocalOutcome, LocalResult
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.local_marker import LocalMarker, read_local_marker

TRY = ActivityCancellationType.TRY_CANCEL
WAIT = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
ABANDON = ActivityCancellationType.ABANDON
ALL = (TRY, WAIT, ABANDON)
CANCEL = lang("request_cancel_local_activity", seq=1)
SECOND = 1_000_000_000
WAS_SCHEDULED = Timestamp(seconds=7)


def new(host: FakeHost, kind: int = TRY, **fields: Any) -> LocalActivityMachine:
    return LocalActivityMachine(
        host,
        lang(
            "schedule_local_activity",
            seq=1,
            activity_id="id",
            activity_type="type",
            start_to_close_timeout=Duration(seconds=1),
            cancellation_type=kind,
            **fields,
        ),
    )


def sent(host: FakeHost, kind: int = TRY, **fields: Any) -> LocalActivityMachine:
    machine = new(host, kind, **fields)
    host.dispatch()
    host.local.clear()
    return machine


def result(outcome: LocalOutcome = LocalOutcome.COMPLETED, **fields: Any) -> LocalResult:
    return LocalResult(
        seq=1, outcome=outcome, attempt=1, original_schedule_time=WAS_SCHEDULED, **fields
    )


def marker_event(seq: int = 1, *results: object, **fields: Any) -> HistoryEvent:
    built = HistoryBuilder()
    built.local_activity_marker(
        seq, *results, **({"activity_id": "id", "activity_type": "type"} | fields)
    )
    return built.events[-1]


def marker(**fields: Any) -> LocalMarker:
    found = read_local_marker(marker_event(**fields))
    assert found is not None
    return found


def written(host: FakeHost) -> tuple[dict[str, Any], RecordMarkerCommandAttributes]:
    host.prepare()
    (command,) = host.commands()
    attributes = command.record_marker_command_attributes
    assert attributes.marker_name == "core_local_activity"
    return json.loads(attributes.details["data"].payloads[0].data), attributes


def test_one_local_activity() -> None:
    host = FakeHost()
    host.time_now = 100 * SECOND
    host.activation_index = 3
    machine = sent(host)
    machine.handle_result(result(payload=payload("done"), runtime=2.5))
    job = host.take_job().resolve_activity
    assert (job.seq, job.is_local) == (1, True)
    assert job.result.completed.result == payload("done")
    assert host.time_now == 102_500_000_000
    data, attributes = written(host)
    assert data == {
        "seq": 1,
        "attempt": 1,
        "activity_id": "id",
        "activity_type": "type",
        "complete_time": {"seconds": 102, "nanos": 500_000_000},
        "backoff": None,
        "original_schedule_time": {"seconds": 7, "nanos": 0},
        "activation_index": 3,
    }
    assert list(attributes.details["result"].payloads) == [payload("done")]
    assert not attributes.HasField("failure")
    machine.on_history(marker_event())
    assert machine.is_final


def test_no_result_is_a_result() -> None:
    host = FakeHost()
    sent(host).handle_result(result())
    assert host.take_job().resolve_activity.result.HasField("completed")
    _, attributes = written(host)
    assert "result" in attributes.details


def test_arguments_go_into_the_marker_when_asked_for() -> None:
    host = FakeHost()
    machine = sent(host, include_arguments_in_marker=True, arguments=[payload(1), payload(2)])
    machine.handle_result(result())
    _, attributes = written(host)
    assert list(attributes.details["input"].payloads) == [payload(1), payload(2)]


def test_failure() -> None:
    host = FakeHost()
    sent(host).handle_result(result(LocalOutcome.FAILED, failure=application_failure()))
    assert host.take_job().resolve_activity.result.failed.failure == application_failure()
    _, attributes = written(host)
    assert attributes.failure == application_failure()
    assert "result" not in attributes.details


def test_timeout_is_wrapped() -> None:
    host = FakeHost()
    sent(host).handle_result(result(LocalOutcome.TIMED_OUT, failure=timeout_failure(1)))
    failure = host.take_job().resolve_activity.result.failed.failure
    assert failure.message == "Local Activity timed out"
    assert failure.cause == timeout_failure(1)
    assert failure.activity_failure_info.activity_id == "id"
    assert written(host)[1].failure == failure


def test_cancelled_by_the_manager_is_wrapped() -> None:
    host = FakeHost()
    machine = sent(host)
    machine.handle_result(result(LocalOutcome.CANCELLED, failure=cancelled_failure()))
    failure = host.take_job().resolve_activity.result.cancelled.failure
    assert failure.message == "Local Activity cancelled"
    assert failure.cause.HasField("canceled_failure_info")
    written(host)
    machine.on_history(marker_event(failure=cancelled_failure()))


def test_long_backoff_uses_timer() -> None:
    host = FakeHost()
    sent(host).handle_result(
        result(LocalOutcome.FAILED, failure=application_failure(), backoff=90.0)
    )
    backoff = host.take_job().resolve_activity.result.backoff
    assert (backoff.attempt, backoff.backoff_duration.seconds) == (2, 90)
    assert backoff.original_schedule_time == WAS_SCHEDULED
    data, _ = written(host)
    assert data["backoff"] == {"seconds": 90, "nanos": 0}


def replayed(host: FakeHost, kind: int = TRY) -> LocalActivityMachine:
    assert host.replaying
    machine = new(host, kind)
    assert host.local == [("wait", 1)]
    assert machine.awaits_marker
    host.local.clear()
    return machine


def test_result_from_history() -> None:
    host = FakeHost(replaying=True)
    machine = replayed(host)
    machine.handle_known(marker(complete_time=START))
    assert host.time_now == int(START.timestamp()) * SECOND
    assert host.take_job().resolve_activity.result.HasField("completed")
    host.prepare()
    assert host.commands() == []
    machine.on_history(marker_event())
    assert machine.is_final
    assert not machine.awaits_marker


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (application_failure(), "failed"),
        (cancelled_failure(), "cancelled"),
        (timeout_failure(1), "failed"),
    ],
)
def test_failure_from_history(failure: Any, status: str) -> None:
    """Bare cancellations and time-outs are wrapped as they were when they happened."""
    host = FakeHost(replaying=True)
    replayed(host).handle_known(marker(failure=failure))
    found = host.take_job().resolve_activity.result
    assert found.WhichOneof("status") == status
    seen = getattr(found, status).failure
    is_bare = failure != application_failure()
    assert (seen.cause if is_bare else seen) == failure
    assert seen.HasField("activity_failure_info") == is_bare


def test_what_was_wrapped_in_history_stays_as_it_is() -> None:
    live = FakeHost()
    sent(live).handle_result(result(LocalOutcome.TIMED_OUT, failure=timeout_failure(1)))
    told = live.take_job().resolve_activity.result
    host = FakeHost(replaying=True)
    replayed(host).handle_known(marker(failure=written(live)[1].failure))
    assert host.take_job().resolve_activity.result == told


def test_backoff_from_history() -> None:
    host = FakeHost(replaying=True)
    machine = replayed(host)
    machine.handle_known(marker(failure=application_failure(), backoff_seconds=90, attempt=3))
    backoff = host.take_job().resolve_activity.result.backoff
    assert (backoff.attempt, backoff.backoff_duration.seconds) == (4, 90)


def test_local_act_two_wfts_before_marker() -> None:
    """History ends without a marker: it runs now, and leaves one."""
    host = FakeHost(replaying=True)
    machine = replayed(host)
    host.replaying = False
    machine.live_task_started()
    assert host.local == [("request", 1)]
    host.dispatch()
    assert not machine.awaits_marker
    machine.handle_result(result())
    written(host)


@pytest.mark.parametrize("kind", ALL)
def test_a_cancel_in_replay_waits_for_the_result_in_history(kind: int) -> None:
    host = FakeHost(replaying=True)
    machine = replayed(host, kind)
    machine.cancel(CANCEL)
    assert not host.jobs
    assert not host.local
    machine.handle_known(marker(failure=cancelled_failure()))
    machine.cancel(CANCEL)
    assert host.variants() == ["resolve_activity"]
    assert not host.local


@pytest.mark.parametrize("kind", ALL)
def test_a_cancel_in_replay_without_a_result_is_carried_out_when_live(kind: int) -> None:
    host = FakeHost(replaying=True)
    machine = replayed(host, kind)
    machine.cancel(CANCEL)
    host.replaying = False
    machine.live_task_started()
    assert host.local == [("request", 1), ("withdraw", 1), ("over", 1)]
    assert host.take_job().resolve_activity.result.HasField("cancelled")
    written(host)


@pytest.mark.parametrize("kind", ALL)
def test_cancel_immediate(kind: int) -> None:
    host = FakeHost()
    machine = new(host, kind)
    machine.cancel(CANCEL)
    assert host.local == [("request", 1), ("withdraw", 1), ("over", 1)]
    failure = host.take_job().resolve_activity.result.cancelled.failure
    assert failure.message == "Local Activity cancelled"
    data, _ = written(host)
    assert data["complete_time"] is None


@pytest.mark.parametrize("kind", ALL)
def test_cancel_after_act_starts(kind: int) -> None:
    host = FakeHost()
    machine = sent(host, kind)
    machine.cancel(CANCEL)
    expected: dict[int, list[tuple[str, int]]] = {
        TRY: [("cancel", 1), ("over", 1)],
        WAIT: [("cancel", 1)],
        ABANDON: [("over", 1)],
    }
    assert host.local == expected[kind]
    assert len(host.jobs) == (0 if kind == WAIT else 1)


@pytest.mark.parametrize("kind", ALL)
def test_cancelling_what_is_over_asks_the_manager_all_the_same(kind: int) -> None:
    host = FakeHost()
    machine = sent(host, kind)
    machine.handle_result(result())
    for _ in range(3):
        host.local.clear()
        machine.cancel(CANCEL)
        assert host.local == ([] if kind == ABANDON else [("cancel", 1)])
        if host.new:
            host.prepare()
        elif not machine.is_final:
            machine.on_history(marker_event())
    assert len(host.jobs) == 1


@pytest.mark.parametrize("kind", ALL)
def test_cancelling_what_was_over_in_history_asks_nobody(kind: int) -> None:
    host = FakeHost(replaying=True)
    machine = replayed(host, kind)
    machine.handle_known(marker())
    machine.cancel(CANCEL)
    machine.on_history(marker_event())
    machine.cancel(CANCEL)
    assert not host.local


def test_another_seq_is_nondeterminism() -> None:
    host = FakeHost(checks=False)
    machine = sent(host)
    machine.handle_result(result())
    host.prepare()
    with pytest.raises(NondeterminismError, match="seq 2"):
        machine.on_history(marker_event(2))


@pytest.mark.parametrize("changed", [{"activity_id": "other"}, {"activity_type": "other"}])
def test_id_and_type_are_checked_under_their_flag(changed: dict[str, Any]) -> None:
    for checks in (True, False):
        host = FakeHost(checks=checks)
        machine = sent(host)
        machine.handle_result(result())
        host.prepare()
        if checks:
            with pytest.raises(NondeterminismError, match="'other'"):
                machine.on_history(marker_event(**changed))
        else:
            machine.on_history(marker_event(**changed))


def test_another_outcome_in_history_is_nondeterminism() -> None:
    host = FakeHost()
    machine = sent(host)
    machine.handle_result(result())
    host.prepare()
    with pytest.raises(NondeterminismError, match=r"ended as failed, but here .* completed"):
        machine.on_history(marker_event(failure=application_failure()))


def test_cancelled_here_accepts_any_marker() -> None:
    host = FakeHost()
    machine = sent(host)
    machine.cancel(CANCEL)
    host.prepare()
    machine.on_history(marker_event(1, "a result"))
    assert machine.is_final


def test_another_marker_is_nondeterminism() -> None:
    host = FakeHost()
    machine = sent(host)
    machine.handle_result(result())
    host.prepare()
    with pytest.raises(NondeterminismError, match="of another kind"):
        machine.on_history(event("marker_recorded", marker_name="other"))


def test_a_timeout_is_needed() -> None:
    with pytest.raises(FatalError, match="timeout"):
        LocalActivityMachine(FakeHost(), lang("schedule_local_activity", seq=1))


def test_an_unreadable_marker_is_fatal() -> None:
    built = HistoryBuilder()
    built.marker("core_local_activity", {"data": payload(["not", "a", "dict"])})
    with pytest.raises(FatalError, match="cannot be read"):
        read_local_marker(built.events[-1])
