"""The text of the marker that remembers a local activity.

Details `data` (json) say which activity it was and when it ended, details `result` or the marker's
failure how. Times are `{"seconds", "nanos"}`; what is not known is null. Unknown keys are left
alone: newer writers may add some.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1.message_pb2 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.errors import FatalError
from perdure.core.history.events import describe
from perdure.core.local_activities.requests import LocalOutcome
from perdure.core.machines.fields import first_detail

__all__ = ["LOCAL_ACTIVITY_MARKER", "LocalMarker", "read_local_marker"]

LOCAL_ACTIVITY_MARKER: Final = "core_local_activity"
_SECOND: Final = 1_000_000_000


@dataclass(slots=True)
class LocalMarker:
    """What a marker says. `complete_time` and `backoff` are in nanoseconds.

    `activation_index` is the number of activations lang had had in the workflow task when it was
    given the result; None in markers of older cores, which gave all results at once.
    """

    seq: int
    attempt: int
    activity_id: str
    activity_type: str
    complete_time: int | None
    backoff: int | None
    original_schedule_time: Timestamp | None
    activation_index: int | None
    outcome: LocalOutcome
    result: Payload | None
    failure: Failure | None

    def data(self) -> Payload:
        """The details `data`."""
        original = self.original_schedule_time
        text = {
            "seq": self.seq,
            "attempt": self.attempt,
            "activity_id": self.activity_id,
            "activity_type": self.activity_type,
            "complete_time": _split(self.complete_time),
            "backoff": _split(self.backoff),
            "original_schedule_time": (
                None if original is None else {"seconds": original.seconds, "nanos": original.nanos}
            ),
            "activation_index": self.activation_index,
        }
        return Payload(
            metadata={"encoding": b"json/plain"},
            data=json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode(),
        )


def read_local_marker(event: HistoryEvent) -> LocalMarker | None:
    """None if the event is no marker of a local activity. Raises `FatalError` if unreadable."""
    if event.event_type != EventType.EVENT_TYPE_MARKER_RECORDED:
        return None
    attributes = event.marker_recorded_event_attributes
    if attributes.marker_name != LOCAL_ACTIVITY_MARKER:
        return None
    details = attributes.details
    failure = attributes.failure if attributes.HasField("failure") else None
    try:
        data = json.loads(first_detail(details, "data").data)
        original = _join(data.get("original_schedule_time"))
        index = data.get("activation_index")
        result = details["result"].payloads if "result" in details else ()
        return LocalMarker(
            seq=int(data["seq"]),
            attempt=int(data["attempt"]),
            activity_id=str(data["activity_id"]),
            activity_type=str(data["activity_type"]),
            complete_time=_in_range(_join(data.get("complete_time"))),
            backoff=_in_range(_join(data.get("backoff"))),
            original_schedule_time=None if original is None else _timestamp(original),
            activation_index=None if index is None else int(index),
            outcome=_outcome(failure),
            result=result[0] if result else None,
            failure=failure,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as unreadable:
        raise FatalError(
            f"{describe(event)} is a marker of a local activity that cannot be read"
        ) from unreadable


def _outcome(failure: Failure | None) -> LocalOutcome:
    if failure is None:
        return LocalOutcome.COMPLETED
    if failure.HasField("canceled_failure_info") or failure.cause.HasField("canceled_failure_info"):
        return LocalOutcome.CANCELLED
    return LocalOutcome.FAILED


def _split(nanoseconds: int | None) -> dict[str, int] | None:
    if nanoseconds is None:
        return None
    seconds, nanos = divmod(nanoseconds, _SECOND)
    return {"seconds": seconds, "nanos": nanos}


def _join(parts: Any) -> int | None:
    if parts is None:
        return None
    return int(parts["seconds"]) * _SECOND + int(parts["nanos"])


def _in_range(nanoseconds: int | None) -> int | None:
    """Raises `ValueError` for what is neither a point in time nor a time span."""
    if nanoseconds is not None:
        _timestamp(nanoseconds)
    return nanoseconds


def _timestamp(nanoseconds: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(nanoseconds)
    return stamp
