"""What people type, made into what the admin interface takes.

Each function is a click parameter type: it takes the text and raises `click.BadParameter`.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

import click

from perdure.clock import SYSTEM_CLOCK
from perdure.engine.tags import TagValue
from perdure.ids import Id, InvalidId

__all__ = ["duration", "instant", "json_value", "tag", "workflow_id"]

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def workflow_id(text: str) -> str:
    """The 30-character id of a workflow, in its normal form."""
    try:
        return str(Id.parse(text))
    except InvalidId as error:
        raise click.BadParameter(str(error)) from error


def duration(text: str) -> int:
    """A length of time such as `90s`, `2h` or `1d12h`, in milliseconds."""
    found = _duration(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration: write 90s, 15m, 2h, 7d or 1d12h")
    return found


def instant(text: str) -> int:
    """A date and time, or how long ago, in milliseconds since 1970 (UTC)."""
    ago = _duration(text)
    if ago is not None:
        return SYSTEM_CLOCK.now() - ago
    try:
        # A date without a zone means the reader's own.
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no time: write how long ago (2h, 7d) or a date (2026-01-31,"
            " 2026-01-31T12:00, 2026-01-31T12:00Z)"
        ) from error


def tag(text: str) -> tuple[str, TagValue]:
    """`key=text`, or `key:=value` for an integer, true or false."""
    key, separator, value = text.partition("=")
    typed = key.endswith(":")
    key = key.removesuffix(":")
    if not separator or not key:
        raise click.BadParameter(f"{text!r} is no tag: write key=text, key:=1 or key:=true")
    if not typed:
        return key, value
    plain = json_value(value)
    if not isinstance(plain, str | int):
        raise click.BadParameter(f"{value!r} after ':=' must be an integer, true or false")
    return key, plain


def json_value(text: str) -> Any:
    """Any JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON ({error}); a text needs its own quotes: '\"text\"'"
        ) from error


def _duration(text: str) -> int | None:
    """Milliseconds, or None if `text` is not made of numbers with units."""
    if not text or _DURATION.sub("", text):
        return None
    return round(sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text)))
