"""Control flow of a run: how workflow code stops before it is finished.

Neither is an error and neither reaches users. They derive from `BaseException`, so an
`except Exception` in workflow code cannot swallow a sleep or a lost lease.
"""

from __future__ import annotations

from perdure.engine.database.records import WakeConditions

__all__ = ["RunAborted", "Suspend"]


class Suspend(BaseException):
    """The run stops here and is replayed when one of its wake conditions comes true."""

    def __init__(self, wake: WakeConditions, reason: str) -> None:
        super().__init__(reason)
        self.wake = wake
        self.reason = reason


class RunAborted(BaseException):
    """The run cannot go on in this process: its lease is gone, or the store refused a commit.

    `cause` says why. Nothing is known about the last commit; the next run reads the truth.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
