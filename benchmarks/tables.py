"""Prints a report: one table per section, then the ratios and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, Section
from benchmarks.ratios import Ratio
from benchmarks.runner import Report

__all__ = ["print_report"]

_FIRST_COLUMN = {
    Section.STEPS: "workflows x activities",
    Section.DBOS: "workflows x activities",
    Section.DBOS_TUNED: "workflows x activities",
    Section.SLEEPERS: "sleeping workflows stored",
}


def print_report(console: Console, report: Report, found: Sequence[Ratio]) -> None:
    """Print everything in `report` and the ratios `found` in it."""
    for section in Section:
        figures = [figure for figure in report.figures if figure.section is section]
        if figures:
            console.print(section.heading, style="bold", highlight=False)
            console.print(_section_table(section, figures))
        for remark in report.notes:
            if remark.section is section:
                console.print(remark.text, style="dim", highlight=False)
        if figures:
            console.print()
    if found:
        console.print("Ratios", style="bold")
        console.print(_ratio_table(found))
    for failure in report.failures:
        console.print(failure, style="bold red", highlight=False)


def _section_table(section: Section, figures: Sequence[Figure]) -> Table:
    table = Table()
    columns = list(dict.fromkeys(figure.column for figure in figures))
    units = {figure.column: figure.unit for figure in figures}
    cells = {(figure.row, figure.column): figure.value for figure in figures}
    table.add_column(_FIRST_COLUMN.get(section, ""), no_wrap=True)
    for column in columns:
        unit = "" if units[column] == "/s" else f" ({units[column]})"
        table.add_column(f"{column}{unit}", justify="right")
    for row in dict.fromkeys(figure.row for figure in figures):
        values = [cells.get((row, column)) for column in columns]
        table.add_row(row, *("" if value is None else _number(value) for value in values))
    return table


def _ratio_table(found: Sequence[Ratio]) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    table.add_column("ratio", justify="right")
    table.add_column("wanted")
    table.add_column("caution")
    for ratio in found:
        table.add_row(ratio.name, f"{ratio.value:,.2f}", ratio.goal, ratio.caution)
    return table


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:,.3f}"
