"""The stored history of one workflow, grouped by place.

Loading is one range scan; a replay then visits one place after the other. So rows are grouped when
they arrive, which looks only at keys, and events are decoded when their place is visited: a history
of many finished iterations costs nothing for those that the replay does not enter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from perdure.engine.errors import CorruptHistory
from perdure.engine.history.events import Event, decode_event
from perdure.engine.history.location import (
    ROOT,
    START,
    Coordinate,
    InvalidLocation,
    Location,
    pack_location,
    split_packed,
    unpack_location,
)

__all__ = ["History"]


class History:
    """The events of one workflow. Empty unless made by `from_rows`."""

    __slots__ = ("_events", "_last", "_rows")

    def __init__(self) -> None:
        self._rows: dict[bytes, list[tuple[Coordinate, bytes]]] = {}
        self._events: dict[bytes, list[tuple[Coordinate, Event]]] = {}
        self._last: dict[bytes, Coordinate] | None = None

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[bytes, bytes]]) -> Self:
        """The history in these rows: packed location and encoded event, in the order of the keys.

        Keys are relative to the subspace of the history; values are whole (chunks joined).
        Raises `CorruptHistory` if a key is not a location.
        """
        history = cls()
        groups = history._rows
        for key, value in rows:
            try:
                root, coordinate = split_packed(key)
            except InvalidLocation as error:
                raise CorruptHistory(ROOT, error.message) from error
            group = groups.get(root)
            if group is None:
                groups[root] = [(coordinate, value)]
            else:
                group.append((coordinate, value))
        return history

    def events(self, root: Location | bytes = ROOT) -> list[tuple[Coordinate, Event]]:
        """The events directly below `root` (a location, also in packed form), in their order.

        The list belongs to the history: do not change it. Raises `CorruptHistory`.
        """
        packed = root if isinstance(root, bytes) else pack_location(root)
        events = self._events.get(packed)
        if events is not None:
            return events
        rows = self._rows.get(packed)
        if rows is None:
            return []
        location = unpack_location(packed)
        events = [(place, decode_event(value, (*location, place))) for place, value in rows]
        self._events[packed] = events
        del self._rows[packed]
        return events

    def last_branch(self, root: bytes) -> Coordinate | None:
        """The last of the places directly below `root` (packed) that have events below them."""
        if self._last is None:
            self._last = {}
            for packed in (*self._rows, *self._events):
                if packed:
                    parent, place = split_packed(packed)
                    self._last[parent] = max(place, self._last.get(parent, START))
        return self._last.get(root)
