"""The results of the cores beside each other, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.official.session import Outcome, Results

__all__ = ["as_json", "as_text", "differing"]

_KINDS = ("passed", "failed", "skipped", "errors")
_ROW = " {:>6} {:>6} {:>7} {:>6}"


def differing(results: Mapping[str, Results]) -> list[str]:
    """The tests and files that do not work on ours but do on the compiled core.

    Of a run on one core only: all that do not work.
    """
    if len(results) == 1:
        (only,) = results.values()
        return sorted([*_bad(only), *only.broken])
    ours, compiled = results["ours"], results["compiled"]
    tests = [test for test in _bad(ours) if not _is_bad(compiled, test)]
    return sorted([*tests, *(ours.broken.keys() - compiled.broken.keys())])


def as_text(results: Mapping[str, Results]) -> str:
    """A table of the files, the tests that differ and the files that could not be collected."""
    counts = {core: _counts(result) for core, result in results.items()}
    files = sorted({file for count in counts.values() for file in count})
    width = max(map(len, [*files, "total"]))
    lines = [" " * width + "".join(f"  {core:^28}" for core in results)]
    lines.append(" " * width + "".join(" " + _ROW.format(*_KINDS) for _ in results))
    for file in files:
        lines.append(_line(file.ljust(width), [count[file] for count in counts.values()]))
    totals = [sum(count.values(), Counter[str]()) for count in counts.values()]
    lines.append(_line("total".ljust(width), totals))
    lines += _list("Could not be collected or run", _broken(results))
    if len(results) == 1:
        lines += _list("Failed", _reasons(results, differing(results)))
    else:
        both = [test for test in _bad(results["ours"]) if _is_bad(results["compiled"], test)]
        worse = [test for test in _bad(results["compiled"]) if not _is_bad(results["ours"], test)]
        lines += _list("Failed on both", _reasons(results, both))
        lines += _list("Failed on the compiled core only", _reasons(results, worse))
        lines += _list("Failed on ours only", _reasons(results, differing(results)))
    flaky = [
        f"{test} ({core})"
        for core, result in results.items()
        for test, outcome in sorted(result.tests.items())
        if outcome.reruns and not outcome.bad
    ]
    lines += _list("Passed only when run again", flaky)
    return "\n".join(lines)


def as_json(version: str, results: Mapping[str, Results]) -> dict[str, Any]:
    """Everything: counts per file, every test on every core, and the tests that differ."""
    return {
        "version": version,
        "totals": {
            core: {kind: counts[kind] for kind in _KINDS}
            for core, counts in (
                (core, sum(_counts(result).values(), Counter[str]()))
                for core, result in results.items()
            )
        },
        "differing": differing(results),
        "tests": {
            core: {test: _outcome(outcome) for test, outcome in sorted(result.tests.items())}
            for core, result in results.items()
        },
        "broken": {core: result.broken for core, result in results.items()},
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "outcome": outcome.kind,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "reruns": outcome.reruns,
    }


def _bad(result: Results) -> list[str]:
    return sorted(test for test, outcome in result.tests.items() if outcome.bad)


def _is_bad(result: Results, test: str) -> bool:
    outcome = result.tests.get(test)
    return outcome is None or outcome.bad


def _counts(result: Results) -> dict[str, Counter[str]]:
    """By file; a file that could not be collected counts as one error."""
    counts: dict[str, Counter[str]] = _Counts()
    for test, outcome in result.tests.items():
        counts[test.split("::")[0]][outcome.kind] += 1
    for file in result.broken:
        counts[file.split("::")[0]]["errors"] += 1
    return counts


class _Counts(dict[str, Counter[str]]):
    def __missing__(self, file: str) -> Counter[str]:
        self[file] = Counter()
        return self[file]


def _line(name: str, counts: list[Counter[str]]) -> str:
    return name + "".join(" " + _ROW.format(*(count[kind] for kind in _KINDS)) for count in counts)


def _list(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    return ["", f"{title} ({len(entries)}):", *(f"  {entry}" for entry in entries)]


def _broken(results: Mapping[str, Results]) -> list[str]:
    files: dict[str, dict[str, str]] = {}
    for core, result in results.items():
        for file, reason in result.broken.items():
            files.setdefault(file, {})[core] = reason
    entries = []
    for file, reasons in sorted(files.items()):
        where = "" if len(reasons) == len(results) else f" ({', '.join(reasons)})"
        entries.append(f"{file}{where}: {_gist(next(iter(reasons.values())))}")
    return entries


def _reasons(results: Mapping[str, Results], tests: list[str]) -> list[str]:
    entries = []
    for test in tests:
        for result in results.values():
            outcome = result.tests.get(test)
            reason = outcome.reason if outcome and outcome.bad else result.broken.get(test)
            if reason is not None:
                entries.append(f"{test}: {_gist(reason)}")
                break
    return entries


def _gist(reason: str) -> str:
    """The line that names the error: where the last block that pytest marks begins, or the last."""
    lines = [line for line in reason.splitlines() if line.strip()]
    gist = lines[-1] if lines else "no reason given"
    marked = False
    for line in lines:
        if line.startswith("E  ") and not marked:
            gist = line.removeprefix("E")
        marked = line.startswith("E  ")
    return gist.strip()[:200]
