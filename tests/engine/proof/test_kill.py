"""A process that runs workflows on RocksDB is killed at any moment and loses nothing."""

import pytest
from tests.soak.run import report_of


def test_six_kills_lose_nothing() -> None:
    assert "6 kills" in report_of("engine_crash", "--kills", "6")


@pytest.mark.soak
def test_a_hundred_kills_lose_nothing() -> None:
    assert "all ended right" in report_of("engine_crash", "--kills", "100")
