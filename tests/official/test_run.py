"""The script that runs the official SDK's tests, tried on a miniature of its repository."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.official.checkout import Checkout
from tests.official.main import VARIABLE, main
from tests.official.miniature import write_miniature
from tests.official.session import Suite

_SCRIPT = Path(__file__).with_name("run")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sdk-python")
    write_miniature(root)
    return root


@pytest.fixture(scope="module")
def finished(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, Any]:
    """What a run on both cores printed, its exit status and its report."""
    report = tmp_path_factory.mktemp("report") / "report.json"
    arguments = [
        "--together",
        "--timeout",
        "60",
        "--jobs",
        "2",
        "--rerun",
        "1",
        "-k",
        "not test_long",
    ]
    run = subprocess.run(
        [sys.executable, str(_SCRIPT), str(checkout), *arguments, "--json", str(report)],
        capture_output=True,
        check=False,
        text=True,
        timeout=200,
    )
    assert report.exists(), run.stderr
    return run.stdout, run.returncode, json.loads(report.read_text())


def test_outcomes_on_both_cores(finished: tuple[str, int, Any]) -> None:
    _, _, report = finished
    kinds = {
        core: {test.split("/", 1)[1]: one["outcome"] for test, one in tests.items()}
        for core, tests in report["tests"].items()
    }
    alike = {
        "test_cores.py::test_child_has_the_same_core": "passed",
        "test_cores.py::test_error": "errors",
        "test_trouble.py::test_before": "passed",
        "test_trouble.py::test_crash": "errors",
        "test_trouble.py::test_flaky": "passed",
        "test_trouble.py::test_hang": "failed",
        "test_trouble.py::test_known": "skipped",
        "test_workflow.py::test_fails": "failed",
        "test_workflow.py::test_hello[Moon]": "passed",
        "test_workflow.py::test_hello[World]": "passed",
        "test_workflow.py::test_skips": "skipped",
    }
    ours, compiled = "test_cores.py::test_only_ours", "test_cores.py::test_only_compiled"
    assert kinds["ours"] == {**alike, ours: "passed", compiled: "failed"}
    assert kinds["compiled"] == {**alike, ours: "failed", compiled: "passed"}
    totals = {"passed": 6, "failed": 3, "skipped": 2, "errors": 3}
    assert report["totals"] == {"ours": totals, "compiled": totals}


def test_what_fails_on_ours_only_is_listed(finished: tuple[str, int, Any]) -> None:
    text, status, report = finished
    assert report["differing"] == ["tests/test_cores.py::test_only_compiled"]
    assert status == 1
    assert (
        "Failed on ours only (1):\n"
        "  tests/test_cores.py::test_only_compiled: AssertionError: no sign of ours\n" in text
    )


def test_files_that_cannot_be_imported_are_counted_and_shown(
    finished: tuple[str, int, Any],
) -> None:
    text, _, report = finished
    file = "tests/contrib/test_absent.py"
    assert report["broken"]["ours"].keys() == report["broken"]["compiled"].keys() == {file}
    assert "Could not be collected or run (1):" in text
    assert f"{file}: ModuleNotFoundError: No module named 'a_package_that_is" in text
    row = next(line for line in text.splitlines() if line.startswith(file))
    assert row.split()[1:] == ["0", "0", "0", "1"] * 2


def test_a_failure_that_goes_away_is_named(finished: tuple[str, int, Any]) -> None:
    text, _, report = finished
    assert report["tests"]["ours"]["tests/test_trouble.py::test_flaky"]["reruns"] == 1
    assert "  tests/test_trouble.py::test_flaky (ours)\n" in text


def test_a_silent_process_is_killed(checkout: Path, tmp_path: Path) -> None:
    """A time-out of zero switches that of pytest off, so that only the watcher is left."""
    copies, logs = tmp_path / "copies", tmp_path / "logs"
    Checkout.open(checkout, any_version=False).copy(copies / "compiled")
    logs.mkdir()
    arguments = ("-k", "test_long or test_known")
    suite = Suite(copies=copies, logs=logs, arguments=arguments, timeout=0, grace=5)
    results = suite.run("compiled", ["tests/test_trouble.py"])
    assert not results.broken, results.broken
    hung = results.tests["tests/test_trouble.py::test_long"]
    assert hung.kind == "errors"
    assert hung.reason.startswith("killed after a long silence in this test")
    assert results.tests["tests/test_trouble.py::test_known"].kind == "skipped", "it went on"


def test_one_core_and_a_selection(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--core", "ours", "-f", "tests/test_cores.py"]
    status = main(
        [str(checkout), *arguments, "-f", "tests/test_trouble.py", "-k", "child or known"]
    )
    out = capsys.readouterr().out
    assert status == 0
    assert "compiled" not in out
    assert out.splitlines()[-1].split() == ["total", "1", "0", "1", "0"]


def _refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_without_a_checkout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert "set SDK_PYTHON_DIR to a checkout of sdk-python" in _refusal(capsys)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert f"{tmp_path} is no checkout of sdk-python" in _refusal(capsys)


def test_tests_of_another_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_miniature(tmp_path, version="1.2.3")
    text = " ".join(_refusal(capsys, str(tmp_path)).split())
    assert (
        f"are of version 1.2.3, but temporalio {importlib.metadata.version('temporalio')}" in text
    )


def test_a_selection_without_files(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no test file matches tests/nowhere" in _refusal(
        capsys, str(checkout), "-f", "tests/nowhere"
    )
