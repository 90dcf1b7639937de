"""The victim of the crash test: commits numbered transactions until it is killed.

Started as a program with a folder, the first free number and a manner:

* `honest` acknowledges a transaction (one line on the standard output: number and versionstamp)
  after its commit has returned;
* `early` acknowledges before the commit, and `torn` uses two commits for one transaction. Both are
  lies that the test has to find out.

Every transaction leaves several rows whose content follows from its number, moves a token of its
writer from the last transaction to this one, counts itself, and enters itself in a log.
"""

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from perdure.kv import Database, Subspace, Transaction, open_database

WRITERS = 8

ROWS = Subspace(("rows",))
TOKENS = Subspace(("tokens",))
LOG = Subspace(("log",))
COUNTER = Subspace(("counter",)).key


def rows_of(number: int) -> list[tuple[bytes, bytes]]:
    """The rows that transaction `number` writes: 1 to 12, from empty to 20 kB."""
    rng = random.Random(number)
    return [
        (ROWS.pack((number, part)), rng.randbytes(rng.choice([0, 10, 100, 1000, 20_000])))
        for part in range(rng.randint(1, 12))
    ]


def fill(transaction: Transaction, number: int, writer: int, stage: str) -> None:
    """Make one transaction, or only its first or second half."""
    rows = rows_of(number)
    half = len(rows) // 2
    if stage != "second half":
        for key, value in rows[:half]:
            transaction.set(key, value)
        transaction.add(COUNTER, 1)
    if stage != "first half":
        for key, value in rows[half:]:
            transaction.set(key, value)
        transaction.clear_range(*TOKENS.range((writer,)))
        transaction.set(TOKENS.pack((writer, number)), b"")
        transaction.set_versionstamped(LOG.key, b"", b"%d %d" % (number, writer))


def acknowledge(number: int, stamp: bytes) -> None:
    os.write(sys.stdout.fileno(), f"{number} {stamp.hex()}\n".encode())


async def write(database: Database, numbers: Iterator[int], writer: int, manner: str) -> None:
    for number in numbers:
        transaction = database.transaction("victim")
        if manner == "early":
            acknowledge(number, b"")
        if manner == "torn":
            first = database.transaction("first half")
            fill(first, number, writer, "first half")
            await first.commit()
            fill(transaction, number, writer, "second half")
        else:
            fill(transaction, number, writer, "whole")
        await transaction.commit()
        if manner != "early":
            acknowledge(number, transaction.versionstamp)


async def main(folder: Path, first: int, manner: str) -> None:
    database = await open_database(f"rocksdb:{folder}")
    numbers = itertools.count(first)
    await asyncio.gather(*(write(database, numbers, w, manner) for w in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
