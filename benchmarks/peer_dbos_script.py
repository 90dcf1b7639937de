# mypy: disable-error-code="import-not-found, untyped-decorator"
"""One cell of the peer's table, run by the Python of the peer's own virtual environment.

Usage: `python -m benchmarks.peer_dbos_script VARIANT CONCURRENCY ACTIVITIES SECONDS FOLDER`.
Workflows and steps are coroutines and are awaited directly: no queue (it would poll), no second
process. After the run the database is asked what it holds, so only stored steps are counted.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from dbos import DBOS

from benchmarks.figures import Section, section_note
from benchmarks.load import Load, Outcome, closed_loop, emit_outcome

_TUNED_THREADS = 1
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}

_step_latencies: list[float] = []


@DBOS.step()
async def add_one(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def count_to(target: int) -> int:
    number = 0
    for _ in range(target):
        before = perf_counter()
        number = await add_one(number)
        _step_latencies.append(perf_counter() - before)
    return number


async def _run(load: Load, folder: Path) -> Outcome:
    await count_to(load.activities)
    _step_latencies.clear()
    outcome = await closed_loop(load, lambda: count_to(load.activities), disk=folder)
    outcome.step_latencies = list(_step_latencies)
    return outcome


def _check_stored(database: Path, outcome: Outcome) -> None:
    with closing(sqlite3.connect(database)) as connection:
        (steps,) = connection.execute("SELECT count(*) FROM operation_outputs").fetchone()
        (workflows,) = connection.execute(
            "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"
        ).fetchone()
    expected = (outcome.workflows + 1, outcome.steps + outcome.load.activities)
    if (workflows, steps) != expected:
        raise RuntimeError(f"DBOS stored {(workflows, steps)} workflows and steps, not {expected}")


def _durability(dbos: DBOS) -> str:
    with dbos._sys_db.engine.connect() as connection:  # noqa: SLF001 -- it has no public accessor
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    return f"journal_mode={str(journal).upper()}, synchronous={_SYNCHRONOUS[synchronous]}"


def main(variant: str, load: Load, folder: Path) -> None:
    """Launch DBOS on a new SQLite file in `folder`, load it, report."""
    database = folder / "dbos.sqlite"
    config: dict[str, Any] = {
        "name": "benchmark",
        "system_database_url": f"sqlite:///{database}",
        "log_level": "ERROR",
    }
    section = Section.DBOS
    threads = "unbounded (its default)"
    if variant == "tuned":
        section = Section.DBOS_TUNED
        threads = str(_TUNED_THREADS)
        config["max_executor_threads"] = _TUNED_THREADS
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    dbos = DBOS(config=config)
    DBOS.launch()
    try:
        section_note(
            section,
            f"SQLite {sqlite3.sqlite_version}: {_durability(dbos)}; executor threads: {threads}. "
            "SQLite is what DBOS uses unless told otherwise; it also runs on PostgreSQL, which "
            "is not measured here.",
        )
        outcome = asyncio.run(_run(load, folder))
    finally:
        DBOS.destroy()
    _check_stored(database, outcome)
    emit_outcome(section, outcome)


if __name__ == "__main__":
    _variant, _concurrency, _activities, _seconds, _folder = sys.argv[1:]
    main(_variant, Load(int(_concurrency), int(_activities), float(_seconds)), Path(_folder))
