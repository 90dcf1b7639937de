"""How long a sync takes right now.

Machines are shared and drift. A disk may slow down, and when other programs keep all CPUs busy a
thread that wakes from a sync waits for the next tick of the scheduler, which can be thirty times
longer than the sync. So every cell that is compared with another one is measured between two
probes, and the report says when the machine was not the same for both. Standard library only, as
`figures` is.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from benchmarks.figures import percentile

__all__ = ["probe_disk"]

_SECONDS = 0.2


def probe_disk(folder: Path) -> float:
    """The median time (s) to append 300 bytes and fdatasync them in `folder`."""
    record = os.urandom(300)
    path = folder / "probe"
    samples: list[float] = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = perf_counter() + _SECONDS
        before = perf_counter()
        while before < end:
            os.write(descriptor, record)
            os.fdatasync(descriptor)
            after = perf_counter()
            samples.append(after - before)
            before = after
    finally:
        os.close(descriptor)
        path.unlink()
    return percentile(samples, 0.50)
