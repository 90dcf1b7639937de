"""The throttle of heartbeats: rows of the heartbeat manager, without a server."""

import itertools

import pytest
from tests.core.support.history_builder import payloads

from perdure.core.activities.heartbeat_throttle import (
    _TABLE,
    HeartbeatThrottle,
    _Event,
    _State,
    heartbeat_interval,
)


def test_process_heartbeats_and_shutdown() -> None:
    throttle = HeartbeatThrottle()
    assert throttle.record(payloads(1))
    assert not throttle.record(payloads(2))
    assert not throttle.record(payloads(3))
    assert throttle.has_unsent
    assert throttle.elapsed()
    assert throttle.latest == payloads(3)
    assert not throttle.has_unsent


def test_send_heartbeats_less_frequently_than_throttle_interval() -> None:
    throttle = HeartbeatThrottle()
    for number in range(3):
        assert throttle.record(payloads(number))
        assert not throttle.elapsed()
        assert not throttle.has_unsent


def test_report_heartbeat_after_timeout() -> None:
    throttle = HeartbeatThrottle()
    assert throttle.record(payloads(1))
    assert not throttle.elapsed()
    assert throttle.record(payloads(2))


@pytest.mark.parametrize(
    ("timeout", "expected"), [(0, 30), (10, 8), (50, 40), (75, 60), (1000, 60)]
)
def test_the_interval(timeout: float, expected: float) -> None:
    assert heartbeat_interval(timeout, default=30, maximum=60) == pytest.approx(expected)


def test_the_maximum_holds_for_the_default_too() -> None:
    assert heartbeat_interval(0, default=30, maximum=5) == 5


def test_only_a_resting_throttle_has_no_interval_to_elapse() -> None:
    every = set(itertools.product(_State, _Event))
    assert every - set(_TABLE) == {(_State.RESTING, _Event.ELAPSED)}
