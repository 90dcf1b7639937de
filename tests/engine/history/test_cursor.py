"""Which event belongs to which step: the rules of the cursor, one by one."""

import pytest

from perdure.engine.errors import HistoryDiverged, InvalidVersion, LatentHistoryFound
from perdure.engine.history.cursor import (
    CancelledHere,
    Cursor,
    Insertion,
    Match,
    New,
    Replay,
    VersionAnswer,
)
from perdure.engine.history.events import (
    ActivityEvent,
    BranchEvent,
    CancelEvent,
    Event,
    EventKind,
    JoinMark,
    MessageSendEvent,
    RemovedEvent,
    SignalsEvent,
    SleepEvent,
    SleepState,
    VersionCheckEvent,
)
from perdure.engine.history.location import Coordinate

ROOT = ((7,),)


def activity(name: str, version: int = 1) -> ActivityEvent:
    return ActivityEvent(version, 0, 0, name)


def cursor_over(*events: tuple[Coordinate, Event]) -> Cursor:
    return Cursor(list(events), ROOT)


def activities(*places: Coordinate) -> Cursor:
    return cursor_over(*((place, activity("a")) for place in places))


def take(cursor: Cursor, name: str = "a", version: int = 1) -> Match:
    match = cursor.compare(EventKind.ACTIVITY, version, name)
    cursor.advance(match)
    return match


# -- numbering


def test_an_empty_history_counts_from_one() -> None:
    cursor = activities()
    assert cursor.peek() is None
    assert [take(cursor) for _ in range(3)] == [New((1,)), New((2,)), New((3,))]
    assert cursor.current == (4,)


def test_new_steps_follow_the_last_event() -> None:
    cursor = activities((1,), (2,))
    assert [type(take(cursor)) for _ in range(2)] == [Replay, Replay]
    assert [take(cursor) for _ in range(2)] == [New((3,)), New((4,))]


def test_new_steps_follow_an_inserted_last_event() -> None:
    cursor = activities((1,), (1, 1))
    assert [take(cursor).coordinate for _ in range(3)] == [(1,), (1, 1), (2,)]


def test_comparing_does_not_move() -> None:
    cursor = activities((1,))
    assert cursor.compare(EventKind.ACTIVITY, 1, "a") == cursor.compare(EventKind.ACTIVITY, 1, "a")
    assert cursor.current == (1,)
    assert cursor.peek() == activity("a")


def test_gaps_are_filled_before_the_next_event() -> None:
    cursor = activities((1,), (3,), (6,))
    matches = [take(cursor) for _ in range(7)]
    assert [match.coordinate for match in matches] == [(number,) for number in range(1, 8)]
    assert [type(match) for match in matches] == [
        Replay,
        Insertion,
        Replay,
        Insertion,
        Insertion,
        Replay,
        New,
    ]


def test_gaps_between_inserted_steps_are_filled() -> None:
    cursor = cursor_over(((1,), activity("a")), ((1, 2), activity("x", 2)), ((2,), activity("a")))
    take(cursor)
    assert take(cursor, "w", 2) == Insertion((1, 1), gap=True)
    assert take(cursor, "x", 2) == Replay((1, 2), activity("x", 2))
    assert take(cursor) == Replay((2,), activity("a"))


# -- gaps inside joins


def half_done(version: int = 1, newest: int = 1) -> Cursor:
    """A step, then a join of two of which only the second one was recorded."""
    second = ActivityEvent(version, 0, 0, "a", joined=JoinMark((2,), newest))
    return cursor_over(((1,), activity("a")), ((3,), second))


def join_member(cursor: Cursor, version: int = 1) -> Match:
    match = cursor.compare(EventKind.ACTIVITY, version, "a", in_join=True)
    cursor.advance(match)
    return match


def test_a_member_takes_the_gap_of_its_join() -> None:
    cursor = half_done()
    take(cursor)
    assert join_member(cursor) == Insertion((2,), gap=True)
    assert isinstance(join_member(cursor), Replay)


