"""Looking at workflows: lists, descriptions, histories. Snapshot reads, for people and tools.

A list is read from the index that fits its filter: the state index for dead, cancelled,
terminated and silenced workflows, the tag lists if tags are given, and the lists by creation time
otherwise. What the index cannot decide is checked against each workflow, a bounded number of
them per call; a page may therefore hold fewer workflows than asked for and still have a next one.
"""

from __future__ import annotations

import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.engine.database.find import first_tagged, tag_lists
from perdure.engine.database.gauges import gauges
from perdure.engine.database.keys import SILENCED_INDEX, Keys, packed_integer
from perdure.engine.database.record import read_record
from perdure.engine.database.results import read_failure
from perdure.engine.database.rows import (
    CancelRequest,
    Phase,
    Status,
    WorkflowRecord,
    decode,
)
from perdure.engine.database.status import existing_status, read_status
from perdure.engine.errors import CorruptRecord
from perdure.engine.history.failure import Failure
from perdure.engine.tags import Tags, canonical_tags, same_tag
from perdure.errors import CallerError
from perdure.ids import Id, InvalidId
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import join_rows, read_value
from perdure.kv.errors import CorruptValue

__all__ = [
    "STATES",
    "Description",
    "InvalidPage",
    "InvalidState",
    "ListFilter",
    "Page",
    "Values",
    "describe",
    "history_rows",
    "list_workflows",
    "names",
    "pending_counts",
    "values",
]

_LOOKED_AT_ONCE: Final = 2_000
"""Most workflows that one page looks at to find those that match."""

_OPEN_STATES: Final = frozenset({"open", "sleeping", "running", "silenced"})
_INDEXED: Final = {
    "dead": int(Phase.DEAD),
    "cancelled": int(Phase.CANCELLED),
    "terminated": int(Phase.TERMINATED),
    "silenced": SILENCED_INDEX,
}
STATES: Final = (
    "open",
    "closed",
    "sleeping",
    "running",
    "silenced",
    "complete",
    "dead",
    "cancelled",
    "terminated",
)
"""What a list can be filtered by. `sleeping` leaves out silenced ones; `open` and `closed` are
sums.
"""


class InvalidState(CallerError):
    """A list was asked for a state that does not exist."""

    code = "engine.invalid_state"

    def __init__(self, state: str) -> None:
        super().__init__(f"{state!r} is not a state of a workflow: use one of {', '.join(STATES)}")
        self.state = state


class InvalidPage(CallerError):
    """The text given as the next page of a list is not one that a list gave out."""

    code = "engine.invalid_page"

    def __init__(self, page: str) -> None:
        super().__init__(f"{page!r} does not continue this list: start again without a page")
        self.page = page


class ListFilter(msgspec.Struct, frozen=True):
    """Which workflows to list; what is not given does not matter.

    Times are ms: created at or after `created_after`, and before `created_before`.
    """

    state: str | None = None
    name: str | None = None
    tags: Tags = {}
    created_after: int | None = None
    created_before: int | None = None


class Description(msgspec.Struct, frozen=True):
    """A workflow as it is stored. `record.input` may be missing here: see `values`."""

    id: Id
    record: WorkflowRecord
    status: Status
    failure: Failure | None
    cancel: CancelRequest | None
    pruned_at: int | None

    @property
    def state(self) -> str:
        """The phase in lower case, or `silenced`."""
        return state_of(self.status)


class Page(msgspec.Struct, frozen=True):
    """Some workflows, the newest first; with tags in the filter, in order of id. `next_page` asks
    for those after them."""

    workflows: list[Description]
    next_page: str | None


class Values(msgspec.Struct, frozen=True):
    """The payloads of a workflow, as stored."""

    input: bytes | None
    state: bytes | None
    output: bytes | None


class _Position(msgspec.Struct, array_like=True):
    """Where a list goes on: behind the workflow with this time (or group of tag lists) and id."""

    at: int
    id: bytes


def state_of(status: Status) -> str:
    """The word for what a workflow is doing."""
    return "silenced" if status.silenced_at is not None else status.phase.name.lower()


@transactional
async def describe(tx: Transaction, keys: Keys, ids: Iterable[Id]) -> list[Description | None]:
    """What is stored about each of these workflows; None for those that do not exist."""
    return [await _describe(tx, keys, workflow_id) for workflow_id in ids]


