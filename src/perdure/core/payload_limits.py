"""How large the payloads of a request are, against the limits that a server and a user set.

Owns which fields are measured, and how. The server refuses payloads over its own limits in a way
that can end a workflow for good, so what would be refused is found before it is sent. Fields that
are not listed (headers, search attributes of a start, user metadata) are limited by other rules.

Every field but a few counts as the serialized size of its message. Upserts count as the server
counts them: names and raw values.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from temporalio.api.common.v1.message_pb2 import Memo, SearchAttributes

__all__ = ["Excess", "Limit", "Limits", "excesses", "is_measured"]


class Limit(enum.Enum):
    """Which limit a field falls under; the value is what it is called in a text."""

    PAYLOADS = "payloads"
    MEMO = "memo"


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes that payloads and memos may have; 0 is no limit."""

    payloads: int = 0
    memo: int = 0

    @property
    def smallest(self) -> int:
        """No request up to this size has anything over a limit; 0 when there are no limits."""
        return min((size for size in (self.payloads, self.memo) if size), default=0)

    def of(self, limit: Limit) -> int:
        return self.memo if limit is Limit.MEMO else self.payloads


@dataclass(frozen=True, slots=True)
class Excess:
    """A field that is over a limit; sizes in bytes."""

    field: str
    limit: Limit
    size: int
    allowed: int

    @property
    def error(self) -> str:
        """What is said of it when it must not be sent."""
        return f"[TMPRL1103] Attempted to upload {self.limit.value} with size that exceeded the error limit."  # noqa: E501

    @property
    def warning(self) -> str:
        """What is said of it when it is sent all the same."""
        return f"[TMPRL1103] Attempted to upload {self.limit.value} with size that exceeded the warning limit."  # noqa: E501


_START: Final = ("input", "memo", "completion_callbacks.nexus_handler.source_context")
_SCHEDULE: Final = ("schedule.action.start_workflow.input", "schedule.action.start_workflow.memo")
_STANDALONE: Final = ("input", "completion_callbacks.nexus_handler.source_context")
_FAILED_ACTIVITY: Final = ("failure", "last_heartbeat_details")
_COMMANDS: Final = tuple(
    f"commands.{name}"
    for name in (
        "schedule_activity_task_command_attributes.input",
        "complete_workflow_execution_command_attributes.result",
        "fail_workflow_execution_command_attributes.failure",
        "record_marker_command_attributes.details",
        "continue_as_new_workflow_execution_command_attributes.input",
        "continue_as_new_workflow_execution_command_attributes.memo",
        "start_child_workflow_execution_command_attributes.input",
        "start_child_workflow_execution_command_attributes.memo",
        "signal_external_workflow_execution_command_attributes.input",
        "upsert_workflow_search_attributes_command_attributes.search_attributes",
        "modify_workflow_properties_command_attributes.upserted_memo",
        "schedule_nexus_operation_command_attributes.input",
    )
)

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "StartWorkflowExecutionRequest": _START,
    "SignalWithStartWorkflowExecutionRequest": ("input", "signal_input", "memo"),
    "ExecuteMultiOperationRequest": (
        *(f"operations.start_workflow.{name}" for name in _START),
        "operations.update_workflow.request.completion_callbacks.nexus_handler.source_context",
    ),
    "SignalWorkflowExecutionRequest": ("input",),
    "QueryWorkflowRequest": ("query.query_args",),
    "UpdateWorkflowExecutionRequest": (
        "request.completion_callbacks.nexus_handler.source_context",
    ),
    "CreateScheduleRequest": _SCHEDULE,
    "UpdateScheduleRequest": _SCHEDULE,
    "StartActivityExecutionRequest": _STANDALONE,
    "StartNexusOperationExecutionRequest": _STANDALONE,
    "RespondWorkflowTaskCompletedRequest": (*_COMMANDS, "messages.body", "query_results.answer"),
    "RespondWorkflowTaskFailedRequest": ("failure", "messages.body"),
    "RespondQueryTaskCompletedRequest": ("query_result",),
    "RecordActivityTaskHeartbeatRequest": ("details",),
    "RecordActivityTaskHeartbeatByIdRequest": ("details",),
    "RespondActivityTaskCompletedRequest": ("result",),
    "RespondActivityTaskCompletedByIdRequest": ("result",),
    "RespondActivityTaskFailedRequest": _FAILED_ACTIVITY,
    "RespondActivityTaskFailedByIdRequest": _FAILED_ACTIVITY,
    "RespondActivityTaskCanceledRequest": ("details",),
    "RespondActivityTaskCanceledByIdRequest": ("details",),
    "RespondNexusTaskFailedRequest": ("failure",),
}
"""What is measured of each request. Elements of lists and maps are measured one by one, but a map
at the end of a path counts as one."""

_REFUSED: Final[dict[str, tuple[str, ...]]] = {
    "RespondWorkflowTaskCompletedRequest": (*_COMMANDS, "messages.body"),
    "RecordActivityTaskHeartbeatRequest": ("details",),
    "RespondActivityTaskCompletedRequest": ("result",),
    "RespondActivityTaskCanceledRequest": ("details",),
}
"""Where too much is an error. Elsewhere the server cuts it down, or tells who asked."""


def is_measured(request: str) -> bool:
    """Whether requests of this name have fields that are measured."""
    return request in _FIELDS


def excesses(request: Message, limits: Limits, *, refused: bool = False) -> list[Excess]:
    """The fields over their limits, in the order in which they stand in the request.

    `refused`: look only at fields whose excess makes the server refuse the request.
    """
    fields = (_REFUSED if refused else _FIELDS).get(request.DESCRIPTOR.name, ())
    if not fields or not limits.smallest or request.ByteSize() <= limits.smallest:
        return []
    found: list[Excess] = []
    for field, value in _in_order(request, fields):
        limit = _limit_of(value, field)
        size, allowed = _size(value, field), limits.of(limit)
        if allowed and size > allowed:
            found.append(Excess(field, limit, size, allowed))
    return found


def _in_order(request: Message, fields: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The values at these paths; all of one command before those of the next."""
    tree: dict[str, Any] = {}
    for field in fields:
        node = tree
        for name in field.split("."):
            node = node.setdefault(name, {})
    yield from _walk(request, tree, "")


def _walk(message: Any, tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, below in tree.items():
        path = f"{prefix}{name}"
        value = getattr(message, name)
        if isinstance(value, Message):
            if message.HasField(name):
                yield from _below(value, below, path)
        elif not below:
            yield path, value
        else:
            elements = value.items() if hasattr(value, "items") else enumerate(value)
            for key, element in elements:
                yield from _below(element, below, f"{path}[{key}]")


def _below(value: Any, tree: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    if tree:
        yield from _walk(value, tree, f"{path}.")
    else:
        yield path, value


def _is_upsert(value: Any, field: str) -> bool:
    return isinstance(value, SearchAttributes) or (
        isinstance(value, Memo) and field.endswith("upserted_memo")
    )


def _limit_of(value: Any, field: str) -> Limit:
    is_memo = isinstance(value, Memo) and not _is_upsert(value, field)
    return Limit.MEMO if is_memo else Limit.PAYLOADS


def _size(value: Any, field: str) -> int:
    if _is_upsert(value, field):
        fields = value.fields if isinstance(value, Memo) else value.indexed_fields
        return sum(len(name.encode()) + len(payload.data) for name, payload in fields.items())
    if isinstance(value, Message):
        return value.ByteSize()
    return sum(len(name.encode()) + entry.ByteSize() for name, entry in value.items())
