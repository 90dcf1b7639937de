"""An exception as data: what is kept of it when the process that raised it is gone.

Everything is bounded and every text can be encoded, because a failure that cannot be stored would
turn an ordinary error in a user's code into a workflow that never ends.
"""

from __future__ import annotations

import traceback
from typing import Final

import msgspec

from perdure.errors import PerdureError

__all__ = ["AttemptFailure", "Failure"]

ATTEMPT_MESSAGE_KEPT: Final = 2_048
TEXT_KEPT: Final = 16_384
"""Longest message or stack of a `Failure`, in characters."""
CAUSES_KEPT: Final = 8


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why something failed, with the chain of its causes (at most eight deep)."""

    type: str
    """Qualified name of the exception's class."""
    message: str
    stack: str = ""
    """Formatted traceback of this exception alone; the causes carry theirs."""
    code: str = ""
    """Stable code, if the exception is one of perdure's errors."""
    cause: Failure | None = None
    undo: list[bytes] = []
    """Of a dead workflow: packed locations of the events that reviving it removes."""

    @property
    def summary(self) -> str:
        """One line: class and message."""
        return f"{self.type}: {self.message}" if self.message else self.type

    @classmethod
    def from_exception(cls, error: BaseException) -> Failure:
        """The failure that `error` stands for.

        An error that carries the failure of something else (a child, an activity) in its
        `failure` field has that as its cause.
        """
        return _from_exception(error, CAUSES_KEPT)


class AttemptFailure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One failed attempt of an activity."""

    kind: str
    """Qualified name of the exception's class."""
    message: str
    at: int
    """When it failed, ms."""

    @classmethod
    def from_exception(cls, error: BaseException, at: int) -> AttemptFailure:
        """The failed attempt that ended with `error` at `at` (ms)."""
        return cls(_type_name(error), _shorten(_message(error), ATTEMPT_MESSAGE_KEPT), at)


def _from_exception(error: BaseException, levels: int) -> Failure:
    return Failure(
        type=_type_name(error),
        message=_shorten(_message(error), TEXT_KEPT),
        stack=_shorten(_stack(error), TEXT_KEPT),
        code=error.code if isinstance(error, PerdureError) else "",
        cause=_cause(error, levels - 1),
    )


def _cause(error: BaseException, levels: int) -> Failure | None:
    carried = vars(error).get("failure")
    if isinstance(carried, Failure):
        return _cut(carried, levels)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is None or levels <= 0:
        return None
    return _from_exception(cause, levels)


def _cut(failure: Failure, levels: int) -> Failure | None:
    if levels <= 0:
        return None
    if failure.cause is None:
        return failure
    return msgspec.structs.replace(failure, cause=_cut(failure.cause, levels - 1))


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # a user's __str__ may do anything
        return f"(its text cannot be made: {_type_name(fault)})"


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, chain=False))
    except Exception as fault:  # formatting calls code of the user
        return f"(its traceback cannot be made: {_type_name(fault)})"


def _shorten(text: str, limit: int) -> str:
    """At most `limit` characters; both ends are kept, because tracebacks end with the news."""
    if len(text) > limit:
        mark = f"\n... {len(text) - limit:,} characters left out ...\n"
        kept = limit - len(mark)
        text = text[: kept // 2] + mark + text[len(text) - (kept - kept // 2) :]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
