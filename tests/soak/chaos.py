"""Runs many seeds of chaos and prints what is wrong. A seed repeats exactly.

    python -m tests.soak.chaos --seeds 1000 --first 20

Ends with status 1 if anything was wrong.
"""

import argparse
import sys
import time
import traceback

from tests.engine.chaos.chaos import run_seed


def report(*lines: str) -> None:
    """Say it now, also into a pipe."""
    sys.stdout.write("\n    ".join(lines) + "\n")
    sys.stdout.flush()


def wrong_with(seed: int) -> list[str]:
    """Run one seed; also what ends it before its time is wrong."""
    try:
        return run_seed(seed)
    except Exception:
        return [traceback.format_exc()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    bad = []
    began = time.monotonic()
    for number, seed in enumerate(range(options.first, options.first + options.seeds), 1):
        wrong = wrong_with(seed)
        if wrong:
            bad.append(seed)
            report(f"seed {seed}:", *wrong[:10])
        if number % 100 == 0:
            report(f"{number} seeds in {time.monotonic() - began:.0f} s, bad: {bad}")
    report(f"{options.seeds} seeds, {len(bad)} of them bad: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
