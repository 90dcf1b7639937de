"""Group commit: one flush for all transactions that wait.

While one batch is in the driver, new requests queue up; the next batch takes them all, up to a
bound in bytes. The busier the store, the larger the batches, so throughput grows with load while a
single transaction pays one flush.

A request is owned by the committer from `submit` on. The future it returns only carries the news:
cancelling it changes nothing about the commit. It always ends with a result, never an exception
(errors are handed over as values), so an abandoned one makes no noise.

One event loop owns this; no locks. When a batch ends in an exception that does not promise "nothing
was written", every member gets `CommitUnknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from perdure.kv.driver import CommitRequest, CommitResult, Driver, Refusal
from perdure.kv.errors import (
    CommitUnknown,
    StoreClosed,
    StoreFailed,
    StoreReadOnly,
    TransactionConflict,
    TransactionTooOld,
)
from perdure.kv.limits import TRANSACTION_SECONDS
from perdure.kv.transaction import Outcome

__all__ = ["BATCH_BYTES", "BATCH_REQUESTS", "Committer"]

BATCH_BYTES: Final = 16_000_000
BATCH_REQUESTS: Final = 4096

_Waiting = tuple[CommitRequest, "asyncio.Future[Outcome]"]


class Committer:
    """The queue in front of one driver. `submit` never waits."""

    __slots__ = ("_closed", "_driver", "_loop", "_queue", "_task")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, request: CommitRequest) -> asyncio.Future[Outcome]:
        """Queue a request. The future gives the commit or the error to raise."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        if self._closed:
            future.set_result(StoreClosed(str(self._driver.path)))
            return future
        self._queue.append((request, future))
        if self._task is None:
            # Starts one loop turn later: everybody who is ready now joins the same batch.
            self._task = loop.create_task(self._drain(), name="perdure.kv commit")
        return future

    async def close(self) -> None:
        """Refuse new requests and wait until the queued ones are decided."""
        self._closed = True
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _drain(self) -> None:
        try:
            while self._queue:
                await self._commit(self._take())
        except BaseException as error:
            # Only cancellation and simulated crashes come here, and there is no next batch.
            for request, future in self._queue:
                _tell(future, _failure(request, error))
            self._queue = []
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._task = None

    def _take(self) -> list[_Waiting]:
        queue = self._queue
        size = 0
        for count, (request, _) in enumerate(queue):
            size += request.size
            if count and (size > BATCH_BYTES or count >= BATCH_REQUESTS):
                self._queue = queue[count:]
                return queue[:count]
        self._queue = []
        return queue

    async def _commit(self, batch: list[_Waiting]) -> None:
        try:
            results: Sequence[CommitResult] = await self._driver.commit(
                [request for request, _ in batch]
            )
        except BaseException as error:
            for request, future in batch:
                _tell(future, _failure(request, error))
            if not isinstance(error, Exception):
                raise
            return
        for (request, future), result in zip(batch, results, strict=True):
            outcome = _refusal(request, result) if isinstance(result, Refusal) else result
            _tell(future, outcome)


def _tell(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)


def _refusal(request: CommitRequest, refusal: Refusal) -> Exception:
    match refusal:
        case Refusal.CONFLICT:
            return TransactionConflict(request.name)
        case Refusal.TOO_OLD:
            return TransactionTooOld(request.name, TRANSACTION_SECONDS)
        case Refusal.UNKNOWN:
            return CommitUnknown(request.name, "the store gave no answer")


def _failure(request: CommitRequest, error: BaseException) -> BaseException:
    """The error for one member of a batch that ended in `error`; each raises its own copy."""
    match error:
        case StoreFailed():
            own: BaseException = StoreFailed(error.path, error.reason)
        case StoreClosed():
            own = StoreClosed(error.path)
        case StoreReadOnly():
            own = StoreReadOnly(error.path)
        case asyncio.CancelledError():
            own = CommitUnknown(request.name, "the event loop is shutting down")
        case Exception():
            own = CommitUnknown(request.name, f"{type(error).__name__}: {error}")
        case _:
            return error
    own.__cause__ = error
    return own
