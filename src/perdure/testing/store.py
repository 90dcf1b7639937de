"""A store that a test can close and open again, whatever its driver.

Owns one `Database` at a time. `reopen` is an orderly restart: everything committed is there after
it, nothing else is, and transactions of the time before are dead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, TypeAlias

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.kv import Database, open_database
from perdure.kv.memory import MemoryDriver

__all__ = ["STORE_KINDS", "Store", "StoreKind"]

StoreKind: TypeAlias = Literal["memory", "rocksdb"]

STORE_KINDS: Final[tuple[StoreKind, ...]] = ("memory", "rocksdb")


class Store:
    """Made by `open`; `database` is the handle of the present."""

    def __init__(self, url: str, clock: Clock, database: Database) -> None:
        self._url = url
        self._clock = clock
        self.database = database

    @classmethod
    async def open(cls, kind: StoreKind, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> Store:
        """Open a store of one kind; one that needs files keeps them in `folder`."""
        url = "memory:" if kind == "memory" else f"rocksdb:{folder / 'store'}"
        return cls(url, clock, await open_database(url, clock=clock))

    async def reopen(self) -> Database:
        """Close, open what was durable, and return the new handle."""
        driver = self.database.driver
        await self.database.close()
        if isinstance(driver, MemoryDriver):
            self.database = Database(driver.reopen(), clock=self._clock)
        else:
            self.database = await open_database(self._url, clock=self._clock)
        return self.database

    async def close(self) -> None:
        await self.database.close()
