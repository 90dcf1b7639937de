"""One owner for a store folder.

Two processes writing one store would destroy it, and a second one started by mistake is the most
ordinary of accidents. The owner holds a lock of the operating system on the file `owner`, which
therefore vanishes with the process however it dies, and leaves its process id and command line in
it so that the second one can say who is in the way.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from perdure.kv.errors import StoreInUse

__all__ = ["Owner", "holder_of", "is_store"]

_FILE = "owner"


class Owner:
    """The claim on `folder`; held from creation until `release`. Raises `StoreInUse`."""

    __slots__ = ("_file",)

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT, 0o644)
        self._file = os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise StoreInUse(str(folder), holder) from None
        self._file.truncate()
        self._file.write(f"process {os.getpid()}: {' '.join(sys.orig_argv)}\n")
        self._file.flush()

    def release(self) -> None:
        """Give the folder up. Harmless when done before."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()


def is_store(folder: Path) -> bool:
    """Whether there is a store in `folder`: every store has had an owner."""
    return (folder / _FILE).exists()


def holder_of(folder: Path) -> str | None:
    """Who owns the store in `folder` now, in words; None if nobody does.

    An owner that ended well leaves an empty file, so the lock is only tried (shared, for a moment)
    where a name was left behind: a store that is just being opened is not disturbed.
    """
    try:
        file = (folder / _FILE).open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    with file:
        holder = file.read().strip()
        if not holder:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return holder
        return None
