"""The command line of `tests/official/run`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.official.checkout import Checkout, CheckoutUnusable
from tests.official.comparison import as_json, as_text, differing
from tests.official.session import CORES, Results, Suite

__all__ = ["VARIABLE", "main"]

VARIABLE = "SDK_PYTHON_DIR"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests/official/run",
        description="Run the official SDK's own tests on our core and on the compiled one, against "
        "a real dev server, and print the results beside each other. Exits with 1 if a test fails "
        "on ours only (with one core: if any test fails).",
        epilog="Arguments after -- go to pytest as they are.",
    )
    add = parser.add_argument
    add("checkout", nargs="?", type=Path, help=f"checkout of sdk-python (default: ${VARIABLE})")
    only = "only this test file or folder, such as tests/worker; may be repeated"
    add("-f", "--file", action="append", default=[], metavar="PATH", dest="files", help=only)
    add("-k", metavar="EXPRESSION", help="only tests whose name matches, as in pytest")
    add("--core", choices=CORES, help="only this core")
    where = "the suite's --workflow-environment: local (a dev server for each process; the default)"
    where += ", time-skipping, or HOST:PORT of a server that runs"
    add("--environment", default="local", metavar="WHERE", help=where)
    add("--timeout", type=float, default=120, metavar="SECONDS", help="of each test (120)")
    add("--jobs", type=int, default=1, metavar="N", help="processes at the same time (1)")
    add("--rerun", type=int, default=0, metavar="N", help="run failures up to N times more (0)")
    together = "all files of a core in one process, instead of one process for each file"
    add("--together", action="store_true", help=together)
    add("--json", type=Path, metavar="FILE", help="also write a report with every test")
    work = "keep the copied tests and the output of every process in this folder"
    add("--work", type=Path, metavar="FOLDER", help=work)
    add("--any-version", action="store_true", help="accept tests of another version of the SDK")
    return parser


def main(arguments: list[str]) -> int:
    """Run the suite; the exit status."""
    for_pytest: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, for_pytest = arguments[:split], arguments[split + 1 :]
    parser = _parser()
    options = parser.parse_args(arguments)
    root = options.checkout or os.environ.get(VARIABLE)
    if not root:
        parser.error(f"set {VARIABLE} to a checkout of sdk-python, or name one as an argument")
    try:
        checkout = Checkout.open(Path(root).resolve(), any_version=options.any_version)
    except CheckoutUnusable as problem:
        parser.error(str(problem))
    files = [file for file in checkout.test_files() if _selected(file, options.files)]
    if not files:
        parser.error(f"no test file matches {' '.join(options.files)}")
    with ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        suite = _suite(checkout, work.resolve(), options, for_pytest)
        cores = [options.core] if options.core else list(CORES)
        results = _run(suite, cores, files, jobs=options.jobs, together=options.together)
    sys.stdout.write(as_text(results) + "\n")
    if options.json:
        report = as_json(checkout.version, results)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if differing(results) else 0


def _selected(file: str, wanted: list[str]) -> bool:
    return not wanted or any(Path(file).is_relative_to(one) for one in wanted)


def _suite(
    checkout: Checkout, work: Path, options: argparse.Namespace, for_pytest: list[str]
) -> Suite:
    copies, logs = work / "checkout", work / "output"
    for core in [options.core] if options.core else CORES:
        checkout.copy(copies / core)
    logs.mkdir(exist_ok=True)
    for old in logs.glob("*.log"):
        old.unlink()
    arguments = [*checkout.asyncio_arguments(), *for_pytest]
    arguments += ["--workflow-environment", options.environment]
    if options.k:
        arguments += ["-k", options.k]
    return Suite(
        copies=copies,
        logs=logs,
        arguments=tuple(arguments),
        timeout=options.timeout,
        reruns=options.rerun,
    )


def _run(
    suite: Suite, cores: list[str], files: list[str], *, jobs: int, together: bool
) -> dict[str, Results]:
    groups = [files] if together else [[file] for file in files]
    results = {core: Results() for core in cores}

    def run(core: str, group: list[str]) -> None:
        start = time.monotonic()
        found = suite.run(core, group)
        results[core].update(found)
        counts = Counter(outcome.kind for outcome in found.tests.values())
        counts["errors"] += len(found.broken)
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        name = group[0] if len(group) == 1 else f"{len(group)} files"
        taken = time.monotonic() - start
        sys.stderr.write(f"{core}: {name}: {said or 'no tests'} ({taken:.0f} s)\n")

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(run, core, group) for group in groups for core in cores]:
            future.result()
    return results
