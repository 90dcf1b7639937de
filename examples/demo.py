"""Kill a durable program in the middle, start it again, and prove that nothing was lost.

    python examples/demo.py                         index the standard library, kill the worker once
    python examples/demo.py --kills 3               ... three times
    python examples/demo.py --packages json,email   ... only these packages

The program (`stdlib_index/workflows.py`) runs in a child process that owns the store. This process
only watches: it kills the child with SIGKILL, starts another one on the same folder, and at the end
holds three independent witnesses against each other. It exits with 1 when they disagree.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stdlib_index.child import Worker
from stdlib_index.proof import Check, Kill, checks, read_starts
from stdlib_index.screen import Screen, screen_for
from stdlib_index.source import Package, Totals, find_packages, library, scan
from stdlib_index.witness import Witness, observe, timeline
from stdlib_index.workflows import Order, Report


@dataclass(frozen=True)
class Outcome:
    """What the demo knows when the last worker has ended."""

    report: Report
    kills: list[Kill]
    witness: Witness
    seconds: float


async def follow(worker: Worker, screen: Screen, files: int) -> Report | None:
    """Watch a worker until `files` files are done (returns None) or its report is there."""
    async for line in worker.lines():
        if line.report is not None:
            return line.report
        if line.progress is not None:
            screen.show(line.progress.package, line.progress.done)
        if screen.done >= files:
            return None
    raise EOFError(f"the worker {worker.pid} ended without a report")


async def run_with_kills(data: Path, order: Order, screen: Screen, limits: list[int]) -> Outcome:
    """Run workers one after the other; kill each when so many files are done, but not the last."""
    began = time.monotonic()
    runs_log, store = Path(order.runs_log), data / "store"
    kills: list[Kill] = []
    for limit in [*limits, sys.maxsize]:
        worker = await Worker.start(store, order)
        screen.say(f"[green]worker {worker.pid} started[/]")
        try:
            report = await follow(worker, screen, limit)
        finally:
            await worker.kill()
        killed_at = int(time.time() * 1000)
        if report is not None:
            break
        witness = await observe(store)
        kills.append(
            Kill(
                at=killed_at,
                starts=len(read_starts(runs_log)),
                recorded=frozenset(witness.recorded),
                running=witness.unfinished,
            )
        )
        screen.say(
            f"[red]worker {worker.pid} killed (SIGKILL)[/]: "
            f"{len(witness.recorded):,} results are on disk"
        )
    assert report is not None
    seconds = time.monotonic() - began
    return Outcome(report, kills, await observe(store), seconds)


def judge(
    outcome: Outcome, order: Order, packages: Sequence[Package], scanned: Totals
) -> list[Check]:
    """Hold the witnesses against each other."""
    return checks(
        paths=[path for package in packages for path in package.paths],
        starts=read_starts(Path(order.runs_log)),
        kills=outcome.kills,
        recorded=outcome.witness.recorded,
        reported=outcome.report.total,
        scanned=scanned,
    )


def tell(console: Console, outcome: Outcome, verdict: Sequence[Check]) -> None:
    """Print the timeline of one workflow, the verdict, and the numbers."""
    interrupted = frozenset[str]().union(*(kill.running for kill in outcome.kills))
    shown = outcome.witness.shortest(interrupted)
    title = f"{shown.workflow.name}, package {shown.workflow.tags['package']}"
    console.print(f"\n[bold]The history of one workflow[/]: {title}", highlight=False)
    for line in timeline(shown, [kill.at for kill in outcome.kills]):
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    console.print("\n[bold]The proof[/]")
    for check in verdict:
        mark = "[green]holds[/]" if check.holds else "[red]FAILS[/]"
        console.print(
            f"  {mark}  {check.statement}: {check.detail}", highlight=False, soft_wrap=True
        )

    total = outcome.report.total
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in [
        ("files", f"{total.files:,}"),
        ("lines", f"{total.lines:,}"),
        ("definitions", f"{total.definitions:,}"),
        ("workflows", f"{len(outcome.witness.histories):,}"),
        ("durable steps", f"{outcome.witness.steps:,}"),
        ("kills", f"{len(outcome.kills)}"),
        ("seconds", f"{outcome.seconds:.1f}"),
    ]:
        table.add_row(f"  {name}", value)
    console.print("\n[bold]In numbers[/]", table, sep="\n")


async def demo(packages: Sequence[Package], kills: int, data: Path) -> bool:
    """Tell the whole story; return whether every check holds."""
    console = Console()
    names = [package.name for package in packages]
    order = Order(library(), names, str(data / "activity-runs.log"))
    files = sum(len(package.paths) for package in packages)
    limits = [files * (n + 1) // (kills + 1) for n in range(kills)]

    where = f"Indexing {files:,} files in {len(packages)} packages of {library()}"
    console.print(where, f"Everything durable is in {data}", sep="\n", soft_wrap=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        scanning = apart.submit(scan, packages)
        with screen_for(console, packages) as screen:
            outcome = await run_with_kills(data, order, screen, limits)
        scanned = await asyncio.wrap_future(scanning)
    verdict = judge(outcome, order, packages, scanned)
    tell(console, outcome, verdict)
    return all(check.holds for check in verdict)


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--packages",
        type=lambda text: text.split(","),
        default=[],
        metavar="A,B,...",
        help="index only these packages (default: all)",
    )
    options.add_argument(
        "--kills",
        type=int,
        default=1,
        metavar="N",
        help="how often to kill the worker, at different points (default: 1)",
    )
    options.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="a new or empty folder that keeps the store (default: a temporary one, removed)",
    )
    return options


def main() -> int:
    """Run the demo; 0 when the proof holds, 1 when it does not."""
    options = parser().parse_args()
    data: Path | None = options.data
    if options.kills < 0:
        parser().error("--kills cannot be negative")
    if data is not None and data.exists() and any(data.iterdir()):
        parser().error(f"{data} is not empty: the proof needs a run from the beginning")
    try:
        packages = find_packages(library(), options.packages)
    except LookupError as error:
        parser().error(str(error))
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as folder:
        data = data or Path(folder)
        data.mkdir(parents=True, exist_ok=True)
        return 0 if asyncio.run(demo(packages, options.kills, data.resolve())) else 1


if __name__ == "__main__":
    raise SystemExit(main())
