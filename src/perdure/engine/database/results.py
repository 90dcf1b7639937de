"""How a workflow ended: its output and its failure."""

from __future__ import annotations

import msgspec

from perdure.engine.database.keys import Keys
from perdure.engine.database.rows import Phase
from perdure.engine.database.status import existing_status
from perdure.engine.errors import CorruptRecord
from perdure.engine.history.failure import Failure
from perdure.ids import Id
from perdure.kv import Transaction, transactional
from perdure.kv.chunks import read_value, write_value
from perdure.kv.errors import CorruptValue

__all__ = ["Outcome", "outcome", "read_failure", "read_outcome", "write_failure"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Failure)


class Outcome(msgspec.Struct, frozen=True):
    """The end of a workflow: the closed phase, and what there is of output and failure."""

    phase: Phase
    output: bytes | None
    failure: Failure | None


def write_failure(tx: Transaction, keys: Keys, workflow_id: bytes, failure: Failure) -> None:
    """Store why a workflow ended; it had no failure before."""
    write_value(tx, keys.failure(workflow_id), _encoder.encode(failure), fresh=True)


async def read_failure(
    tx: Transaction, keys: Keys, workflow_id: bytes, *, snapshot: bool = False
) -> Failure | None:
    """Why the workflow ended, if it did not complete. Raises `CorruptRecord`."""
    try:
        value = await read_value(tx, keys.failure(workflow_id), snapshot=snapshot)
        return None if value is None else _decoder.decode(value)
    except (msgspec.MsgspecError, CorruptValue) as error:
        raise CorruptRecord(Id(workflow_id), "failure", str(error)) from error


@transactional
async def outcome(tx: Transaction, keys: Keys, workflow_id: Id) -> Outcome | None:
    """The end of a workflow; None while it is open.

    Raises `WorkflowNotFound`, `CorruptRecord`.
    """
    _, status = await existing_status(tx, keys, workflow_id)
    return await read_outcome(tx, keys, workflow_id, status.phase)


async def read_outcome(
    tx: Transaction, keys: Keys, workflow_id: Id, phase: Phase
) -> Outcome | None:
    """As `outcome`, of a workflow that is known to be in `phase`."""
    if not phase.closed:
        return None
    try:
        output = await read_value(tx, keys.output(workflow_id))
    except CorruptValue as error:
        raise CorruptRecord(workflow_id, "output", str(error)) from error
    if phase is Phase.COMPLETE:
        return Outcome(phase, output, None)
    return Outcome(phase, output, await read_failure(tx, keys, workflow_id))
