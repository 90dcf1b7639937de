"""The history of the task at hand, on its way into the machines of the run.

Knows how far history may be applied before lang has to be asked, and where more of it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.history.paginator import HistoryPaginator, PageRequest
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.run.workflow_machines import Step, WorkflowMachines
from perdure.core.workflow_tasks.completion import Succeeded, in_order
from perdure.core.workflow_tasks.task import HeldTask

__all__ = ["RunHistory"]


class RunHistory:
    """See the module. Whatever touches the machines raises their errors."""

    __slots__ = ("_machines", "_pages")

    def __init__(self, machines: WorkflowMachines) -> None:
        self._machines = machines
        self._pages: HistoryPaginator | None = None

    def begin(self, task: HeldTask) -> bool:
        """Apply the first sequences of a new task; False when a page is missing for that."""
        self._pages = task.pages
        self._machines.new_history(task.history, task.work.messages)
        return self._apply(once=True)

    def carry_out(self, done: Succeeded, update: HistoryUpdate | None) -> bool:
        """Apply lang's answer, and what `update` brings; False when a page is missing."""
        machines = self._machines
        machines.record_lang_flags(done.used_flags)
        keep = machines.keeps_commands_after_terminal()
        machines.iterate(in_order(done.commands, keep_after_terminal=keep))
        if update is not None:
            machines.add_fetched(update)
        return self._apply(once=False)

    def go_on(self, update: HistoryUpdate) -> bool:
        """Apply what was missing; False when yet another page is."""
        self._machines.add_fetched(update)
        return self._apply(once=True)

    def feed(self, events: Sequence[HistoryEvent], next_page_token: bytes) -> None:
        """The page that was asked for."""
        assert self._pages is not None
        self._pages.feed(events, next_page_token)

    def next_update(self) -> HistoryUpdate | PageRequest:
        """More history, or what to fetch for it. Raises `BrokenPages`."""
        assert self._pages is not None
        return self._pages.next_update()

    def _apply(self, *, once: bool) -> bool:
        """Apply history until there is something for lang; False when a page is missing.

        `once` applies one sequence in any case; the others are only replayed.
        """
        machines = self._machines
        while once or (machines.replaying and not machines.has_jobs):
            once = False
            step = machines.apply_next_sequence()
            if step is Step.NEED_FETCH:
                return False
            if step is Step.OVER:
                break
        return True
