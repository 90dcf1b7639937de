"""The runner of all state machines: a machine is a table and a handful of effects.

A `Table` maps (state, event) to (next state, name of the effect). The effect is a method of the
machine; it tells the host what follows (a job for lang, a command for the server). Where the next
state depends on a choice made earlier (how to cancel, say), the choice is an event of its own, so
the table stays plain data: it is checked, drawn and counted for coverage without running it.

Ignored pairs are listed: a pair that is neither a transition nor ignored raises. For an event of
history that is a fatal error, for a command of lang it is nondeterminism.

Tables are compiled once per class to integer keys and functions: one lookup per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import NO_ANNOTATIONS, Annotations, LangCommand
from perdure.core.errors import FatalError, IllegalTransition, NondeterminismError
from perdure.core.history.events import COMMAND_EVENTS, describe as describe_event
from perdure.core.machines.host import Host

__all__ = ["Machine", "Table", "watch"]

_EVENT_BITS: Final = 6

Watcher = Callable[[str, int, int], None]
_watcher: Watcher | None = None


def watch(watcher: Watcher | None) -> None:
    """Calls `watcher(table name, state, event)` for every transition taken; None stops it.

    For tests: it tells which parts of the tables no test has reached.
    """
    global _watcher  # noqa: PLW0603 - machines are too many and too small to carry it
    _watcher = watcher


class Table:
    """The transitions of one kind of machine.

    `final` states end the machine's work: it sends no command from there. `withdrawn` states are
    final ones reached before the command was sent, so that the command must not be sent at all.
    `history` and `commands` say which event of the table an event of history (EventType), or the
    preparation of a server command (CommandType), is.
    """

    __slots__ = (
        "commands",
        "events",
        "final",
        "history",
        "ignored",
        "initial",
        "name",
        "states",
        "transitions",
        "withdrawn",
    )

    def __init__(
        self,
        name: str,
        states: type[IntEnum],
        events: type[IntEnum],
        transitions: Mapping[tuple[IntEnum, IntEnum], tuple[IntEnum, str | None]],
        *,
        initial: IntEnum,
        final: Iterable[IntEnum],
        withdrawn: Iterable[IntEnum] = (),
        ignored: Iterable[tuple[IntEnum, IntEnum]] = (),
        history: Mapping[int, IntEnum] = MappingProxyType({}),
        commands: Mapping[int, IntEnum] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.states = states
        self.events = events
        self.transitions = dict(transitions)
        self.initial = initial
        self.final = frozenset(final)
        self.withdrawn = frozenset(withdrawn)
        self.ignored = frozenset(ignored)
        self.history = dict(history)
        self.commands = dict(commands)

    def closed(self) -> frozenset[int]:
        """Final states in which no event of history can still arrive."""
        arriving = set(self.history.values())
        alive = {state for state, event in (*self.transitions, *self.ignored) if event in arriving}
        return frozenset(int(state) for state in self.final if state not in alive)


class Machine:
    """One machine. Subclasses set `table` and define its effects."""

    __slots__ = ("annotations", "host", "state")

    table: ClassVar[Table]
    has_later_events: ClassVar[bool]
    """True if events that no command caused may come for it, so it has to be found by event."""

    _compiled: ClassVar[dict[int, tuple[int, Callable[[Any, Any], None] | None]]]
    _ignored: ClassVar[frozenset[int]]
    _final: ClassVar[frozenset[int]]
    _withdrawn: ClassVar[frozenset[int]]
    _closed: ClassVar[frozenset[int]]
    _history: ClassVar[dict[int, int]]
    _commands: ClassVar[dict[int, int]]

    def __init_subclass__(cls) -> None:
        table = cls.table
        cls._compiled = {
            _key(state, event): (int(following), getattr(cls, effect) if effect else None)
            for (state, event), (following, effect) in table.transitions.items()
        }
        cls._ignored = frozenset(_key(state, event) for state, event in table.ignored)
        cls._final = frozenset(map(int, table.final))
        cls._withdrawn = frozenset(map(int, table.withdrawn))
        cls._closed = table.closed()
        cls.has_later_events = not COMMAND_EVENTS.issuperset(table.history)
        cls._history = {kind: int(event) for kind, event in table.history.items()}
        cls._commands = {kind: int(event) for kind, event in table.commands.items()}

    def __init__(self, host: Host, annotations: Annotations = NO_ANNOTATIONS) -> None:
        self.host = host
        self.annotations = annotations
        self.state = int(self.table.initial)

    # Events

    def fire(self, event: int, subject: Any = None) -> None:
        """Takes the transition for `event`, whose effect gets `subject`.

        Raises `IllegalTransition` if the table has none.
        """
        key = self.state << _EVENT_BITS | event
        found = self._compiled.get(key)
        if _watcher is not None:
            _watcher(self.table.name, self.state, event)
        if found is None:
            if key in self._ignored:
                return
            table = self.table
            raise IllegalTransition(
                self.describe(), table.states(self.state).name, table.events(event).name
            )
        self.state, effect = found
        if effect is not None:
            effect(self, subject)

    def on_history(self, event: HistoryEvent) -> None:
        """An event of history that belongs to this machine.

        Raises `NondeterminismError` for a kind of event that this machine knows nothing of, and
        `IllegalTransition` for one that cannot come now.
        """
        known = self._history.get(event.event_type)
        if known is None:
            raise NondeterminismError(
                f"history has {describe_event(event)} where the workflow's code now asks for"
                f" {self.describe()}"
            )
        self.fire(known, event)

    def on_command(self, event: int, subject: Any = None) -> None:
        """A wish of lang. Raises `NondeterminismError` when it cannot be had now."""
        try:
            self.fire(event, subject)
        except IllegalTransition as refused:
            raise NondeterminismError(
                f"a command came at the wrong time: {refused.problem}"
            ) from refused

    def on_prepared(self, command_type: int) -> None:
        """The machine's command takes its place among those that wait for their events."""
        known = self._commands.get(command_type)
        if known is not None:
            self.on_command(known)

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the thing any more. Raises `FatalError` where that cannot be said."""
        raise FatalError(f"{self.describe()} cannot be cancelled by {command.variant}")

    # What the container asks

    @property
    def is_final(self) -> bool:
        """True once the machine has nothing to send any more."""
        return self.state in self._final

    @property
    def is_withdrawn(self) -> bool:
        """True if it was cancelled before its command was sent: nobody must ever see it."""
        return self.state in self._withdrawn

    @property
    def is_closed(self) -> bool:
        """True if no event of history can reach it any more."""
        return self.state in self._closed

    def describe(self) -> str:
        """What the machine is about, for the texts of errors."""
        return self.table.name

    # For effects

    def new_command(
        self, command_type: CommandType.ValueType, annotations: Annotations | None = None
    ) -> Command:
        """A server command with these annotations, or else with the machine's own."""
        command = Command(command_type=command_type)
        (annotations if annotations is not None else self.annotations).put_on(command)
        return command


def _key(state: int, event: int) -> int:
    return int(state) << _EVENT_BITS | int(event)
