"""Durations and times of messages as seconds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

__all__ = ["seconds"]


def seconds(value: Duration | Timestamp) -> float:
    """A duration in seconds, 0 when it is not set; a time in seconds since 1970."""
    return value.seconds + value.nanos / 1e9
