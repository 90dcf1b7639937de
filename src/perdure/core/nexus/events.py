"""What `tasks` wants done: tasks for lang, RPCs to send and permits to give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from temporalio.bridge.proto.nexus.nexus_pb2 import NexusTask

from perdure.core.nexus.reports import NexusRequest

__all__ = [
    "NexusEvent",
    "NexusTaskDropped",
    "NexusTaskOver",
    "ReportNexusAnswer",
    "TellLang",
    "UnreadableTimeout",
]


@dataclass(frozen=True, slots=True)
class TellLang:
    """Hand this to lang: a task, or the wish that it stops working on one."""

    task: NexusTask


@dataclass(frozen=True, slots=True)
class ReportNexusAnswer:
    """Send this; answer with `reported`, whatever became of it."""

    token: bytes
    request: NexusRequest


@dataclass(frozen=True, slots=True)
class NexusTaskOver:
    """The task is done with, and its permit free.

    `began` and `ended` are when the task came and when lang answered it, on the monotonic clock;
    `scheduled` is when the server took the request of the caller, in seconds since 1970 (0 when it
    does not say). `reported` says that the server was told; `failure_reason` is empty for a
    success.
    """

    permit: object
    scheduled: float
    began: float
    ended: float
    reported: bool
    failure_reason: str


@dataclass(frozen=True, slots=True)
class NexusTaskDropped:
    """A task that lang does not get: it is under way already, or asks for nothing. Its permit is
    free; `problem` is for the log."""

    permit: object
    problem: str


@dataclass(frozen=True, slots=True)
class UnreadableTimeout:
    """The header `request-timeout` has a value that is no duration: the task has no deadline."""

    value: str


NexusEvent: TypeAlias = (
    TellLang | ReportNexusAnswer | NexusTaskOver | NexusTaskDropped | UnreadableTimeout
)
