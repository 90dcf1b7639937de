"""The local activities of one run: requests for the manager, and results that history holds.

Live, each result reaches lang in an activation of its own, and the marker says how many
activations lang had had in the task by then (`activation_index`). A replay reads the markers one
sequence ahead and gives the results out in the same order and no earlier, so that lang's code
takes the same way again. Markers of older cores have no index: their results go out at once, as
those cores did.
"""

from __future__ import annotations

from collections import deque

from perdure.core.local_activities.requests import (
    LocalActivityCancel,
    LocalActivityRequest,
    LocalRequest,
)
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.local_marker import LocalMarker
from perdure.core.run_info import RunInfo

__all__ = ["LocalTracking"]


class LocalTracking:
    """What the container knows about local activities beyond their machines."""

    __slots__ = ("_known", "_outstanding", "_requests", "_run", "_waiting", "activation_index")

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._known: deque[LocalMarker] = deque()
        self._requests: dict[tuple[type, int], LocalRequest] = {}
        self._outstanding: set[int] = set()
        self._waiting: dict[int, LocalActivityMachine] = {}
        self.activation_index = 0

    @property
    def outstanding(self) -> int:
        """How many results the workflow task waits for."""
        return len(self._outstanding)

    # The manager

    def request(self, machine: LocalActivityMachine) -> None:
        self._outstanding.add(machine.seq)
        request = LocalActivityRequest(self._run, machine.body)
        self._requests[LocalActivityRequest, machine.seq] = request

    def withdraw(self, seq: int) -> bool:
        """Takes back a request that was not drained yet; False if there is none."""
        return self._requests.pop((LocalActivityRequest, seq), None) is not None

    def cancel(self, seq: int) -> None:
        self._requests[LocalActivityCancel, seq] = LocalActivityCancel(self._run.run_id, seq)

    def is_over(self, seq: int) -> None:
        """Nobody waits for the manager's result any more, if it ever comes."""
        self._outstanding.discard(seq)

    def end(self) -> None:
        """The workflow ends: nothing is wanted any more."""
        for seq in sorted(self._outstanding):
            if not self.withdraw(seq):
                self.cancel(seq)
        self._outstanding.clear()

    def drain(self) -> list[LocalRequest]:
        requests, self._requests = list(self._requests.values()), {}
        return requests

    def is_outstanding(self, seq: int) -> bool:
        """True if somebody waits for the manager's result."""
        return seq in self._outstanding

    # History

    def seen_ahead(self, marker: LocalMarker) -> None:
        """A marker of the next sequence."""
        self._known.append(marker)

    def wait(self, machine: LocalActivityMachine) -> None:
        """Its result comes from history, or it has none yet."""
        self._waiting[machine.seq] = machine

    def live_task_started(self) -> None:
        """No results will come from history for what still waits."""
        waiting, self._waiting = self._waiting, {}
        for machine in waiting.values():
            machine.live_task_started()

    def release(self, *, nothing_else: bool) -> None:
        """Gives out the results whose turn has come.

        `nothing_else`: lang has nothing else to do, so waiting longer would be waiting for ever;
        then one result goes out in any case.
        """
        known = self._known
        while known:
            marker = known[0]
            machine = self._waiting.get(marker.seq)
            if machine is None:
                return
            index = marker.activation_index
            if index is not None and index > self.activation_index and not nothing_else:
                return
            known.popleft()
            del self._waiting[marker.seq]
            nothing_else = False
            machine.handle_known(marker)
