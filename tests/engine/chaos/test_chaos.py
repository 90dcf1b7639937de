"""Seeds of chaos. The long run is `python -m tests.soak.chaos --seeds 1000`."""

import pytest
from tests.engine.chaos.chaos import run_seed


@pytest.mark.parametrize("seed", range(20))
def test_everything_ends_as_it_must(seed: int) -> None:
    assert run_seed(seed) == []
