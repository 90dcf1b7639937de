"""How a command gets at a store.

An embedded store has one owner at a time, so there are three ways, tried in this order:

1. Its owner listens on the admin socket: ask it. This works whenever an engine runs.
2. Nobody owns it and the command only reads: open the files read-only; nothing is changed.
3. Nobody owns it and the command writes: own the store for the moment, and say so.

If a process owns the store without listening, there is no way; the error names that process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from perdure.cli.exits import StoreUnreachable
from perdure.cli.output import notice
from perdure.clock import SYSTEM_CLOCK
from perdure.engine.admin.admin import Admin
from perdure.engine.admin.client import AdminClient
from perdure.engine.admin.endpoint import find_endpoint
from perdure.engine.admin.requests import AdminTarget
from perdure.engine.database.keys import Keys
from perdure.kv import Database, open_database, open_readonly
from perdure.kv.errors import StoreInUse
from perdure.kv.owner import holder_of, is_store
from perdure.pubsub import MemoryPubSub

__all__ = ["reach_store"]


@asynccontextmanager
async def reach_store(folder: Path, *, writes: bool) -> AsyncIterator[AdminTarget]:
    """Something that performs requests on the store in `folder`. Raises `StoreUnreachable`."""
    _check_folder(folder)
    client = await _connect(folder)
    if client is not None:
        async with client:
            yield client
        return
    async with _opened(folder, writes=writes) as admin:
        yield admin


def _check_folder(folder: Path) -> None:
    """A command must not make a store where there is none: the folder is most likely a mistake."""
    if not folder.is_dir():
        raise StoreUnreachable(str(folder), "there is no such folder; say where with --data PATH")
    if not is_store(folder):
        raise StoreUnreachable(
            str(folder),
            "there is no store in that folder (an engine makes one when it starts); say where with"
            " --data PATH",
        )


async def _connect(folder: Path) -> AdminClient | None:
    socket = find_endpoint(folder)
    if socket is None:
        return None
    # A process that was killed leaves its socket behind: nobody listens there.
    with suppress(ConnectionRefusedError, FileNotFoundError):
        try:
            return await AdminClient.connect(socket)
        except PermissionError as error:
            raise StoreUnreachable(
                str(folder), f"its admin socket {socket} belongs to another user"
            ) from error
    return None


@asynccontextmanager
async def _opened(folder: Path, *, writes: bool) -> AsyncIterator[Admin]:
    database = await (_own(folder) if writes else _read(folder))
    pubsub = MemoryPubSub()
    try:
        yield Admin(database, Keys(), pubsub, SYSTEM_CLOCK)
    finally:
        await database.close()
        await pubsub.close()


async def _own(folder: Path) -> Database:
    try:
        database = await open_database(str(folder))
    except StoreInUse as error:
        raise _owned(folder, error.holder) from error
    notice(f"no process owns {folder}: opened it for this command")
    return database


async def _read(folder: Path) -> Database:
    holder = holder_of(folder)
    if holder is not None:
        raise _owned(folder, holder)
    return await open_readonly(str(folder))


def _owned(folder: Path, holder: str) -> StoreUnreachable:
    return StoreUnreachable(
        str(folder),
        f"it is owned by {holder}, which does not listen on an admin socket; act through that"
        " process, or stop it first",
    )
