"""Whose turn it is to poll for workflow tasks.

Catalogue: both_normal_and_sticky_pollers_poll_concurrently.
"""

from __future__ import annotations

import pytest

from perdure.temporal.worker.polling.balance import PollBalance


@pytest.mark.parametrize(
    ("normal", "sticky", "backlog", "may_normal", "may_sticky"),
    [
        (0, 0, 0, True, True),
        (1, 0, 0, False, True),
        (0, 1, 0, True, False),
        (1, 1, 0, True, True),
        (3, 1, 0, True, True),
        (1, 1, 2, True, True),
        (1, 1, 3, False, True),
        (1, 3, 4, True, True),
        (1, 3, 5, False, True),
        (0, 3, 9, True, False),
        (0, 0, 9, True, True),
    ],
)
def test_turns(normal: int, sticky: int, backlog: int, may_normal: bool, may_sticky: bool) -> None:
    balance = PollBalance()
    for count, kind in ((normal, False), (sticky, True)):
        for _ in range(count):
            balance.began(sticky=kind)
    balance.heard(backlog)
    assert balance.may_poll(sticky=False) == may_normal
    assert balance.may_poll(sticky=True) == may_sticky


def test_the_last_word_about_the_backlog_counts() -> None:
    balance = PollBalance()
    balance.began(sticky=True)
    balance.began(sticky=False)
    balance.heard(9)
    balance.heard(0)
    assert balance.may_poll(sticky=False)
    balance.ended(sticky=False)
    balance.ended(sticky=True)
    assert balance.may_poll(sticky=True)
