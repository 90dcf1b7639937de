"""The process of one measurement: `python -m benchmarks.child NAME FOLDER [--quick]`."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from benchmarks.plan import MEASUREMENTS, Plan

__all__ = ["main"]


@click.command()
@click.argument("name", type=click.Choice(MEASUREMENTS))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--quick", is_flag=True)
def main(name: str, folder: Path, quick: bool) -> None:
    """Run one measurement in this process; figures go to standard output."""
    importlib.import_module(f"benchmarks.{name}").measure(Plan(folder=folder, quick=quick))


if __name__ == "__main__":
    main()
