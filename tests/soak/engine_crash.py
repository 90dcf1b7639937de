"""Kills a process that runs workflows on RocksDB, again and again, until they are all done.

    python -m tests.soak.engine_crash --kills 100

Then every result and state must be right, no activity may have been called again after it was
recorded as finished, and nothing may be left in the store. Ends with status 1 and a list of what
is wrong if anything is.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKFLOWS = 600
KILLS_PER_STORE = 8
LONGEST_SECONDS = 60.0


class Store:
    """One store, its log, and the lives of the process on it."""

    def __init__(self, parent: Path, rng: random.Random) -> None:
        self.folder = parent / "store"
        self.log = parent / "log"
        self.errors = parent / "errors"
        self.rng = rng

    def start(self) -> subprocess.Popen[bytes]:
        arguments = [str(self.folder), str(self.log), str(WORKFLOWS)]
        with self.errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.engine.proof.victim", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
            )

    def live_and_die(self) -> bool:
        """Let the victim run for a moment and kill it. False when it was done before."""
        victim = self.start()
        assert victim.stdout is not None
        try:
            if self.rng.random() < 0.15:
                # While it starts: opening, recovery, taking over what the last life held.
                time.sleep(self.rng.uniform(0.2, 0.8))
            else:
                victim.stdout.readline()
                time.sleep(self.rng.uniform(0, 0.5))
            return victim.poll() is None
        finally:
            victim.kill()
            victim.communicate()

    def finish(self) -> list[str]:
        """Let the victim run to its end and return everything that is wrong."""
        victim = self.start()
        try:
            said, _ = victim.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            said = b"it never ended"
        finally:
            victim.kill()
            victim.communicate()
        lines = self.log.read_text().splitlines()
        wrong = [line for line in lines if line.startswith("wrong")]
        calls = Counter(line for line in lines if line.startswith("call"))
        expected = {
            f"call {number} {what}"
            for number in range(WORKFLOWS)
            for what in ("first", "part", "branch", "last", *(f"loop {i}" for i in range(9)))
        }
        wrong += [f"never happened: {line}" for line in expected - calls.keys()]
        if b"done" not in said:
            wrong.append(f"the last life ended with {said!r}: {self.errors.read_text()[-3000:]}")
        return wrong


def soak(kills: int, seed: int) -> list[str]:
    """Kill `kills` times; return what is wrong."""
    rng = random.Random(seed)
    killed = 0
    stores = 0
    while killed < kills:
        with tempfile.TemporaryDirectory() as parent:
            store = Store(Path(parent), rng)
            for _ in range(min(KILLS_PER_STORE, kills - killed)):
                if not store.live_and_die():
                    break
                killed += 1
            stores += 1
            wrong = store.finish()
            if wrong:
                return [f"after kill {killed} (seed {seed}):", *wrong[:50]]
    sys.stdout.write(f"{killed} kills, {stores * WORKFLOWS} workflows, all ended right\n")
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    wrong = soak(arguments.kills, arguments.seed)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