def test_a_later_step_goes_before_the_gap_of_a_join() -> None:
    cursor = half_done()
    take(cursor)
    assert take(cursor, version=2) == Insertion((1, 1))
    assert join_member(cursor) == Insertion((2,), gap=True)
    assert isinstance(join_member(cursor), Replay)


def test_a_later_member_goes_before_the_gap_of_an_older_one() -> None:
    cursor = half_done()
    take(cursor)
    assert join_member(cursor, 2) == Insertion((1, 1))
    assert join_member(cursor) == Insertion((2,), gap=True)
    assert isinstance(join_member(cursor), Replay)


def test_a_gap_may_have_been_of_the_newest_member() -> None:
    cursor = half_done(newest=2)
    take(cursor)
    assert join_member(cursor, 2) == Insertion((2,), gap=True)


def test_another_step_in_the_gap_of_a_join_is_a_divergence() -> None:
    cursor = half_done()
    take(cursor)
    with pytest.raises(HistoryDiverged, match=r"\{7, 2\}.*unfinished member of the join"):
        take(cursor)


def test_a_gap_before_the_join_is_not_of_the_join() -> None:
    second = ActivityEvent(1, 0, 0, "a", joined=JoinMark((2,), 1))
    cursor = cursor_over(((3,), second))
    assert take(cursor) == Insertion((1,), gap=True)
    assert join_member(cursor) == Insertion((2,), gap=True)


def test_a_removed_step_is_no_member_of_a_join() -> None:
    cursor = half_done()
    take(cursor)
    assert cursor.compare_removed(EventKind.ACTIVITY, "old") is None


# -- the table: version x kind x name


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kind", [EventKind.ACTIVITY, EventKind.SLEEP, EventKind.MESSAGE_SEND])
@pytest.mark.parametrize("name", ["a", "b", None])
def test_compare(version: int, kind: EventKind, name: str | None) -> None:
    event = activity("a", 2)
    cursor = cursor_over(((1,), event))
    if version == 3:
        assert cursor.compare(kind, version, name) == Insertion((0, 1))
        assert cursor.current == (1,)
    elif version == 2 and kind is EventKind.ACTIVITY and name != "b":
        assert cursor.compare(kind, version, name) == Replay((1,), event)
    else:
        with pytest.raises(HistoryDiverged) as caught:
            cursor.compare(kind, version, name)
        assert caught.value.location == (*ROOT, (1,))
        assert caught.value.found == 'activity "a" (version 2)'
        assert f"(version {version})" in caught.value.expected


def test_the_text_of_a_divergence_says_what_where_and_how_out() -> None:
    with pytest.raises(HistoryDiverged) as caught:
        activities((1,)).compare(EventKind.MESSAGE_SEND, 1, "news")
    assert str(caught.value).startswith(
        'history diverged at {7, 1}: the code runs message send "news" (version 1), the history'
        ' holds activity "a" (version 1).'
    )
    assert "ctx.v(n)" in caught.value.message


def test_inserted_steps_line_up_before_the_event() -> None:
    cursor = activities((1,), (2,))
    assert take(cursor, "x", 2) == Insertion((0, 1))
    assert take(cursor, "y", 2) == Insertion((0, 2))
    assert take(cursor).coordinate == (1,)
    assert take(cursor, "z", 2) == Insertion((1, 1))
    assert take(cursor).coordinate == (2,)
    assert take(cursor, "z", 2) == New((3,))


