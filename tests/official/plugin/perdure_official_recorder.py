"""A pytest plugin that writes down, line by line, what becomes of each test.

The record survives a crash, a kill and the suite's own `os._exit`, which a report written at the
end would not. Each line is a JSON object with the field `event`:

* `core`: which core the SDK of this process runs on;
* `collected`: the tests of this session;
* `broken`: a file that could not be collected, with the reason;
* `started`, `finished`: a test, with its outcome, reason and seconds;
* `ended`: the session came to its end.

It also makes the compiled core start the same server executables as ours does. The suite asks for
versions to download; ours never downloads.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

__all__ = ["RECORD", "SELECTION"]

RECORD = "PERDURE_OFFICIAL_RECORD"
SELECTION = "PERDURE_OFFICIAL_SELECTION"

_SERVERS = {"start_dev_server": "temporal", "start_test_server": "temporal-test-server"}
_outcomes: dict[str, tuple[str, str, float]] = {}


def _write(event: str, **fields: object) -> None:
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as record:
        record.write(json.dumps({"event": event, **fields}) + "\n")


def _executable(name: str) -> str | None:
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=beside) or shutil.which(name)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    import temporalio.bridge
    import temporalio.bridge.testing as servers

    ours = hasattr(temporalio.bridge.temporal_sdk_bridge, "__perdure_core__")
    _write("core", name="ours" if ours else "compiled", package=temporalio.__file__)
    if not ours:
        for method, executable in _SERVERS.items():
            start = getattr(servers.EphemeralServer, method)
            setattr(servers.EphemeralServer, method, _existing(start, executable))


def _existing(start: Any, name: str) -> Any:
    async def start_existing(runtime: Any, config: Any) -> Any:
        config.existing_path = config.existing_path or _executable(name)
        return await start(runtime, config)

    return staticmethod(start_existing)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection = json.loads(os.environ[SELECTION])
    if selection["only"] is not None:
        only = set(selection["only"])
        items[:] = [item for item in items if item.nodeid in only]
    without = set(selection["without"])
    items[:] = [item for item in items if item.nodeid not in without]
    _write("collected", tests=[item.nodeid for item in items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write("broken", file=report.nodeid, reason=report.longreprtext)
    elif report.skipped:
        why = _why_skipped(report)
        _write("finished", test=report.nodeid, outcome="skipped", reason=why, seconds=0)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("started", test=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome, reason, seconds = _outcomes.get(report.nodeid, ("passed", "", 0.0))
    seconds += report.duration
    if report.failed:
        outcome = "failed" if report.when == "call" else "errors"
        reason = f"{reason}\n{report.longreprtext}".strip()
    elif report.skipped:
        outcome, reason = "skipped", _why_skipped(report)
    _outcomes[report.nodeid] = outcome, reason, seconds


def _why_skipped(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return getattr(report, "wasxfail", "") or report.longreprtext


def pytest_runtest_logfinish(nodeid: str) -> None:
    outcome, reason, seconds = _outcomes.pop(nodeid)
    _write("finished", test=nodeid, outcome=outcome, reason=reason, seconds=round(seconds, 3))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    _write("ended")
