"""Commands of lang in a typed form: the variant is looked at once, here.

`LangCommand.body` is the message lang sent, not a copy. Its annotations (summary and details for
people, event groups) travel to the server command that it becomes.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.sdk.v1.event_group_marker_pb2 import EventGroupMarker
from temporalio.api.sdk.v1.user_metadata_pb2 import UserMetadata
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand

from perdure.core.errors import MalformedCommand
from perdure.core.evidence import CallSite

__all__ = ["NO_ANNOTATIONS", "Annotations", "LangCommand", "parse_command"]

_TERMINAL_VARIANTS: Final = frozenset(
    {
        "complete_workflow_execution",
        "fail_workflow_execution",
        "continue_as_new_workflow_execution",
        "cancel_workflow_execution",
    }
)


class Annotations:
    """What lang wants to be shown beside a command; belongs to history, not to behaviour."""

    __slots__ = ("event_groups", "user_metadata")

    def __init__(
        self, user_metadata: UserMetadata | None, event_groups: tuple[EventGroupMarker, ...]
    ) -> None:
        self.user_metadata = user_metadata
        self.event_groups = event_groups

    def overridden_by(self, other: Annotations) -> Annotations:
        """What `other` sets, and the rest from here: a cancellation inherits from the command
        that it cancels."""
        if other is NO_ANNOTATIONS:
            return self
        return Annotations(
            other.user_metadata if other.user_metadata is not None else self.user_metadata,
            other.event_groups or self.event_groups,
        )

    def put_on(self, command: Command) -> None:
        if self.user_metadata is not None:
            command.user_metadata.CopyFrom(self.user_metadata)
        if self.event_groups:
            command.event_group_markers.extend(self.event_groups)


NO_ANNOTATIONS: Final = Annotations(None, ())


class LangCommand:
    """One command: the name of its variant, the message inside it, and the annotations.

    `site` is the line of code that asked for it, where that is known.
    """

    __slots__ = ("annotations", "body", "site", "variant")

    def __init__(
        self,
        variant: str,
        body: Any,
        annotations: Annotations = NO_ANNOTATIONS,
        site: CallSite | None = None,
    ) -> None:
        self.variant = variant
        self.body = body
        self.annotations = annotations
        self.site = site

    @property
    def is_terminal(self) -> bool:
        """True if the workflow ends with this command."""
        return self.variant in _TERMINAL_VARIANTS

    @property
    def is_query_answer(self) -> bool:
        return self.variant == "respond_to_query"

    def __repr__(self) -> str:
        return f"LangCommand({self.variant}, {self.body!s})"


def parse_command(message: WorkflowCommand, site: CallSite | None = None) -> LangCommand:
    """Raises `MalformedCommand` when no variant is set."""
    variant = message.WhichOneof("variant")
    if variant is None:
        raise MalformedCommand("it has no variant, so nothing says what to do")
    annotations = NO_ANNOTATIONS
    if message.event_group_markers or message.HasField("user_metadata"):
        annotations = Annotations(
            message.user_metadata if message.HasField("user_metadata") else None,
            tuple(message.event_group_markers),
        )
    return LangCommand(variant, getattr(message, variant), annotations, site)
