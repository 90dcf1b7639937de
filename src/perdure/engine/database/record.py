"""Reading and writing the record row and, of a large input, its own row."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import WorkflowRecord, decode, encode
from perdure.engine.errors import CorruptRecord
from perdure.ids import Id, InvalidId
from perdure.kv import Transaction
from perdure.kv.chunks import read_value, replace_value, write_value
from perdure.kv.errors import CorruptValue

__all__ = ["INPUT_INLINE", "add_record", "read_record", "write_record"]

INPUT_INLINE: Final = 2_048
"""Inputs up to this many bytes are in the record, larger ones in a row of their own."""


def add_record(tx: Transaction, keys: Keys, workflow_id: bytes, record: WorkflowRecord) -> None:
    """Write the record of a new workflow; `record.input` is given whole."""
    payload = record.input
    if payload is not None and len(payload) > INPUT_INLINE:
        record = msgspec.structs.replace(record, input=None, input_apart=True)
        write_value(tx, keys.input(workflow_id), payload, fresh=True)
    write_value(tx, keys.record(workflow_id), encode(record), fresh=True)


async def write_record(
    tx: Transaction, keys: Keys, workflow_id: bytes, record: WorkflowRecord
) -> None:
    """Replace the record row, in the form in which `read_record` gave it."""
    await replace_value(tx, keys.record(workflow_id), encode(record))


async def read_record(
    tx: Transaction, keys: Keys, workflow_id: bytes, *, snapshot: bool = False
) -> WorkflowRecord:
    """The record as stored: an input in a row of its own is not read.

    Serializable unless `snapshot`. Raises `CorruptRecord`, also if it is missing: call this
    only for a workflow that has a status.
    """
    key = keys.record(workflow_id)
    try:
        value = await read_value(tx, key, snapshot=snapshot)
        if value is None:
            raise CorruptRecord(Id(workflow_id), "record", "it is missing")
        return decode.record(value)
    except (msgspec.MsgspecError, InvalidId, CorruptValue) as error:
        raise CorruptRecord(Id(workflow_id), "record", str(error)) from error
