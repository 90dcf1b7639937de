"""Running test files on one core, each run of pytest in a process of its own.

The process is watched through the record that its plugin writes. One that crashes, or writes
nothing for too long and is killed, costs the test that it was in; a further process goes on behind
that test. So every collected test has an outcome in the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CORES", "Outcome", "Results", "Suite"]

CORES = ("ours", "compiled")
_HERE = Path(__file__).resolve().parent
_POLL = 0.1
_START = 120.0
_AFTER_END = 30.0
_TAIL = 4000


@dataclass(frozen=True)
class Outcome:
    """What became of a test: `kind` is passed, failed, skipped or errors."""

    kind: str
    reason: str = ""
    seconds: float = 0.0
    reruns: int = 0

    @property
    def bad(self) -> bool:
        return self.kind in {"failed", "errors"}


@dataclass
class Results:
    """Outcomes by test, and the files that could not be collected with the reason."""

    tests: dict[str, Outcome] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def update(self, other: Results) -> None:
        self.tests.update(other.tests)
        self.broken.update(other.broken)


@dataclass(frozen=True)
class Suite:
    """How to run the tests of a copied checkout.

    Each core has a copy of its own, in a folder of its name. `timeout` is in seconds and bounds
    each test; `grace` is how much longer than that a process may be silent before it is killed.
    """

    copies: Path
    logs: Path
    arguments: tuple[str, ...] = ()
    timeout: float = 120.0
    grace: float = 60.0
    reruns: int = 0

    def run(self, core: str, files: list[str]) -> Results:
        """Run the files on a core, to the end whatever happens, and failures again."""
        results = Results()
        while self._once(core, files, results, without=results.tests):
            pass
        for attempt in range(1, self.reruns + 1):
            failed = [test for test, outcome in results.tests.items() if outcome.bad]
            if not failed:
                break
            again = Results()
            while self._once(core, files, again, only=failed, without=again.tests):
                pass
            for test, outcome in again.tests.items():
                results.tests[test] = Outcome(
                    outcome.kind, outcome.reason, outcome.seconds, attempt
                )
        return results

    def _once(
        self,
        core: str,
        files: list[str],
        results: Results,
        *,
        without: Iterable[str],
        only: list[str] | None = None,
    ) -> bool:
        """Run one process; whether tests are left that it did not come to."""
        with tempfile.TemporaryDirectory() as folder:
            record = _Record(Path(folder) / "record")
            selection = {"only": only, "without": list(without)}
            output, how = self._process(core, files, record, json.dumps(selection))
        if record.core not in {"", core}:
            raise AssertionError(f"asked for the core {core}, got {record.core}")
        results.update(record.results)
        if record.ended:
            return False
        if record.running:
            record.results.tests[record.running] = Outcome(
                "errors", f"{how} in this test\n{output}"
            )
            results.update(record.results)
        else:
            results.broken |= dict.fromkeys(files, f"{how} outside of any test\n{output}")
        left = set(record.collected) - results.tests.keys()
        return bool(left and record.results.tests)

    def _process(
        self, core: str, files: list[str], record: _Record, selection: str
    ) -> tuple[str, str]:
        """Run one process to its end; its output and how it ended."""
        command = [sys.executable, "-m", "pytest", *_plugins(core), *self._options(core), *files]
        name = files[0].replace("/", ".") if len(files) == 1 else "suite"
        log_path = self.logs / f"{name}.{core}.log"
        with log_path.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                command,
                cwd=self.copies / core,
                env=_environment(core, record.path, selection),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                killed = self._watch(process, record)
            finally:
                _kill_group(process)
        record.read()
        output = log_path.read_bytes()[start:].decode(errors="replace")[-_TAIL:]
        if killed:
            return output, "killed after a long silence"
        return output, f"the process ended with status {process.returncode}"

    def _watch(self, process: subprocess.Popen[bytes], record: _Record) -> bool:
        """Wait until the process ends; True if it was silent for too long."""
        heard = time.monotonic()
        while process.poll() is None:
            if record.read():
                heard = time.monotonic()
            if time.monotonic() - heard > self._patience(record):
                return not record.ended
            time.sleep(_POLL)
        return False

    def _patience(self, record: _Record) -> float:
        if record.ended:
            return _AFTER_END
        return self.timeout + self.grace if record.core else max(_START, self.grace)

    def _options(self, core: str) -> list[str]:
        options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-q"]
        options += ["-o", "log_cli=false", "--rootdir", str(self.copies / core), "--tb=short"]
        if importlib.util.find_spec("pytest_timeout"):
            options += [f"--timeout={self.timeout:g}"]
        return [*options, *self.arguments]


class _Record:
    """The lines that the plugin wrote so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.core = ""
        self.collected: list[str] = []
        self.results = Results()
        self.running = ""
        self.ended = False
        self._read = 0

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        if not self.path.exists():
            return False
        new = self.path.read_bytes()[self._read :]
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        for line in new.splitlines():
            self._take(json.loads(line))
        return bool(new)

    def _take(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "core":
                self.core = line["name"]
            case "collected":
                self.collected = line["tests"]
            case "broken":
                self.results.broken[line["file"]] = line["reason"]
            case "started":
                self.running = line["test"]
            case "finished":
                self.running = ""
                self.results.tests[line["test"]] = Outcome(
                    line["outcome"], line["reason"], line["seconds"]
                )
            case "ended":
                self.ended = True


def _plugins(core: str) -> list[str]:
    """Ours comes first: before the suite's conftest and the plugins of installed packages."""
    plugins = ["perdure.temporal.pytest_plugin"] if core == "ours" else []
    plugins.append("perdure_official_recorder")
    return [part for plugin in plugins for part in ("-p", plugin)]


def _environment(core: str, record: Path, selection: str) -> dict[str, str]:
    environment = dict(os.environ)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        environment.pop(name, None)
    paths = [str(_HERE / "plugin")]
    if core == "ours":
        paths.append(str(_HERE / "ours"))
    old = environment.get("PYTHONPATH", "")
    paths += [str(Path(path).resolve()) for path in old.split(os.pathsep) if path]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PERDURE_OFFICIAL_RECORD"] = str(record)
    environment["PERDURE_OFFICIAL_SELECTION"] = selection
    return environment


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it left behind, such as its server."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
