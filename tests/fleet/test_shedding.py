"""The shedding curve: right at its corners, monotonic between, checked when made."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure.fleet import InvalidSetting, SheddingCurve

CURVE = SheddingCurve()


@pytest.mark.parametrize(
    ("cpu", "ratio"),
    [(0.0, 1.0), (0.5, 1.0), (0.7, 1.0), (0.8, 0.525), (0.9, 0.05), (1.0, 0.05), (9.0, 0.05)],
)
def test_corners_and_middle(cpu: float, ratio: float) -> None:
    assert CURVE.ratio(cpu) == pytest.approx(ratio)


@given(st.floats(0, 2), st.floats(0, 2))
def test_busier_never_takes_more(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert CURVE.ratio(low) >= CURVE.ratio(high)
    assert 0 <= CURVE.ratio(high) <= 1


def test_idle_keeps_everything_and_busy_sheds_most() -> None:
    chances = [number / 1000 for number in range(1000)]
    assert all(CURVE.keeps(0.3, chance) for chance in chances)
    assert sum(CURVE.keeps(0.95, chance) for chance in chances) == 50


def test_flat_curve_is_allowed() -> None:
    assert SheddingCurve(full=1, floor=1).ratio(0.99) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"full_until": 0.9},
        {"full_until": -0.1},
        {"full_until": math.nan},
        {"floor_from": 1.1},
        {"floor_from": math.nan},
        {"floor_from": 0.7},
        {"full": 1.1},
        {"full": math.nan},
        {"floor": -0.1},
        {"floor": 0.5, "full": 0.4},
        {"floor": math.nan},
    ],
)
def test_senseless_curves_are_refused_when_made(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting) as caught:
        SheddingCurve(**settings)
    assert caught.value.setting in {"full_until", "floor_from", "full", "floor"}
