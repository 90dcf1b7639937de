"""Control flow of a run: how workflow code stops before it is finished.

Neither is an error and neither reaches users. They derive from `BaseException`, so an
`except Exception` in workflow code cannot swallow a sleep or a lost lease.
"""

from __future__ import annotations

import asyncio

from perdure.engine.database.rows import WakeConditions

__all__ = ["RunAborted", "Suspend", "is_from_outside"]


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


def is_from_outside(error: BaseException) -> bool:
    """Say whether `error` was thrown into the current task and is no doing of the code that ran.

    Such an exception passes through untouched. Everything else that code raises is its failure,
    also `SystemExit`, and a `CancelledError` that nobody asked for: it came out of something that
    the code awaited.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)
