"""Instants: what users write (datetimes, milliseconds) and what is stored (milliseconds)."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.engine.errors import InvalidOption

__all__ = ["Instant", "to_datetime", "to_milliseconds"]

Instant = datetime | int
_LATEST = 253_402_300_799_000


def to_datetime(milliseconds: int) -> datetime:
    """Return the UTC time of `milliseconds` since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def to_milliseconds(instant: Instant) -> int:
    """Return milliseconds since 1970. Raises `InvalidOption` for times without a zone."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise InvalidOption(
                "instant", instant, "give it a time zone, for example datetime.now(UTC)"
            )
        instant = round(instant.timestamp() * 1000)
    if not 0 <= instant <= _LATEST:
        raise InvalidOption("instant", instant, f"an instant is between 0 and {_LATEST} ms")
    return instant