async def _describe(tx: Transaction, keys: Keys, workflow_id: Id) -> Description | None:
    found = await read_status(tx, keys, workflow_id, snapshot=True)
    if found is None:
        return None
    status = found[1]
    cancel = await tx.get(keys.cancel(workflow_id), snapshot=True)
    closed = status.phase.closed
    pruned = await tx.get(keys.pruned(workflow_id), snapshot=True) if closed else None
    try:
        return Description(
            workflow_id,
            await read_record(tx, keys, workflow_id, snapshot=True),
            status,
            await read_failure(tx, keys, workflow_id, snapshot=True) if closed else None,
            None if cancel is None else decode.cancel_request(cancel[1:]),
            None if pruned is None else int.from_bytes(pruned, "big"),
        )
    except (msgspec.MsgspecError, InvalidId) as error:
        raise CorruptRecord(workflow_id, "cancel request", str(error)) from error


@transactional
async def list_workflows(
    tx: Transaction, keys: Keys, wanted: ListFilter, limit: int, page: str | None = None
) -> Page:
    """List workflows. Raises `InvalidState`, `InvalidPage`, and what `canonical_tags` raises.

    A workflow whose record cannot be read is left out: `describe` says what is wrong with it.
    """
    if wanted.state is not None and wanted.state not in STATES:
        raise InvalidState(wanted.state)
    wanted = msgspec.structs.replace(wanted, tags=canonical_tags(wanted.tags))
    position = None if page is None else _position(page)
    searched = [wanted.name] if wanted.name is not None else await names(tx, keys)
    found: list[Description] = []
    looked_at = 0
    while looked_at < _LOOKED_AT_ONCE:
        if wanted.tags:
            batch = await _tagged_batch(tx, keys, wanted, searched, position, limit)
        else:
            batch = await _timed_batch(tx, keys, wanted, searched, position, limit)
        for position in batch:
            looked_at += 1
            description = await _readable(tx, keys, Id(position.id))
            if description is not None and _matches(wanted, description):
                found.append(description)
                if len(found) == limit:
                    return Page(found, _page(position))
        if len(batch) < limit:
            return Page(found, None)
    assert position is not None
    return Page(found, _page(position))


async def _readable(tx: Transaction, keys: Keys, workflow_id: Id) -> Description | None:
    try:
        return await _describe(tx, keys, workflow_id)
    except CorruptRecord:
        return None


def _matches(wanted: ListFilter, found: Description) -> bool:
    record, state = found.record, found.state
    if wanted.state is not None and wanted.state != state:
        is_open = not found.status.phase.closed
        if not ((wanted.state == "open" and is_open) or (wanted.state == "closed" and not is_open)):
            return False
    if wanted.created_after is not None and record.created_at < wanted.created_after:
        return False
    if wanted.created_before is not None and record.created_at >= wanted.created_before:
        return False
    return all(same_tag(record.tags, key, value) for key, value in wanted.tags.items())


async def _timed_batch(
    tx: Transaction,
    keys: Keys,
    wanted: ListFilter,
    searched: list[str],
    position: _Position | None,
    limit: int,
) -> list[_Position]:
    """The next workflows of the indexes that are sorted by a time, newest first."""
    columns: list[list[_Position]] = []
    for prefix in _timed_prefixes(keys, wanted, searched):
        end = prefix + b"\xff"
        if position is not None:
            end = prefix + packed_integer(position.at) + b"\x40" + position.id
        elif wanted.created_before is not None and wanted.state not in _INDEXED:
            end = prefix + packed_integer(wanted.created_before)
        begin = prefix
        if wanted.created_after is not None:
            # Nothing changes before it is created, so this also bounds the index by change.
            begin = prefix + packed_integer(wanted.created_after)
        if begin < end:
            rows = await tx.get_range(begin, end, limit=limit, reverse=True, snapshot=True)
            columns.append([_timed(key, len(prefix)) for key, _ in rows])
    merged = heapq.merge(*columns, key=_newest_first, reverse=True)
    return [position for position, _ in zip(merged, range(limit), strict=False)]


