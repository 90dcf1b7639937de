"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from perdure.core.nexus.go_duration import parse_go_duration

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("0s", 0),
        ("9s", 9 * SECOND),
        ("9.999765s", 9_999_765_000),
        ("500ms", SECOND // 2),
        ("1m30s", 90 * SECOND),
        ("1h2m3.5s", 3_723_500_000_000),
        ("1.5m", 90 * SECOND),
        (".5s", SECOND // 2),
        ("5.s", 5 * SECOND),
        ("100us", 100_000),
        ("1µs", 1000),
        ("1μs", 1000),
        ("1000000ns", 1_000_000),
        ("+5s", 5 * SECOND),
        ("-3s", -3 * SECOND),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_what_go_reads(text: str, nanos: int) -> None:
    assert parse_go_duration(text) == nanos


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "+", "5", "abc", "10 s", "1 m", "1e3s", "2H", "10S", "3d", "s", ".s", "1s2"),
        *("--1s", "99999999999h", "٣s"),
    ],
)
def test_what_go_refuses(text: str) -> None:
    assert parse_go_duration(text) is None
