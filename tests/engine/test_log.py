"""Logs: bound to the workflow, silent while it replays."""

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from perdure.engine.log import WorkflowLogger, engine_logger
from perdure.ids import Id

WORKFLOW = Id.new()
RAY = Id.new()


class Replay:
    """A run as its logger sees it."""

    def __init__(self) -> None:
        self.replaying = False
        self.location = "{1}"

    def logger(self) -> WorkflowLogger:
        return WorkflowLogger(
            "fulfil",
            WORKFLOW,
            RAY,
            replaying=lambda: self.replaying,
            location=lambda: self.location,
        )


@pytest.fixture
def configured() -> Iterator[list[MutableMapping[str, Any]]]:
    """structlog as an application would configure it, collecting lines."""
    structlog.configure(processors=[lines := structlog.testing.LogCapture()])
    yield lines.entries
    structlog.reset_defaults()


def test_lines_carry_the_workflow_and_the_location_reached(
    configured: list[MutableMapping[str, Any]],
) -> None:
    run = Replay()
    log = run.logger()
    log.info("charging", amount=3)
    run.location = "{2}"
    log.bind(customer=42).warning("slow")

    first, second = configured
    assert first["event"] == "charging"
    assert first["workflow"] == "fulfil"
    assert first["workflow_id"] == str(WORKFLOW)
    assert first["ray_id"] == str(RAY)
    assert first["location"] == "{1}"
    assert first["amount"] == 3
    assert second["location"] == "{2}"
    assert second["customer"] == 42
    assert second["log_level"] == "warning"


def test_a_replay_is_silent_and_what_comes_after_it_is_not(
    configured: list[MutableMapping[str, Any]],
) -> None:
    run = Replay()
    log = run.logger()
    run.replaying = True
    for write in (log.debug, log.info, log.warning, log.error, log.exception):
        write("again")
    run.replaying = False
    log.info("new")

    assert [line["event"] for line in configured] == ["new"]


def test_without_a_configuration_lines_go_to_standard_logging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Replay().logger()
    with caplog.at_level(logging.INFO, logger="perdure"):
        log.debug("hidden")
        log.info("shown", amount=3)
        try:
            raise ValueError("boom")
        except ValueError:
            log.exception("failed")

    shown, failed = caplog.records
    assert shown.name == "perdure.workflow"
    assert shown.getMessage().startswith("shown ")
    assert "amount=3" in shown.getMessage()
    assert failed.levelno == logging.ERROR
    assert failed.exc_info is not None
    assert failed.exc_info[0] is ValueError


def test_the_engine_logs_below_the_name_perdure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="perdure"):
        engine_logger("perdure.worker", worker="w1").info("started")

    assert caplog.records[0].name == "perdure.worker"
    assert caplog.records[0].getMessage() == "started worker='w1'"
