"""What can go wrong in the store, split by whose fault it is.

The caller's: sizes, reserved keys, a transaction used after its end. The world's: conflicts, old
snapshots, failed or busy stores. `Database.run` retries exactly the `Retryable` ones, and
`CommitUnknown` only where the body was declared idempotent.
"""

from __future__ import annotations

from perdure.errors import CallerError, LimitExceeded, WorldError

__all__ = [
    "CommitUnknown",
    "CorruptValue",
    "InvalidRange",
    "InvalidStoreUrl",
    "KeyTooLarge",
    "ReservedKey",
    "RetriesExhausted",
    "Retryable",
    "StoreClosed",
    "StoreFailed",
    "StoreInUse",
    "StoreReadOnly",
    "TransactionClosed",
    "TransactionConflict",
    "TransactionTooLarge",
    "TransactionTooOld",
    "ValueTooLarge",
    "VersionstampUnknown",
]


def _shown(key: bytes) -> str:
    return repr(key) if len(key) <= 60 else f"{key[:60]!r}... ({len(key):,} bytes)"


class KeyTooLarge(LimitExceeded):
    """A key is longer than the store accepts. Sizes in bytes."""

    code = "kv.key_too_large"

    def __init__(self, key: bytes, size: int, limit: int) -> None:
        super().__init__(
            f"key {_shown(key)} in bytes",
            size,
            limit,
            "put long data in the value, a hash in the key",
        )
        self.key = key


class ValueTooLarge(LimitExceeded):
    """A value is longer than the store accepts. Sizes in bytes."""

    code = "kv.value_too_large"

    def __init__(self, key: bytes, size: int, limit: int) -> None:
        super().__init__(
            f"value of key {_shown(key)} in bytes", size, limit, "store it with chunks.write_value"
        )
        self.key = key


class TransactionTooLarge(LimitExceeded):
    """The writes of one transaction add up to more than the store accepts. Sizes in bytes."""

    code = "kv.transaction_too_large"

    def __init__(self, name: str, size: int, limit: int) -> None:
        super().__init__(
            f"writes of transaction {name!r} in bytes", size, limit, "split it into several"
        )
        self.name = name


class ReservedKey(CallerError):
    """A key lies in the part of the key space that belongs to the drivers."""

    code = "kv.reserved_key"

    def __init__(self, key: bytes) -> None:
        super().__init__(f"key {_shown(key)} is reserved: keys must sort before b'\\xff'")
        self.key = key


class InvalidRange(CallerError):
    """A range or its limit makes no sense."""

    code = "kv.invalid_range"

    def __init__(self, begin: bytes, end: bytes, problem: str) -> None:
        super().__init__(f"range [{_shown(begin)}, {_shown(end)}) is not valid: {problem}")
        self.begin = begin
        self.end = end
        self.problem = problem


class InvalidStoreUrl(CallerError):
    """The address of a store is not one that `open_database` understands."""

    code = "kv.invalid_store_url"

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} is no store: use 'memory:', 'rocksdb:PATH' or a plain path")
        self.url = url


class TransactionClosed(CallerError):
    """A transaction was used after its commit began."""

    code = "kv.transaction_closed"

    def __init__(self, name: str) -> None:
        super().__init__(f"transaction {name!r} has ended: start a new one")
        self.name = name


class VersionstampUnknown(CallerError):
    """Something depends on a versionstamp that is only given at commit."""

    code = "kv.versionstamp_unknown"

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"transaction {name!r}: {what} depends on a versionstamp, which only a commit gives"
        )
        self.name = name
        self.what = what


class StoreReadOnly(CallerError):
    """A write was tried on a store opened for reading."""

    code = "kv.store_read_only"

    def __init__(self, path: str) -> None:
        super().__init__(f"store {path} was opened read-only: open it with open_database to write")
        self.path = path


class Retryable(WorldError):
    """Nothing was written, and a new transaction may succeed at once."""

    code = "kv.retryable"


class TransactionConflict(Retryable):
    """Something this transaction read was changed by another one that committed first."""

    code = "kv.transaction_conflict"

    def __init__(self, name: str) -> None:
        super().__init__(f"transaction {name!r} conflicts with an earlier commit: run it again")
        self.name = name


class TransactionTooOld(Retryable):
    """The snapshot of this transaction is older than the store can check. Limit in seconds."""

    code = "kv.transaction_too_old"

    def __init__(self, name: str, limit: float) -> None:
        super().__init__(
            f"transaction {name!r} is older than {limit:g} s: run it again, and do less in one"
        )
        self.name = name
        self.limit = limit


class CommitUnknown(WorldError):
    """The commit may or may not have happened: read before doing it again."""

    code = "kv.commit_unknown"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"transaction {name!r} may or may not have committed ({reason}): read before repeating"
        )
        self.name = name
        self.reason = reason


class RetriesExhausted(WorldError):
    """A transaction was refused as often as the caller allowed; `last` is the final refusal."""

    code = "kv.retries_exhausted"

    def __init__(self, name: str, attempts: int, last: BaseException) -> None:
        super().__init__(f"transaction {name!r} was refused {attempts} times, at last: {last}")
        self.name = name
        self.attempts = attempts
        self.last = last


class StoreFailed(WorldError):
    """The store cannot read or write any more; what was asked for has not happened."""

    code = "kv.store_failed"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"store {path} failed ({reason}): open it again once the cause is gone")
        self.path = path
        self.reason = reason


class StoreClosed(WorldError):
    """The store was closed before this was asked for."""

    code = "kv.store_closed"

    def __init__(self, path: str) -> None:
        super().__init__(f"store {path} is closed: open it again")
        self.path = path


class StoreInUse(WorldError):
    """Another process (or another handle in this one) owns the store."""

    code = "kv.store_in_use"

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"store {path} is in use by {holder}: stop that process, or open it with open_readonly"
        )
        self.path = path
        self.holder = holder


class CorruptValue(WorldError):
    """Stored bytes are not what the library writes."""

    code = "kv.corrupt_value"

    def __init__(self, key: bytes, problem: str) -> None:
        super().__init__(f"value of key {_shown(key)} is damaged: {problem}")
        self.key = key
        self.problem = problem
