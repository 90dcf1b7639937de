"""Finding open workflows by name and tags.

The rows of one tag are sorted by workflow id, so workflows with several tags are found by walking
the lists of the tags together: each list is asked for its first id not below the candidate, until
all agree. The work depends on the rarest tag, not on the first one.

A serializable search conflicts with exactly those dispatches that would change its answer: the
gaps it reads cover every id that could have come up before its result. `dispatch` builds
uniqueness on that.
"""

from __future__ import annotations

from perdure.engine.database.keys import Keys
from perdure.engine.tags import Tags
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = ["find", "first_tagged", "tag_lists"]


@transactional
async def find(tx: Transaction, keys: Keys, name: str, tags: Tags) -> Id | None:
    """An open workflow called `name` with at least these tags; without tags, the oldest one.

    Of several, the one with the lowest id. Dead workflows are not open.
    """
    if not tags:
        prefix = keys.opened(name)
        rows = await tx.get_range(prefix, prefix + b"\xff", limit=1)
        return Id(rows[0][0][-Id.SIZE :]) if rows else None
    return await first_tagged(tx, tag_lists(keys, name, tags, open_=True))


def tag_lists(keys: Keys, name: str, tags: Tags, *, open_: bool) -> list[bytes]:
    """The prefixes of the lists of ids that `first_tagged` walks."""
    return [keys.tagged(name, key, value, open=open_) for key, value in tags.items()]


async def first_tagged(
    tx: Transaction, lists: list[bytes], start: bytes = b"", *, snapshot: bool = False
) -> Id | None:
    """The first id at or after `start` that is in all of the lists."""
    candidate, agreed, turn = start, 0, 0
    while agreed < len(lists):
        prefix = lists[turn]
        turn = (turn + 1) % len(lists)
        rows = await tx.get_range(prefix + candidate, prefix + b"\xff", limit=1, snapshot=snapshot)
        if not rows:
            return None
        found = rows[0][0][len(prefix) :]
        agreed = agreed + 1 if found == candidate else 1
        candidate = found
    return Id(candidate)
