"""Which recorded failures a run died of, so that reviving the workflow can undo them.

A failure is recorded like any other outcome, and a replay raises it again. That is right while the
code deals with it, and would make reviving useless when it does not: the workflow would die again
of the same record. So a death stores the places of the failures after which the code took no
further step, in their branch or around it, in this run or an earlier one. Reviving removes those
events, and the steps run anew. A failure that was followed by a step was dealt with; undoing it
would turn what came after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.engine.context.branch import Branch

__all__ = ["LastFailures"]


class _Noted:
    __slots__ = ("key", "line")

    def __init__(self, branch: Branch, key: bytes) -> None:
        self.key = key
        self.line: list[tuple[Branch, int]] = []
        around: Branch | None = branch
        while around is not None:
            self.line.append((around, around.entered))
            around = around.parent

    @property
    def last(self) -> bool:
        return all(
            branch.entered == entered and branch.cursor.peek() is None
            for branch, entered in self.line
        )


class LastFailures:
    """The failures of one run that no step has followed so far."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: list[_Noted] = []

    def note(self, branch: Branch, key: bytes) -> None:
        """The latest step of `branch` raises the failure that is recorded at `key`."""
        self._noted = [noted for noted in self._noted if noted.last]
        self._noted.append(_Noted(branch, key))

    def places(self) -> list[bytes]:
        """Packed locations of their events."""
        return [noted.key for noted in self._noted if noted.last]