def test_the_place_after_an_inserted_step_is_compared_too() -> None:
    cursor = cursor_over(((1,), activity("a")))
    cursor.advance(cursor.compare(EventKind.SLEEP, 2))
    assert cursor.compare(EventKind.SIGNALS, 2) == Insertion((0, 2))

    sleep = SleepEvent(2, 0, 0, 9, SleepState.INTERRUPTED)
    signals = SignalsEvent(2, 0, 0, [])
    cursor = cursor_over(((0, 1), sleep), ((0, 2), signals), ((1,), activity("a")))
    cursor.advance(cursor.compare(EventKind.SLEEP, 2))
    assert cursor.compare(EventKind.SIGNALS, 2) == Replay((0, 2), signals)

    cursor = cursor_over(((1,), SleepEvent(1, 0, 0, 9)), ((2,), activity("a")))
    cursor.advance(cursor.compare(EventKind.SLEEP, 1))
    with pytest.raises(HistoryDiverged, match="runs signals"):
        cursor.compare(EventKind.SIGNALS, 1)


# -- places given out in order, before anything runs


def test_members_of_a_join_get_their_places_in_order() -> None:
    cursor = activities()
    members = [take(cursor, name) for name in "abc"]
    assert members == [New((1,)), New((2,)), New((3,))]


def test_a_member_that_was_not_recorded_keeps_its_place() -> None:
    cursor = cursor_over(((2,), activity("b")), ((4,), activity("d")))
    assert [take(cursor, name) for name in "abcde"] == [
        Insertion((1,), gap=True),
        Replay((2,), activity("b")),
        Insertion((3,), gap=True),
        Replay((4,), activity("d")),
        New((5,)),
    ]


def test_an_unrecorded_member_does_not_take_the_result_of_its_twin() -> None:
    cursor = activities((2,))
    assert take(cursor) == Insertion((1,), gap=True)
    assert take(cursor) == Replay((2,), activity("a"))


# -- cancels


@pytest.mark.parametrize("version", [1, 2])
def test_a_cancel_in_the_place_of_a_step(version: int) -> None:
    cancel = CancelEvent(1, 0, 0, interrupts=False, reason="enough")
    cursor = cursor_over(((1,), cancel), ((2,), activity("clean_up")))
    assert take(cursor, "a", version) == CancelledHere((1,), cancel)
    assert take(cursor, "clean_up") == Replay((2,), activity("clean_up"))


def test_a_cancel_in_the_place_of_an_inserted_step() -> None:
    cancel = CancelEvent(2, 0, 0, interrupts=False)
    cursor = cursor_over(((1,), activity("a")), ((1, 1), cancel), ((2,), activity("b")))
    take(cursor)
    assert take(cursor, "x", 2) == CancelledHere((1, 1), cancel)
    assert take(cursor, "b") == Replay((2,), activity("b"))


def test_a_cancel_in_the_place_of_a_version_check_or_of_a_removed_step() -> None:
    cancel = CancelEvent(1, 0, 0, interrupts=False)
    here = CancelledHere((1,), cancel)
    assert cursor_over(((1,), cancel)).check_version(3, 2).match == here
    assert cursor_over(((1,), cancel)).compare_removed(EventKind.ACTIVITY, "old") == here


def test_a_version_check_does_not_take_the_cancel_behind_a_gap() -> None:
    cursor = cursor_over(((2,), CancelEvent(1, 0, 0, interrupts=False)))
    assert cursor.check_version(3, 1).match == Insertion((0, 1))


# -- removed steps


def test_a_removed_step_is_passed_over() -> None:
    cursor = cursor_over(((1,), activity("old")), ((2,), activity("a")))
    match = cursor.compare_removed(EventKind.ACTIVITY, "old")
    assert match == Replay((1,), activity("old"))
    cursor.advance(match)
    assert take(cursor) == Replay((2,), activity("a"))


def test_a_removed_step_leaves_a_mark_in_new_histories() -> None:
    assert activities().compare_removed(EventKind.ACTIVITY, "old") == New((1,))
    mark = RemovedEvent(1, 0, 0, EventKind.ACTIVITY, "old")
    cursor = cursor_over(((1,), mark))
    assert cursor.compare_removed(EventKind.ACTIVITY, "old") == Replay((1,), mark)
    assert cursor.compare_removed(EventKind.ACTIVITY, "other") is None
    assert cursor.compare_removed(EventKind.SLEEP) is None


