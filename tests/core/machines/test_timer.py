"""Timers; the names of the catalogue's cases are in the names of the tests."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import UserMetadata
from tests.core.support.fake_host import FakeHost, event, lang

from perdure.core.commands import Annotations
from perdure.core.errors import IllegalTransition, NondeterminismError
from perdure.core.machines.timer import TimerMachine


def annotated(summary: str) -> Annotations:
    return Annotations(UserMetadata(summary=Payload(data=summary.encode())), ())


CANCEL = lang("cancel_timer", seq=1)


def timer(host: FakeHost) -> TimerMachine:
    machine = TimerMachine(
        host, lang("start_timer", seq=1, start_to_fire_timeout=Duration(seconds=5))
    )
    host.prepare()
    return machine


def recorded(host: FakeHost) -> TimerMachine:
    machine = timer(host)
    machine.on_history(event("timer_started", timer_id="1"))
    host.prepared.clear()
    return machine


def test_single_timer() -> None:
    host = FakeHost()
    machine = timer(host)
    (command,) = host.commands()
    assert command.start_timer_command_attributes.timer_id == "1"
    assert command.start_timer_command_attributes.start_to_fire_timeout.seconds == 5
    machine.on_history(event("timer_started", timer_id="1"))
    assert not host.jobs
    machine.on_history(event("timer_fired", timer_id="1", started_event_id=1))
    assert host.take_job().fire_timer.seq == 1
    assert machine.is_final
    assert host.commands() == []
    machine.cancel(CANCEL)
    assert not host.new


def test_timer_cancel() -> None:
    host = FakeHost()
    machine = recorded(host)
    machine.cancel(CANCEL)
    machine.cancel(CANCEL)
    host.prepare()
    machine.cancel(CANCEL)
    (command,) = host.commands()
    assert command.cancel_timer_command_attributes.timer_id == "1"
    machine.on_history(event("timer_canceled", timer_id="1", started_event_id=1))
    machine.cancel(CANCEL)
    assert machine.is_final
    assert not host.jobs


def test_cancel_timer_before_sent() -> None:
    host = FakeHost()
    machine = timer(host)
    machine.cancel(CANCEL)
    assert machine.is_withdrawn
    assert host.commands() == []
    assert not host.jobs


@pytest.mark.parametrize("kind", ["timer_started", "timer_fired"])
def test_another_timer_is_nondeterminism(kind: str) -> None:
    host = FakeHost()
    machine = timer(host) if kind == "timer_started" else recorded(host)
    with pytest.raises(NondeterminismError, match=r"has the timer id '2', but .* now has '1'"):
        machine.on_history(event(kind, timer_id="2"))


def test_an_event_of_another_kind_is_nondeterminism() -> None:
    with pytest.raises(NondeterminismError, match=r"\[TMPRL1100\].*ACTIVITY_TASK_SCHEDULED.*Timer"):
        timer(FakeHost()).on_history(event("activity_task_scheduled"))


def test_an_event_at_the_wrong_time_is_fatal() -> None:
    with pytest.raises(IllegalTransition) as raised:
        timer(FakeHost()).on_history(event("timer_fired", timer_id="1"))
    assert (raised.value.state, raised.value.event) == ("START_COMMAND_CREATED", "TIMER_FIRED")


def test_a_cancel_inherits_annotations() -> None:
    host = FakeHost()
    start = lang("start_timer", seq=1)
    start.annotations = annotated("why")
    machine = TimerMachine(host, start)
    host.prepare()
    machine.on_history(event("timer_started", timer_id="1"))
    host.prepared.clear()
    machine.cancel(CANCEL)
    host.prepare()
    (command,) = host.commands()
    assert command.user_metadata.summary.data == b"why"


def test_a_cancel_overrides_annotations() -> None:
    host = FakeHost()
    start = lang("start_timer", seq=1)
    start.annotations = annotated("why")
    machine = TimerMachine(host, start)
    host.prepare()
    machine.on_history(event("timer_started", timer_id="1"))
    host.prepared.clear()
    cancel = lang("cancel_timer", seq=1)
    cancel.annotations = annotated("other")
    machine.cancel(cancel)
    host.prepare()
    (command,) = host.commands()
    assert command.user_metadata.summary.data == b"other"
