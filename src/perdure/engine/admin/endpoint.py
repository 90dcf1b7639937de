"""Where the process that owns a store listens for admin requests.

The place is `admin.sock` in the store's folder, so whoever may enter the folder can find it. The
name of a unix socket is limited to about a hundred bytes; if the folder's path is longer, the
socket lies in a private temporary folder and `admin.sock.path` in the store's folder says where.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["choose_endpoint", "find_endpoint", "remove_endpoint"]

_SOCKET = "admin.sock"
_POINTER = "admin.sock.path"
_LONGEST = 100
_POINTED_PREFIX = "perdure-"


def choose_endpoint(folder: Path) -> Path:
    """Where the owner of the store in `folder` is to listen; leftovers of a crash are removed.

    Only for the owner of the store: nobody else can be listening there.
    """
    remove_endpoint(folder)
    socket = folder.absolute() / _SOCKET
    if len(os.fsencode(socket)) <= _LONGEST:
        return socket
    socket = Path(tempfile.mkdtemp(prefix=_POINTED_PREFIX)) / _SOCKET
    (folder / _POINTER).write_text(str(socket))
    return socket


def find_endpoint(folder: Path) -> Path | None:
    """Where the owner of the store in `folder` listens, if it ever did."""
    pointed = _pointed(folder)
    if pointed is not None:
        return pointed
    socket = folder.absolute() / _SOCKET
    return socket if socket.exists() else None


def remove_endpoint(folder: Path) -> None:
    """Remove the socket and what points to it. Only for the owner of the store."""
    pointed = _pointed(folder)
    if pointed is not None and pointed.parent.name.startswith(_POINTED_PREFIX):
        shutil.rmtree(pointed.parent, ignore_errors=True)
    for name in (_SOCKET, _POINTER):
        with suppress(FileNotFoundError):
            (folder / name).unlink()


def _pointed(folder: Path) -> Path | None:
    try:
        return Path((folder / _POINTER).read_text())
    except FileNotFoundError:
        return None
