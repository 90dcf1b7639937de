"""Acknowledged means durable and whole, whatever moment the process is killed at."""

import pytest
from tests.soak.run import report_of


def test_ten_kills_lose_and_tear_nothing() -> None:
    assert "all there and whole" in report_of("kv_crash", "--kills", "10")


def test_a_store_that_acknowledges_early_is_found_out() -> None:
    assert "was acknowledged and is lost" in report_of(
        "kv_crash", "--kills", "20", "--manner", "early"
    )


def test_a_store_that_tears_transactions_is_found_out() -> None:
    assert "is not whole" in report_of("kv_crash", "--kills", "20", "--manner", "torn")


@pytest.mark.soak
def test_two_hundred_kills_lose_and_tear_nothing() -> None:
    assert "all there and whole" in report_of("kv_crash", "--kills", "200")
