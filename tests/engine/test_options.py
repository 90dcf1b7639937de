"""What can be set about an engine is checked where it is set."""

from typing import Any

import pytest

from perdure import EngineOptions
from perdure.engine.errors import InvalidOption

NAN = float("nan")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_running", 0),
        ("pull_batch", -1),
        ("threads", 0),
        ("processes", 0),
        ("poll_interval", 0),
        ("metrics_interval", NAN),
        ("prune_interval", 0),
        ("lost_after", 20),
        ("linger", -0.1),
        ("shutdown", NAN),
        ("prune_after", -1),
    ],
)
def test_a_senseless_option_is_named(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        EngineOptions(**{option: value})
    assert caught.value.option == option


def test_what_may_be_absent_or_zero() -> None:
    assert EngineOptions(linger=0, shutdown=0, prune_after=0, processes=None).prune_after == 0
    assert EngineOptions(prune_after=None).prune_after is None
