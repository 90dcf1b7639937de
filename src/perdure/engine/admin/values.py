"""Stored values as plain Python values that JSON can say."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.codec import to_json
from perdure.engine.admin.views import FailureView
from perdure.engine.history.failure import Failure
from perdure.errors import PayloadError

__all__ = ["failure_view", "plain_value"]


def plain_value(data: bytes | None) -> Any:
    """The stored value in its JSON form; None for None.

    Bytes that are no value are shown as a text that says so: this is a tool for looking at broken
    things, and one damaged value must not hide the rest.
    """
    if data is None:
        return None
    try:
        return msgspec.json.decode(to_json(data))
    except PayloadError as error:
        return f"(unreadable value of {len(data):,} bytes: {error.problem})"


def failure_view(failure: Failure) -> FailureView:
    """The stored failure with its causes."""
    return FailureView(
        type=failure.type,
        message=failure.message,
        code=failure.code or None,
        stack=failure.stack or None,
        cause=None if failure.cause is None else failure_view(failure.cause),
    )
