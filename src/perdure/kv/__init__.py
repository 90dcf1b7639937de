"""The ordered transactional key-value store everything durable stands on.

`open_database(url)` opens a store, `Database.run` or `@transactional` run bodies in transactions.
"""

from __future__ import annotations

import re
from pathlib import Path

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.kv.database import Database, TransactionObserver, transactional
from perdure.kv.errors import InvalidStoreUrl
from perdure.kv.memory import MemoryDriver
from perdure.kv.subspace import Subspace
from perdure.kv.transaction import Transaction

__all__ = [
    "Database",
    "Subspace",
    "Transaction",
    "TransactionObserver",
    "open_database",
    "open_readonly",
    "transactional",
]

_SCHEME = re.compile(r"([a-z][a-z0-9+]+):")


async def open_database(url: str, *, clock: Clock = SYSTEM_CLOCK) -> Database:
    """Open the store at "memory:", "rocksdb:PATH" or a plain path (RocksDB), made if missing.

    Raises `InvalidStoreUrl`, `StoreInUse` or `StoreFailed`.
    """
    if url == "memory:":
        return Database(MemoryDriver(clock=clock), clock=clock)
    from perdure.kv.rocksdb import RocksDriver

    return Database(await RocksDriver.open(_path(url), clock=clock), clock=clock)


async def open_readonly(url: str) -> Database:
    """Open the RocksDB store at `url` as it is now, for tools; its owner may go on meanwhile.

    The view does not follow later commits. Writing raises `StoreReadOnly`.
    """
    from perdure.kv.rocksdb import ReadonlyRocksDriver

    return Database(await ReadonlyRocksDriver.open(_path(url)))


def _path(url: str) -> Path:
    scheme = _SCHEME.match(url)
    if scheme is None:
        path = url
    elif scheme[1] == "rocksdb":
        path = url[scheme.end() :]
    else:
        raise InvalidStoreUrl(url)
    if not path:
        raise InvalidStoreUrl(url)
    return Path(path)
