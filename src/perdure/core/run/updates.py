"""The updates of one run: requests come in as messages, each at its place between events.

A request that waits for an event is held until that event was handled. In a replay there are no
messages: the request is taken from the event that accepted it, one sequence ahead, so that lang
meets it when it did before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from temporalio.api.history.v1.message_pb2 import HistoryEvent
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.api.update.v1.message_pb2 import Request

from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.history.events import describe
from perdure.core.machines.host import Host
from perdure.core.machines.update import UpdateMachine

__all__ = ["Updates"]

_NEVER: Final = math.inf


class Updates:
    """Waiting requests, machines, and what is to be said to the server."""

    __slots__ = ("_admitted", "_first_due", "_host", "_machines", "_outbox", "_waiting")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: list[Message] = []
        self._first_due = _NEVER
        self._admitted: dict[str, Request] = {}
        self._machines: dict[str, UpdateMachine] = {}
        self._outbox: list[Message] = []

    def receive(self, messages: Iterable[Message]) -> None:
        """Messages of a new workflow task."""
        for message in messages:
            self._wait(message)

    def admitted(self, event: HistoryEvent) -> None:
        """A request that history itself holds, because it was there before a reset."""
        request = event.workflow_execution_update_admitted_event_attributes.request
        instance_id = request.meta.update_id
        if self._host.replaying:
            self._admitted[instance_id] = request
        else:
            self._wait(_request(f"{instance_id}/request", instance_id, event.event_id, request))

    def accepted_ahead(self, event: HistoryEvent) -> Message:
        """The request that the next sequence accepts."""
        accepted = event.workflow_execution_update_accepted_event_attributes
        instance_id = accepted.protocol_instance_id
        if accepted.HasField("accepted_request"):
            request = accepted.accepted_request
        else:
            kept = self._admitted.pop(instance_id, None)
            if kept is None:
                raise FatalError(f"{describe(event)} of history does not hold the update's request")
            request = kept
        return _request(
            accepted.accepted_request_message_id,
            instance_id,
            accepted.accepted_request_sequencing_event_id,
            request,
        )

    def begin(self, message: Message) -> None:
        """Hands a request to lang."""
        machine = UpdateMachine(self._host, message)
        self._machines[machine.instance_id] = machine

    def begin_before(self, event_id: int) -> None:
        """Hands to lang what comes before this event, in the order it arrived."""
        if self._first_due >= event_id:
            return
        waiting, self._waiting, self._first_due = self._waiting, [], _NEVER
        for message in waiting:
            if _due_after(message) < event_id:
                self.begin(message)
            else:
                self._wait(message)

    def _wait(self, message: Message) -> None:
        self._waiting.append(message)
        self._first_due = min(self._first_due, _due_after(message))

    def respond(self, command: LangCommand) -> None:
        """Lang's answer to a request."""
        instance_id = command.body.protocol_instance_id
        machine = self._machines.get(instance_id)
        if machine is None:
            raise NondeterminismError(
                f"Missing associated machine: lang answers the update {instance_id!r}, which it"
                " was never asked for in this run"
            )
        machine.respond(command)
        if machine.is_final:
            del self._machines[instance_id]

    @property
    def has_messages(self) -> bool:
        return bool(self._outbox)

    def send(self, message: Message) -> None:
        """Something to say to the server, which heard it already if this is a replay."""
        if not self._host.replaying:
            self._outbox.append(message)

    def drain(self) -> list[Message]:
        messages, self._outbox = self._outbox, []
        return messages


def _due_after(message: Message) -> float:
    """The event after which the message comes; a place among commands never comes."""
    if message.WhichOneof("sequencing_id") == "command_index":
        return _NEVER
    return message.event_id


def _request(message_id: str, instance_id: str, event_id: int, request: Request) -> Message:
    message = Message(id=message_id, protocol_instance_id=instance_id, event_id=event_id)
    message.body.Pack(request)
    return message
