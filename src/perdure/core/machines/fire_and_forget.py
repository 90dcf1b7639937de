"""Commands that are recorded and have no outcome: lang goes on at once.

Two kinds: the upsert of search attributes and the change of the memo.
"""

from __future__ import annotations

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.common.v1.message_pb2 import SearchAttributes
from temporalio.api.enums.v1 import CommandType, EventType

from perdure.core.commands import Annotations, LangCommand
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine
from perdure.core.machines.recorded import SCHEDULE, recorded_table

__all__ = ["ModifyPropertiesMachine", "UpsertSearchAttributesMachine"]

_UPSERT = CommandType.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
_MODIFY = CommandType.COMMAND_TYPE_MODIFY_WORKFLOW_PROPERTIES


class UpsertSearchAttributesMachine(Machine):
    """One upsert, of lang or (after a patch marker) of the core."""

    __slots__ = ("_attributes",)

    table = recorded_table(
        "UpsertSearchAttributes",
        _UPSERT,
        EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    )

    def __init__(
        self,
        host: Host,
        attributes: SearchAttributes,
        annotations: Annotations,
    ) -> None:
        super().__init__(host, annotations)
        self._attributes = attributes
        self.fire(SCHEDULE)

    def queue(self, _: None) -> None:
        self.host.queue_command(self, _UPSERT, self._build)

    def _build(self) -> Command:
        command = self.new_command(_UPSERT)
        attributes = command.upsert_workflow_search_attributes_command_attributes
        attributes.search_attributes.CopyFrom(self._attributes)
        return command


class ModifyPropertiesMachine(Machine):
    """One change of the memo."""

    __slots__ = ("_body",)

    table = recorded_table(
        "ModifyProperties", _MODIFY, EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        self._body = command.body
        self.fire(SCHEDULE)

    def queue(self, _: None) -> None:
        self.host.queue_command(self, _MODIFY, self._build)

    def _build(self) -> Command:
        command = self.new_command(_MODIFY)
        attributes = command.modify_workflow_properties_command_attributes
        attributes.upserted_memo.CopyFrom(self._body.upserted_memo)
        return command
