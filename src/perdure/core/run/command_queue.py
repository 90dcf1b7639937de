"""The server commands of one run, from lang's wish to the event that confirms them.

New commands wait until lang's completion is complete; then they take their places behind those
that wait for their events already (`prepare`). Events are matched with the front of the queue: if
lang does the same as before, every event meets the command that caused it. A command leaves only
when its event is seen, so what waits is exactly what the server has not confirmed.

Patches may come and go in code, within limits, so their markers and commands may be missing on
either side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.errors import NondeterminismError
from perdure.core.evidence import CallSite, note_code
from perdure.core.history.events import describe
from perdure.core.machines.machine import Machine
from perdure.core.machines.patch import PatchMachine, read_patch_marker
from perdure.core.run.patches import is_patch_upsert, marker_is_skipped

__all__ = ["CommandQueue"]


class _Queued:
    """A command; it is built only when it is sent."""

    __slots__ = ("build", "command_type", "machine", "site")

    def __init__(
        self,
        machine: Machine,
        command_type: int,
        build: Callable[[], Command],
        site: CallSite | None,
    ) -> None:
        self.machine = machine
        self.command_type = command_type
        self.build = build
        self.site = site


class CommandQueue:
    """New commands, and those that wait for their events.

    `site` is where the code stands that asks for commands just now.
    """

    __slots__ = ("_last", "_new", "_prepared", "_skipped_event_id", "site")

    def __init__(self) -> None:
        self._new: deque[_Queued] = deque()
        self._prepared: deque[_Queued] = deque()
        self._skipped_event_id = 0
        self._last: _Queued | None = None
        self.site: CallSite | None = None

    def add(self, machine: Machine, command_type: int, build: Callable[[], Command]) -> None:
        """A new command of the machine."""
        self._new.append(_Queued(machine, command_type, build, self.site))

    def prepare(self) -> None:
        """Moves the new commands behind those that wait already, without withdrawn ones.

        What is withdrawn later stays until it comes to the front, and is not sent.
        """
        new = self._new
        while new:
            queued = new.popleft()
            if not queued.machine.is_withdrawn:
                queued.machine.on_prepared(queued.command_type)
                self._prepared.append(queued)

    def outgoing(self) -> list[Command]:
        """The commands that the server has not confirmed yet, in order."""
        return [queued.build() for queued in self._prepared if not queued.machine.is_final]

    def match(self, event: HistoryEvent, following: HistoryEvent | None) -> Machine | None:
        """The machine whose command caused the event; it leaves the queue.

        None if the event is about a patch that the code has lost, which may be. Raises
        `NondeterminismError` if the code did nothing that could have caused the event.
        """
        if event.event_id == self._skipped_event_id:
            return None
        machine = self._front()
        marker = read_patch_marker(event)
        if marker is not None and marker_is_skipped(marker, event, machine):
            if following is not None and is_patch_upsert(following):
                self._skipped_event_id = following.event_id
            return None
        while marker is None and isinstance(machine, PatchMachine):
            self._prepared.popleft()
            machine = self._front()
        if machine is None:
            error = NondeterminismError(
                f"No command scheduled for event {describe(event)}: the workflow's code did"
                " nothing at this point of its history that could have caused it"
            )
            self._tell(error, is_last=True)
            raise error
        self._last = self._prepared.popleft()
        return machine

    def blame_last(self, error: NondeterminismError) -> None:
        """Say in the error which command met its event last, and which line asked for it."""
        self._tell(error, is_last=False)

    def _tell(self, error: NondeterminismError, *, is_last: bool) -> None:
        last = self._last
        if last is None:
            note_code(error, None, None, is_last=is_last)
        else:
            note_code(error, last.machine.describe(), last.site, is_last=is_last)

    def _front(self) -> Machine | None:
        """Whose command comes next. Withdrawn ones are dropped on the way."""
        prepared = self._prepared
        while prepared:
            machine = prepared[0].machine
            if not machine.is_withdrawn:
                return machine
            prepared.popleft()
        return None
