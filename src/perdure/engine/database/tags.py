"""Tags: their canonical form, their limits, and changing them.

Tags are stored in two places, the record and one index row per tag, and change in both in one
transaction: at any moment a search by tags agrees with what the workflow says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.lease import Lease, fence
from perdure.engine.database.record import read_record, write_record
from perdure.engine.database.records import Tags
from perdure.engine.database.status import existing_status
from perdure.engine.database.steps import put_event
from perdure.engine.history.events import TagsEvent
from perdure.errors import LimitExceeded, PayloadError
from perdure.ids import Id
from perdure.kv import Transaction, transactional

__all__ = [
    "TAGS_KEPT",
    "TAG_KEY_BYTES",
    "TAG_VALUE_BYTES",
    "canonical_tags",
    "index_tags",
    "same_tag",
    "set_tags",
]

TAGS_KEPT: Final = 32
TAG_KEY_BYTES: Final = 128
TAG_VALUE_BYTES: Final = 1_024


def canonical_tags(tags: Mapping[str, str | int | bool] | None) -> Tags:
    """The tags sorted by key, once checked.

    Raises `LimitExceeded` for too many tags or a key or value that is too long (in UTF-8 bytes),
    `PayloadError` for a value of another type than str, int (of 64 bits) or bool.
    """
    if not tags:
        return {}
    if len(tags) > TAGS_KEPT:
        raise LimitExceeded("the number of tags", len(tags), TAGS_KEPT, "keep data in the input")
    for key, value in tags.items():
        _check_text(key, f"$.{key}", "the key of a tag in bytes", TAG_KEY_BYTES)
        if isinstance(value, str):
            _check_text(value, f"$.{key}", f"tag {key!r} in bytes", TAG_VALUE_BYTES)
        elif not isinstance(value, int):
            raise PayloadError(
                f"$.{key}", f"a tag is a str, an int or a bool, not a {type(value).__name__}"
            )
        elif not -(1 << 63) <= value < 1 << 63:
            raise PayloadError(f"$.{key}", "an integer tag has at most 64 bits: use a str")
    return {key: tags[key] for key in sorted(tags)}


def _check_text(text: object, path: str, what: str, limit: int) -> None:
    if not isinstance(text, str):
        raise PayloadError(path, f"the key of a tag is a str, not a {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise PayloadError(path, f"the text is not valid Unicode: {error.reason}") from error
    if size > limit:
        raise LimitExceeded(what, size, limit, "tags are for finding, keep data in the input")


def index_tags(
    tx: Transaction,
    keys: Keys,
    workflow_id: bytes,
    name: str,
    tags: Tags,
    *,
    old_open: bool | None,
    new_open: bool | None,
) -> None:
    """Move the index rows of all tags between the open and the closed list; None is nowhere."""
    for key, value in tags.items():
        if old_open is not None:
            tx.clear(keys.tagged(name, key, value, open=old_open) + workflow_id)
        if new_open is not None:
            tx.set(keys.tagged(name, key, value, open=new_open) + workflow_id, b"")


@transactional(idempotent=True)
async def set_tags(
    tx: Transaction,
    keys: Keys,
    workflow_id: Id,
    tags: Mapping[str, str | int | bool],
    lease: Lease | None = None,
    key: bytes | None = None,
    event: TagsEvent | None = None,
) -> None:
    """Replace all tags of a workflow, open or closed.

    A run passes its `lease` and, to record the step, the event and its `key` (packed location).
    Raises `WorkflowNotFound`, `LeaseLost`, and what `canonical_tags` raises.
    """
    canonical = canonical_tags(tags)
    if lease is not None:
        await fence(tx, lease)
    _, status = await existing_status(tx, keys, workflow_id)
    record = await read_record(tx, keys, workflow_id)
    is_open = not status.phase.closed
    old = {
        name: value for name, value in record.tags.items() if not same_tag(canonical, name, value)
    }
    new = {
        name: value for name, value in canonical.items() if not same_tag(record.tags, name, value)
    }
    index_tags(tx, keys, workflow_id, record.name, old, old_open=is_open, new_open=None)
    index_tags(tx, keys, workflow_id, record.name, new, old_open=None, new_open=is_open)
    await write_record(tx, keys, workflow_id, msgspec.structs.replace(record, tags=canonical))
    if lease is not None and key is not None and event is not None:
        put_event(tx, lease, key, event)


def same_tag(tags: Tags, name: str, value: str | int | bool) -> bool:
    """Whether the tag has this very value: 1 and True are equal to Python and different here."""
    return name in tags and type(tags[name]) is type(value) and tags[name] == value
