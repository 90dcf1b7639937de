"""Deadlines without a clock."""

from hypothesis import given, strategies as st

from perdure.core.deadlines import Deadlines


def test_due_keys_come_in_order_of_their_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 3)
    deadlines.set("early", 1)
    deadlines.set("next", 2)
    assert deadlines.next() == 1
    assert list(deadlines.due(2)) == ["early", "next"]
    assert deadlines.next() == 3
    assert "early" not in deadlines
    assert "late" in deadlines


def test_setting_again_replaces_and_clearing_forgets() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("moved", 1)
    deadlines.set("moved", 5)
    deadlines.set("cleared", 2)
    deadlines.clear("cleared")
    deadlines.clear("unknown")
    assert list(deadlines.due(4)) == []
    assert deadlines.next() == 5


def test_what_becomes_due_while_others_are_handled_counts_too() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("first", 1)
    handled = []
    for key in deadlines.due(2):
        handled.append(key)
        if key == "first":
            deadlines.set("second", 2)
    assert handled == ["first", "second"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=500))
def test_only_the_last_setting_of_a_key_counts(settings: list[tuple[int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key, when in settings:
        deadlines.set(key, when)
    expected = dict(settings)
    assert sorted(deadlines.due(1000)) == sorted(expected)
    assert deadlines.next() is None
