"""The durable program: one workflow per package, and one above them that gathers the results.

It uses most of what there is: sub-workflows, activities in other processes, a loop with state,
join, listening with a timeout, sleep, and messages for whoever watches.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from perdure import (
    ActivityContext,
    Break,
    WorkflowContext,
    activity,
    message,
    signal,
    workflow,
)
from stdlib_index.source import FileFacts, Package, Totals, find_packages, read_facts

__all__ = ["BATCH", "Objection", "Order", "Progress", "Report", "index_library", "index_package"]

BATCH = 8
"""Files of one package that are read at the same time."""


@dataclass(frozen=True)
class Order:
    """What to index, and where activities write down that they started."""

    root: str
    packages: list[str]
    runs_log: str


@dataclass(frozen=True)
class PackageOrder:
    package: Package
    runs_log: str


@dataclass(frozen=True)
class FileOrder:
    root: str
    path: str
    runs_log: str


@dataclass
class Indexed:
    """How far a package is: the state of its loop."""

    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True)
class Report:
    """The result of all: totals by package and over everything."""

    total: Totals
    packages: dict[str, Totals]
    objection: str | None


@message
@dataclass(frozen=True)
class Progress:
    """Sent to whoever watches. Absolute numbers: losing one message loses nothing."""

    package: str
    done: int
    files: int


@signal
@dataclass(frozen=True)
class Objection:
    """Somebody does not want the report published."""

    reason: str


@activity
def survey(_: ActivityContext, order: Order) -> list[Package]:
    """Find what there is to read."""
    return find_packages(order.root, order.packages)


@activity(process=True)
def read_file(_: ActivityContext, order: FileOrder) -> FileFacts:
    """Read one file, in a process of its own kind because parsing is work for a core.

    The first thing it does is to leave a trace. One short write to a file opened for appending is
    one line, whoever else writes, and it outlives the process that wrote it.
    """
    trace = os.open(order.runs_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(trace, f"{os.getpid()}\t{order.path}\n".encode())
    finally:
        os.close(trace)
    return read_facts(order.root, order.path)


@activity
def publish(_: ActivityContext, report: Report) -> int:
    """Hand the report over. Here nobody waits for it, so we only count its packages."""
    return len(report.packages)


# The proof reads the steps of all iterations, so all are kept; the default is the newest 100.
@workflow(keep_iterations=10_000)
async def index_package(ctx: WorkflowContext, order: PackageOrder) -> Totals:
    """Read all files of one package, a batch at a time."""
    package = order.package

    async def read_batch(ctx: WorkflowContext, state: Indexed) -> Break[Totals] | None:
        done = state.totals.files
        batch = package.paths[done : done + BATCH]
        await ctx.message(Progress(package.name, done, len(package.paths)))
        if not batch:
            return Break(state.totals)
        orders = [FileOrder(package.root, path, order.runs_log) for path in batch]
        state.totals.add(await ctx.join_all([ctx.activity(read_file, one) for one in orders]))
        return None

    return await ctx.loop(read_batch, Indexed(), commit_every=1)


@workflow
async def index_library(ctx: WorkflowContext, order: Order) -> Report:
    """Index every package, then publish the report unless somebody objects in time."""
    packages = await ctx.activity(survey, order)
    children = [
        await ctx.dispatch(
            index_package, PackageOrder(package, order.runs_log), tags={"package": package.name}
        )
        for package in packages
    ]
    results = await ctx.join_all([child.result() for child in children])
    total = Totals()
    for result in results:
        total.merge(result)

    await ctx.sleep(0.5)
    objection = await ctx.listen(Objection, timeout=1)
    by_name = {package.name: result for package, result in zip(packages, results, strict=True)}
    report = Report(total, by_name, objection.reason if objection else None)
    if objection is None:
        await ctx.activity(publish, report)
    return report