def test_a_removed_step_that_was_not_recorded_gets_its_mark() -> None:
    assert activities((2,)).compare_removed(EventKind.ACTIVITY, "old") == Insertion((1,), gap=True)


def test_a_history_without_the_removed_step_is_left_alone() -> None:
    cursor = activities((1,))
    assert cursor.compare_removed(EventKind.ACTIVITY, "old") is None
    assert cursor.compare_removed(EventKind.SLEEP) is None
    assert take(cursor) == Replay((1,), activity("a"))


def test_a_removed_step_where_the_code_still_has_it() -> None:
    cursor = cursor_over(((1,), RemovedEvent(1, 0, 0, EventKind.MESSAGE_SEND, "news")))
    with pytest.raises(HistoryDiverged, match='removed message send "news"'):
        cursor.compare(EventKind.MESSAGE_SEND, 1, "news")
    cursor = cursor_over(((1,), MessageSendEvent(1, 0, 0, "news", "")))
    assert cursor.compare_removed(EventKind.MESSAGE_SEND, "news") is not None


# -- version checks


def test_a_new_history_gets_the_version_asked_for() -> None:
    assert activities().check_version(3, 1) == VersionAnswer(New((1,)), version=1, inner=3)


def test_an_old_history_gets_the_version_of_its_next_event() -> None:
    answer = activities((1,), (2,)).check_version(3, 1)
    assert answer == VersionAnswer(Insertion((0, 1)), version=2, inner=1)


def test_a_recorded_answer_stays() -> None:
    check = VersionCheckEvent(2, 0, 0, 1)
    cursor = cursor_over(((0, 1), check), ((1,), activity("a")))
    answer = cursor.check_version(9, 1)
    assert answer == VersionAnswer(Replay((0, 1), check), version=2, inner=1)
    cursor.advance(answer.match)
    assert take(cursor) == Replay((1,), activity("a"))


@pytest.mark.parametrize("version", [1, 2, 5])
def test_the_answer_is_the_same_on_replay_in_any_branch(version: int) -> None:
    first = activities().check_version(7, version)
    check = VersionCheckEvent(first.version, 0, 0, first.inner)
    again = cursor_over((first.match.coordinate, check)).check_version(7, version)
    assert first.inner == again.inner == 7
    assert isinstance(again.match, Replay)

    old = ((1,), activity("a", version))
    first = cursor_over(old).check_version(7, version)
    check = VersionCheckEvent(first.version, 0, 0, first.inner)
    again = cursor_over((first.match.coordinate, check), old).check_version(8, version)
    assert first.inner == again.inner == version


def test_a_version_check_lies_before_a_gap() -> None:
    cursor = cursor_over(((2,), activity("b")))
    answer = cursor.check_version(3, 1)
    assert answer.match == Insertion((0, 1))
    cursor.advance(answer.match)
    assert take(cursor) == Insertion((1,), gap=True)
    assert take(cursor, "b") == Replay((2,), activity("b"))


@pytest.mark.parametrize("requested", [0, -1])
def test_a_version_is_positive(requested: int) -> None:
    with pytest.raises(InvalidVersion):
        activities().check_version(requested, 1)


# -- the end


def test_unused_events_are_told() -> None:
    cursor = cursor_over(((1,), activity("a")), ((2,), activity("b")), ((3,), BranchEvent(1, 0, 0)))
    take(cursor)
    error = LatentHistoryFound(ROOT, cursor.remaining())
    assert error.events == (
        ((*ROOT, (2,)), 'activity "b" (version 1)'),
        ((*ROOT, (3,)), "branch (version 1)"),
    )
    assert "{7, 2} activity" in str(error)


def test_a_used_up_history_has_nothing_remaining() -> None:
    cursor = activities((1,))
    take(cursor)
    take(cursor)
    assert cursor.remaining() == []