def _timed_prefixes(keys: Keys, wanted: ListFilter, searched: list[str]) -> list[bytes]:
    state = wanted.state
    if state in _INDEXED:
        return [keys.indexed(_INDEXED[state], name) for name in searched]
    prefixes: list[bytes] = []
    if state is None or state in _OPEN_STATES:
        prefixes += [keys.opened(name) for name in searched]
    if state is None or state not in _OPEN_STATES:
        prefixes += [keys.closed(name) for name in searched]
    return prefixes


def _timed(key: bytes, start: int) -> _Position:
    at = key[start + 1 : -Id.SIZE - 1]
    return _Position(int.from_bytes(at, "big"), key[-Id.SIZE :])


def _newest_first(position: _Position) -> tuple[int, bytes]:
    return position.at, position.id


async def _tagged_batch(
    tx: Transaction,
    keys: Keys,
    wanted: ListFilter,
    searched: list[str],
    position: _Position | None,
    limit: int,
) -> list[_Position]:
    """The next workflows of the tag lists; there is a group of lists per name, open and closed."""
    state = wanted.state
    groups = [
        tag_lists(keys, name, wanted.tags, open_=is_open)
        for name in searched
        for is_open in (True, False)
        if state is None or (state in _OPEN_STATES) is is_open
    ]
    batch: list[_Position] = []
    group = 0 if position is None else position.at
    start = b"" if position is None else position.id + b"\x00"
    while group < len(groups) and len(batch) < limit:
        workflow_id = await first_tagged(tx, groups[group], start, snapshot=True)
        if workflow_id is None:
            group, start = group + 1, b""
        else:
            batch.append(_Position(group, bytes(workflow_id)))
            start = workflow_id + b"\x00"
    return batch


_page_decoder = msgspec.msgpack.Decoder(_Position)


def _page(position: _Position) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(position)).decode()


def _position(page: str) -> _Position:
    try:
        position = _page_decoder.decode(urlsafe_b64decode(page))
        Id(position.id)
    except (ValueError, InvalidId) as error:
        raise InvalidPage(page) from error
    return position


@transactional
async def names(tx: Transaction, keys: Keys) -> list[str]:
    """The names of all workflows that were ever dispatched, sorted."""
    return sorted((await gauges(tx, keys)).workflows)


@transactional
async def values(tx: Transaction, keys: Keys, workflow_id: Id) -> Values:
    """Input, state and output of a workflow. Raises `WorkflowNotFound`, `CorruptRecord`."""
    await existing_status(tx, keys, workflow_id)
    record = await read_record(tx, keys, workflow_id, snapshot=True)
    try:
        payload = record.input
        if record.input_apart:
            payload = await read_value(tx, keys.input(workflow_id), snapshot=True)
        return Values(
            payload,
            await read_value(tx, keys.state(workflow_id), snapshot=True),
            await read_value(tx, keys.output(workflow_id), snapshot=True),
        )
    except CorruptValue as error:
        raise CorruptRecord(workflow_id, "input, state or output", str(error)) from error


@transactional
async def pending_counts(tx: Transaction, keys: Keys, workflow_id: Id) -> dict[str, int]:
    """How many signals of each name are pending for one workflow."""
    prefix = keys.signals(workflow_id)
    counts: dict[str, int] = {}
    for _, row in await tx.get_range(prefix, prefix + b"\xff", snapshot=True):
        name = decode.pending_signal(row[1:]).name
        counts[name] = counts.get(name, 0) + 1
    return counts


@transactional
async def history_rows(
    tx: Transaction, keys: Keys, workflow_id: Id, *, forgotten: bool = False
) -> list[tuple[bytes, bytes]]:
    """The rows of the active or the forgotten history: packed location and encoded event.

    In order of location. Raises `WorkflowNotFound`, and `CorruptRecord` if chunks are missing.
    """
    await existing_status(tx, keys, workflow_id)
    prefix = keys.forgotten(workflow_id) if forgotten else keys.history(workflow_id)
    rows = await tx.get_range(prefix, prefix + b"\xff", snapshot=True)
    try:
        return [(key[len(prefix) :], value) for key, value in join_rows(rows)]
    except CorruptValue as error:
        raise CorruptRecord(workflow_id, "history", str(error)) from error
