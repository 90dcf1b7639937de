"""Counters of workflows by phase and name, and of pending signals by signal name.

Every change of phase goes through `move`, in the transaction that makes the change, so the
counters cannot drift from what a recount would give. They are atomic additions: counting never
makes two transactions conflict.

Counters are keyed by names only. The text of an error is never part of a key.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import Phase
from perdure.kv import Transaction, transactional
from perdure.kv.tuple import unpack

__all__ = ["Gauges", "gauges", "move", "pending_signals"]

_PENDING_SIGNALS = 16


class Gauges(msgspec.Struct, frozen=True):
    """All counters at one moment; ones that are zero may be missing.

    `workflows` maps a workflow name to counts by phase in lower case (`"sleeping"`, `"dead"`, ...),
    `signals` maps a signal name to the number of pending ones.
    """

    workflows: dict[str, dict[str, int]]
    signals: dict[str, int]


@lru_cache(maxsize=8192)
def _key(keys: Keys, kind: int, name: str) -> bytes:
    return keys.gauge(kind, name)


def move(
    tx: Transaction, keys: Keys, name: str, old: Phase | None, new: Phase | None, count: int = 1
) -> None:
    """Count `count` workflows called `name` as being in `new` and no longer in `old`.

    None stands for not existing: before the dispatch, or after the deletion.
    """
    if old is not None:
        tx.add(_key(keys, old, name), -count)
    if new is not None:
        tx.add(_key(keys, new, name), count)


def pending_signals(tx: Transaction, keys: Keys, signal_name: str, count: int) -> None:
    """Count `count` more (or, if negative, fewer) pending signals of one name."""
    tx.add(_key(keys, _PENDING_SIGNALS, signal_name), count)


@transactional
async def gauges(tx: Transaction, keys: Keys) -> Gauges:
    """Read all counters."""
    prefix = keys.gauges()
    found = Gauges({}, {})
    for key, value in await tx.get_range(prefix, prefix + b"\xff", snapshot=True):
        kind, name = unpack(key, len(prefix))
        count = int.from_bytes(value, "little", signed=True)
        if kind == _PENDING_SIGNALS:
            found.signals[str(name)] = count
        else:
            phase = Phase(int(str(kind)))
            found.workflows.setdefault(str(name), {})[phase.name.lower()] = count
    return found
