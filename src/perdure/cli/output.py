"""How answers are shown: tables for people, JSON for tools.

Texts that come out of the store are never taken as markup or terminal codes.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["ago", "clean", "field_table", "moment", "notice", "print_json", "shown",
           "span", "state_text", "table"]  # fmt: skip

_PIPE_WIDTH: Final = 1000
_VALUE_SHOWN: Final = 160
_STATE_STYLES: Final = {
    "running": "cyan",
    "sleeping": "blue",
    "complete": "green",
    "dead": "bold red",
    "cancelled": "yellow",
    "terminated": "yellow",
    "silenced": "magenta",
}


def show(answer: RenderableType) -> None:
    """The answer on standard output.

    If that is not a terminal: no colours, lines are never broken and have no trailing spaces.
    """
    if sys.stdout.isatty():
        Console().print(answer)
        return
    plain = Console(width=_PIPE_WIDTH, no_color=True, highlight=False)
    with plain.capture() as captured:
        plain.print(answer)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def notice(text: str) -> None:
    """Something worth knowing that is not part of the answer: to standard error."""
    click.secho(text, dim=True, err=True)


def print_json(value: object) -> None:
    """The answer as JSON, one document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(*columns: str) -> Table:
    """An empty table; cells are never broken in the middle of a word that is an id."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, no_wrap=column in ("ID", "CREATED", "STATE"), overflow="fold")
    return made


def field_table() -> Table:
    """A list of names and values."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def clean(text: str) -> Text:
    """Text from the store, with control characters made visible."""
    return Text("".join(ch if ch.isprintable() or ch == "\n" else repr(ch)[1:-1] for ch in text))


def state_text(state: str) -> Text:
    """The state in its colour."""
    return Text(state, style=_STATE_STYLES.get(state, ""))


def shown(value: Any, limit: int = _VALUE_SHOWN) -> Text:
    """A value as one line of JSON, cut at `limit` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return clean(text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)")


def moment(at: int) -> str:
    """An instant (ms) in local time."""
    local = datetime.fromtimestamp(at / 1000, tz=UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{at % 1000:03d}"


def span(milliseconds: int) -> str:
    """A length of time in its two largest units: `2d 3h`, `4m 10s`, `350ms`."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1000
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def ago(at: int, now: int) -> str:
    """How long before or after `now` (ms) something is."""
    return f"{span(now - at)} ago" if at <= now else f"in {span(at - now)}"
