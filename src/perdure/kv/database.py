"""The handle on a store: transactions, and the loop that runs a body until it commits.

`run` is how almost everything is written. A body gets a fresh transaction, and runs again when the
store refuses it because somebody else was first. So a body must be safe to run more than once: it
changes nothing outside its transaction, and takes ids and times from outside.

Errors raised by a body pass through unchanged. They are trustworthy even though nothing was
committed: a body only ever sees states that really existed.

Bound to one event loop.
"""

from __future__ import annotations

import functools
import random as random_module
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.kv.committer import Committer
from perdure.kv.driver import Driver
from perdure.kv.errors import CommitUnknown, RetriesExhausted, Retryable
from perdure.kv.transaction import Transaction

__all__ = ["ATTEMPTS", "Database", "TransactionObserver", "transactional"]

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS: Final = 100
_BACKOFF_MS: Final = 10
_BACKOFF_DOUBLINGS: Final = 7


class TransactionObserver(Protocol):
    """Told about every transaction that `Database.run` has finished, for metrics."""

    def transaction(self, name: str, seconds: float, attempts: int, outcome: str) -> None:
        """`outcome` is "committed", or the `code` (else the class name) of the error raised."""


class Database:
    """A store, as the code above it sees it.

    `observer` may be set at any time; None means that nobody measures.
    """

    __slots__ = ("_clock", "_committer", "_driver", "_random", "_snapshot", "_submit", "observer")

    def __init__(
        self,
        driver: Driver,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: random_module.Random | None = None,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._random = random or random_module.Random()
        self._committer = Committer(driver)
        self._snapshot = driver.snapshot
        self._submit = self._committer.submit
        self.observer: TransactionObserver | None = None

    @property
    def path(self) -> Path | None:
        """The folder of the store, if it has one."""
        return self._driver.path

    @property
    def driver(self) -> Driver:
        """What the store is made of; for tests and tools."""
        return self._driver

    def transaction(self, name: str = "") -> Transaction:
        """A transaction on the newest durable state. `name` is for errors and metrics."""
        return Transaction(self._snapshot(), self._submit, self._clock, name)

    async def run(
        self,
        body: Callable[[Transaction], Awaitable[T]],
        *,
        name: str,
        idempotent: bool = False,
        attempts: int = ATTEMPTS,
    ) -> T:
        """Run `body` in a transaction, commit, and return its result.

        A refused commit (conflict, too old) runs the body again, the first time at once, then after
        10 ms doubling up to 1.28 s, with jitter. `RetriesExhausted` after `attempts` refusals.
        `CommitUnknown` is only retried when `idempotent` says that a body whose first commit did
        happen may run again on top of it.
        """
        started = self._clock.monotonic()
        outcome = "committed"
        attempt = 1
        try:
            while True:
                transaction = Transaction(self._snapshot(), self._submit, self._clock, name)
                try:
                    result = await body(transaction)
                    await transaction.commit()
                    return result
                except Retryable as error:
                    refusal: Exception = error
                except CommitUnknown as error:
                    if not idempotent:
                        raise
                    refusal = error
                if attempt >= attempts:
                    raise RetriesExhausted(name, attempt, refusal) from refusal
                if attempt > 1:
                    await self._clock.sleep(self._backoff(attempt - 2))
                attempt += 1
        except BaseException as error:
            outcome = getattr(error, "code", type(error).__name__)
            raise
        finally:
            if self.observer is not None:
                seconds = self._clock.monotonic() - started
                self.observer.transaction(name, seconds, attempt, outcome)

    def _backoff(self, doublings: int) -> float:
        """Seconds. Half to one and a half times the nominal delay, so that rivals spread out."""
        nominal: int = _BACKOFF_MS * 2 ** min(doublings, _BACKOFF_DOUBLINGS)
        return nominal * (0.5 + self._random.random()) / 1000

    async def close(self) -> None:
        """Wait for the queued commits, then close the store. Later calls raise `StoreClosed`."""
        await self._committer.close()
        await self._driver.close()


Body = Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]
Operation = Callable[Concatenate[Database | Transaction, P], Coroutine[Any, Any, T]]


@overload
def transactional(function: Body[P, T], /) -> Operation[P, T]: ...


@overload
def transactional(*, idempotent: bool) -> Callable[[Body[P, T]], Operation[P, T]]: ...


def transactional(
    function: Body[P, T] | None = None,
    /,
    *,
    idempotent: bool = False,
) -> Operation[P, T] | Callable[[Body[P, T]], Operation[P, T]]:
    """Make an async function of a transaction callable with a database too.

    With a `Database` first, it runs in a transaction of its own, named after the function and
    retried as `Database.run` does (`idempotent` as there). With a `Transaction` first, it becomes a
    part of that one.
    """
    if function is None:
        return functools.partial(_operation, idempotent=idempotent)
    return _operation(function, idempotent=idempotent)


def _operation(function: Body[P, T], *, idempotent: bool) -> Operation[P, T]:
    name = function.__name__

    @functools.wraps(function)
    def operation(
        target: Database | Transaction, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        if isinstance(target, Transaction):
            return function(target, *args, **kwargs)

        def body(transaction: Transaction) -> Coroutine[Any, Any, T]:
            return function(transaction, *args, **kwargs)

        return target.run(body, name=name, idempotent=idempotent)

    return operation
