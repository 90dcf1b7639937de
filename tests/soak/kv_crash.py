"""Kills a process that writes to RocksDB, again and again, and looks at what is left.

After every kill the store is opened and must hold every transaction that was ever acknowledged, no
half of any transaction, and an account of itself (counter, log, tokens) that agrees with the rows.

    python -m tests.soak.kv_crash --kills 200

Ends with status 1 and a list of what is wrong if anything is. `--manner early` and `--manner torn`
use a victim that lies; then it is wrong if nothing is found.
"""

import argparse
import asyncio
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.kv.crash_child import COUNTER, LOG, ROWS, TOKENS, rows_of

from perdure.kv import Database, open_database

ROOT = Path(__file__).parents[2]
KILLS_PER_STORE = 10
ACKNOWLEDGED = re.compile(rb"(\d+) ([0-9a-f]*)\n")

Acknowledged = dict[int, bytes]


def run_and_kill(folder: Path, first: int, manner: str, rng: random.Random) -> Acknowledged:
    """Let a victim write for a moment, kill it, and return what it has acknowledged."""
    command = [sys.executable, "-m", "tests.kv.crash_child", str(folder), str(first), manner]
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert victim.stdout is not None
    try:
        if rng.random() < 0.1:
            # Somewhere between its birth and its first commits, recovery of the store included.
            time.sleep(rng.uniform(0.1, 0.8))
            heard = b""
        else:
            heard = victim.stdout.readline()
            for _ in range(rng.randrange(200)):
                heard += victim.stdout.readline()
            time.sleep(rng.uniform(0, 0.03))
        assert victim.poll() is None, "the victim died by itself"
    finally:
        victim.kill()
        rest, _ = victim.communicate()
    lines = ACKNOWLEDGED.findall(heard + rest)
    return {int(number): bytes.fromhex(stamp.decode()) for number, stamp in lines}


async def examine(database: Database, acknowledged: Acknowledged) -> tuple[int, list[str]]:
    """Return the first free number, and everything that is wrong with the store."""
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    transaction = database.transaction("examine")
    async for key, value in transaction.scan(*ROWS.range()):
        number = ROWS.unpack(key)[0]
        assert isinstance(number, int)
        found.setdefault(number, []).append((key, value))
    wrong = [f"{number} was acknowledged and is lost" for number in acknowledged.keys() - found]
    wrong += [f"{number} is not whole" for number, rows in found.items() if rows != rows_of(number)]

    counted = int.from_bytes(await transaction.get(COUNTER) or b"", "little")
    if counted != len(found):
        wrong.append(f"{counted} transactions are counted, {len(found)} are there")

    logged: dict[int, bytes] = {}
    newest: dict[int, int] = {}
    async for key, value in transaction.scan(LOG.key, LOG.key + b"\xff" * 11):
        number, writer = map(int, value.split())
        if number in logged:
            wrong.append(f"{number} is logged twice")
        logged[number] = key[len(LOG.key) :]
        newest[writer] = number
    if logged.keys() != found.keys():
        wrong.append(f"log and rows differ in {sorted(logged.keys() ^ found.keys())}")
    wrong += [
        f"{number} was told another versionstamp than it has"
        for number, stamp in acknowledged.items()
        if stamp and logged.get(number, stamp) != stamp
    ]

    tokens = Counter([TOKENS.unpack(key) async for key, _ in transaction.scan(*TOKENS.range())])
    if tokens != Counter(newest.items()):
        wrong.append(f"tokens are at {sorted(tokens)}, the log says {sorted(newest.items())}")
    return max(found, default=-1) + 1, wrong


async def reopen_and_examine(folder: Path, acknowledged: Acknowledged) -> tuple[int, list[str]]:
    database = await open_database(f"rocksdb:{folder}")
    try:
        return await examine(database, acknowledged)
    finally:
        await database.close()


def soak(kills: int, manner: str, seed: int) -> list[str]:
    """Kill until something is wrong, at most `kills` times; return what is wrong."""
    rng = random.Random(seed)
    total = 0
    killed = 0
    while killed < kills:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "store"
            acknowledged: Acknowledged = {}
            first = 0
            for _ in range(min(KILLS_PER_STORE, kills - killed)):
                acknowledged.update(run_and_kill(folder, first, manner, rng))
                killed += 1
                first, wrong = asyncio.run(reopen_and_examine(folder, acknowledged))
                if wrong:
                    return [f"after kill {killed} (seed {seed}):", *sorted(wrong)]
            total += len(acknowledged)
    sys.stdout.write(f"{killed} kills, {total} acknowledged transactions, all there and whole\n")
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--manner", choices=["honest", "early", "torn"], default="honest")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    wrong = soak(arguments.kills, arguments.manner, arguments.seed)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    if arguments.manner == "honest":
        return 1 if wrong else 0
    return 0 if wrong else 1


if __name__ == "__main__":
    sys.exit(main())
