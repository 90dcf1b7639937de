"""Errors that cross a process boundary: as data on the wire, as one exception on the other side."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perdure.errors import CallerError, PerdureError
from perdure.ids import Id

__all__ = ["ErrorView", "RemoteRefusal", "error_view"]

_DEPTH = 4


class ErrorView(msgspec.Struct, frozen=True):
    """An error as data.

    `code` is the stable code, `message` the text for people, `fields` the error's typed fields as
    plain values, `fault` whose fault it is.
    """

    code: str
    message: str
    fields: dict[str, Any] = {}
    fault: Literal["caller", "world"] = "world"


class RemoteRefusal(PerdureError):
    """The process that owns the store refused a request; `view` is the error it raised there.

    `code` is the code of that error, so it can be matched on as if it had been raised here.
    """

    code = "admin.remote"

    def __init__(self, view: ErrorView) -> None:
        super().__init__(view.message)
        self.view = view


def error_view(error: PerdureError) -> ErrorView:
    """The error as data; the original one if it came from another process."""
    if isinstance(error, RemoteRefusal):
        return error.view
    fields = {
        name: _plain(value, _DEPTH)
        for name, value in vars(error).items()
        if not name.startswith("_") and name != "message"
    }
    fault: Literal["caller", "world"] = "caller" if isinstance(error, CallerError) else "world"
    return ErrorView(error.code, error.message, fields, fault)


def _plain(value: object, depth: int) -> Any:
    """What JSON can say of `value`: fields are for tools, an odd one must not hide the error."""
    if isinstance(value, Id):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if depth > 0:
        if isinstance(value, Mapping):
            return {str(key): _plain(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, depth - 1) for item in value]
        if isinstance(value, msgspec.Struct):
            return {
                name: _plain(getattr(value, name), depth - 1) for name in value.__struct_fields__
            }
    return str(value)
