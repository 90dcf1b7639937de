"""Log records as lines on the console, in the formats of the compiled core.

`compact` (the default) and `pretty` are coloured unless the environment says NO_COLOR; `json` is
one object a line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from perdure.temporal.telemetry.log_filter import DEBUG, ERROR, INFO, LEVEL_NAMES, TRACE, WARN

if TYPE_CHECKING:
    from perdure.temporal.telemetry.logs import BufferedLogEntry

__all__ = ["console_format"]

_COLORS: Final = {TRACE: "35", DEBUG: "34", INFO: "32", WARN: "33", ERROR: "31"}
_DIM, _ITALIC, _BOLD = "2", "3", "1"

Format = Callable[["BufferedLogEntry"], str]


def console_format(name: str | None) -> Format:
    """The format of that name; ValueError when there is none."""
    found = _FORMATS.get(name or "compact")
    if found is None:
        raise ValueError(f"unknown log format {name!r}: it is one of {', '.join(_FORMATS)}")
    return found


def _compact(entry: BufferedLogEntry) -> str:
    level = _paint(f"{LEVEL_NAMES[entry.level]:>5}", _COLORS[entry.level])
    fields = "".join(
        f" {_paint(key, _ITALIC)}{_paint('=', _DIM)}{_shown(value)}"
        for key, value in entry.fields.items()
    )
    target = f"{_paint(entry.target, _DIM)}{_paint(':', _DIM)}"
    return f"{_paint(_stamp(entry), _DIM)} {level} {target} {entry.message}{fields}\n"


def _pretty(entry: BufferedLogEntry) -> str:
    color = _COLORS[entry.level]
    bold = f"{_BOLD};{color}"
    level = _paint(f"{LEVEL_NAMES[entry.level]:>5}", color)
    fields = "".join(
        f"{_paint(', ', color)}{_paint(key, bold)}{_paint(f': {_shown(value)}', color)}"
        for key, value in entry.fields.items()
    )
    target = f"{_paint(entry.target, bold)}{_paint(': ', color)}"
    message = _paint(entry.message, color)
    return f"  {_paint(_stamp(entry), _DIM)} {level} {target}{message}{fields}\n\n"


def _json(entry: BufferedLogEntry) -> str:
    fields: Mapping[str, Any] = {"message": entry.message, **entry.fields}
    line = {"timestamp": _stamp(entry), "level": LEVEL_NAMES[entry.level], "fields": fields}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False, default=str) + "\n"


_FORMATS: Final[Mapping[str, Format]] = {"compact": _compact, "pretty": _pretty, "json": _json}


def _stamp(entry: BufferedLogEntry) -> str:
    seconds, micros = divmod(round(entry.time * 1_000_000), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"


def _shown(value: Any) -> str:
    """Text that could be taken for something else is quoted."""
    text = str(value)
    if isinstance(value, str) and (not text or not text.isprintable() or set(text) & set(' "\\')):
        return json.dumps(text, ensure_ascii=False)
    return text


def _paint(text: str, style: str) -> str:
    return text if os.environ.get("NO_COLOR") else f"\x1b[{style}m{text}\x1b[0m"
