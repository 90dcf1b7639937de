"""The demo's proof must be able to fail: each kind of damage is seen by the check made for it."""

from collections import Counter
from pathlib import Path

import pytest

from stdlib_index.proof import Check, Kill, Start, checks, read_starts
from stdlib_index.source import FileFacts, Totals

PATHS = ["a.py", "b.py", "c.py"]
ONCE, KEPT, AGAIN, TOTALS = range(4)


def totals(*paths: str) -> Totals:
    sums = Totals()
    sums.add(FileFacts(path, lines=10, definitions=2, digest=path.encode().hex()) for path in paths)
    return sums


def judge(
    starts: str = "a b | b c",
    recorded: str = "a b c",
    recorded_before: str = "a",
    reported: Totals | None = None,
) -> list[Check]:
    """Check a run with one kill; `|` in `starts` is where it came."""
    before, after = (part.split() for part in starts.split("|"))
    kept = frozenset(f"{name}.py" for name in recorded_before.split())
    return checks(
        paths=PATHS,
        starts=[Start(1, f"{name}.py") for name in before + after],
        kills=[Kill(at=0, starts=len(before), recorded=kept, running=frozenset())],
        recorded=Counter(f"{name}.py" for name in recorded.split()),
        reported=reported or totals(*PATHS),
        scanned=totals(*PATHS),
    )


def failing(verdict: list[Check]) -> list[int]:
    return [number for number, check in enumerate(verdict) if not check.holds]


def test_an_interrupted_activity_may_run_again() -> None:
    assert failing(judge()) == []


def test_a_missing_file_is_seen() -> None:
    assert failing(judge(recorded="a b")) == [ONCE]


def test_a_second_result_of_a_file_is_seen() -> None:
    assert failing(judge(recorded="a b b c")) == [ONCE]


def test_a_file_that_nobody_asked_for_is_seen() -> None:
    assert failing(judge(recorded="a b c d")) == [ONCE]


def test_a_finished_activity_that_starts_again_is_seen() -> None:
    assert failing(judge(starts="a b | a b c")) == [KEPT, AGAIN]


def test_a_repetition_without_a_kill_is_seen() -> None:
    assert failing(judge(starts="a b | b c c")) == [AGAIN]
    assert failing(judge(starts="a b | b b c")) == [AGAIN]


@pytest.mark.parametrize("reported", [totals("a.py", "b.py"), totals("a.py", "b.py", "b.py")])
def test_other_totals_are_seen(reported: Totals) -> None:
    assert failing(judge(reported=reported)) == [TOTALS]


def test_the_order_of_files_does_not_change_the_totals() -> None:
    assert totals("a.py", "b.py", "c.py") == totals("c.py", "a.py", "b.py")


def test_no_trace_file_means_no_starts(tmp_path: Path) -> None:
    assert read_starts(tmp_path / "absent.log") == []
