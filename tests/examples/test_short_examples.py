"""The short examples: what they promise, and that they run as programs."""

import subprocess
import sys
from pathlib import Path

import pytest

import approval
import saga
import subscription

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_an_expense_is_answered_or_expires(capsys: pytest.CaptureFixture[str]) -> None:
    lunch, yacht = await approval.main("memory:")

    assert lunch == "40 euros for Ada: approved by Grace"
    assert yacht == "4000000 euros for Bob: nobody answered in time"
    mails = capsys.readouterr().out.splitlines()
    assert len(mails) == 4
    assert mails.count(f"  mail: {lunch}") == mails.count(f"  mail: {yacht}") == 1


async def test_whatever_stops_a_trip_gives_everything_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await saga.main("memory:") == [
        "Oslo: booked for 900 euros",
        "Mars: nothing is booked (ActivityFailed)",
        "Rome: cancelled (changed my mind)",
        "Nice: nothing is booked (NotPaid)",
    ]

    done = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in done if "Oslo" in line] == [
        "reserved flight to Oslo",
        "reserved hotel in Oslo",
        "reserved car in Oslo",
    ]
    assert [line for line in done if "Mars" in line] == ["gave back flight to Mars"]
    for city in ("Rome", "Nice"):
        assert [line for line in done if city in line] == [
            f"reserved flight to {city}",
            f"reserved hotel in {city}",
            f"reserved car in {city}",
            f"gave back car in {city}",
            f"gave back hotel in {city}",
            f"gave back flight to {city}",
        ]


async def test_a_subscription_goes_on_with_new_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = await subscription.main(f"rocksdb:{tmp_path}")

    first, second = capsys.readouterr().out.split("second release")
    charged = [line for line in (first + second).splitlines() if "charged" in line]
    assert charged == [f"  month {n}: charged" for n in range(1, 9)]
    assert account.months == 8
    assert "charged" in first
    assert "receipt" not in first
    receipts = [line for line in second.splitlines() if "receipt" in line]
    assert receipts
    assert receipts == [f"  month {n}: receipt sent" for n in range(9 - len(receipts), 9)]
    assert account.receipts == len(receipts)


@pytest.mark.parametrize(
    ("script", "last_line"),
    [
        ("approval.py", "mail: 4000000 euros for Bob: nobody answered in time"),
        ("saga.py", "Nice: nothing is booked (NotPaid)"),
        ("subscription.py", "month 8: receipt sent"),
    ],
)
def test_an_example_is_a_program(script: str, last_line: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / script), f"rocksdb:{tmp_path / 'store'}"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert finished.stderr == ""
    assert finished.returncode == 0
    assert finished.stdout.splitlines()[-1].strip() == last_line
