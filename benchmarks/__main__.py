"""`python -m benchmarks`: run the measurements, print tables and ratios."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console

from benchmarks.machine import describe_machine
from benchmarks.plan import MEASUREMENTS, ROOT
from benchmarks.ratios import Ratio, ratios
from benchmarks.runner import Report, run_measurement
from benchmarks.tables import print_report

__all__ = ["main"]


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter measurements, about two minutes.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(MEASUREMENTS),
    help="Run only this measurement; may be repeated.",
)
@click.option("--skip-peer", is_flag=True, help="Do not install or measure DBOS.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write all figures to this file.",
)
def main(*, quick: bool, only: tuple[str, ...], skip_peer: bool, json_path: Path | None) -> None:
    """Measure perdure, its store, the disk below it and a peer, one after the other."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    machine = describe_machine(ROOT)
    for name, value in machine.items():
        console.print(f"[dim]{name:>13}[/dim]  {value}", highlight=False)
    started = perf_counter()

    def say(text: str) -> None:
        elapsed = perf_counter() - started
        console.print(f"{elapsed:6.1f} s  {text}", style="dim", highlight=False, markup=False)

    report = Report()
    for name in MEASUREMENTS:
        skipped = skip_peer and name.startswith("peer_")
        if not skipped and (not only or name in only):
            run_measurement(name, quick, report, say)
    found = ratios(report.figures)
    console.print()
    print_report(console, report, found)
    if json_path is not None:
        _write_json(json_path, machine, report, found)
    if report.failures:
        sys.exit(1)


def _write_json(
    path: Path, machine: dict[str, str], report: Report, found: Sequence[Ratio]
) -> None:
    document = {
        "machine": machine,
        "figures": [asdict(figure) for figure in report.figures],
        "notes": [asdict(remark) for remark in report.notes],
        "ratios": [asdict(ratio) for ratio in found],
        "failures": report.failures,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
