"""The timer wheel: times and names, nothing else."""

from __future__ import annotations

from hypothesis import given, strategies as st

from perdure.engine.timers import TimerWheel


def test_names_come_when_their_time_comes() -> None:
    wheel = TimerWheel()
    wheel.add(30, "b")
    wheel.add(10, "a")
    assert wheel.next() == 10
    assert wheel.take_due(9) == set()
    assert wheel.take_due(10) == {"a"}
    assert wheel.next() == 30
    assert wheel.take_due(1_000) == {"b"}
    assert wheel.next() is None


def test_the_same_entry_is_kept_once() -> None:
    wheel = TimerWheel()
    for _ in range(1_000):
        wheel.add(10, "a")
    assert len(wheel) == 1
    wheel.take_due(10)
    wheel.add(10, "a")
    assert len(wheel) == 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abc"))),
    st.lists(st.integers(0, 60)).map(sorted),
)
def test_every_entry_comes_at_the_first_look_at_or_after_its_time(
    entries: list[tuple[int, str]], looks: list[int]
) -> None:
    wheel = TimerWheel()
    for at, name in entries:
        wheel.add(at, name)
    earlier = -1
    for now in looks:
        assert wheel.take_due(now) == {name for at, name in entries if earlier < at <= now}
        earlier = now
