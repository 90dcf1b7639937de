"""Update: a request of a client, which lang accepts or rejects, and then answers.

Answers are protocol messages; an accepted request and its outcome are also commands, so that they
have a place in history. A rejection leaves no trace.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from google.protobuf.message import Message as ProtobufMessage
from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.failure.v1.message_pb2 import Failure
from temporalio.api.protocol.v1.message_pb2 import Message
from temporalio.api.update.v1.message_pb2 import Acceptance, Rejection, Request, Response

from perdure.core.commands import Annotations, LangCommand
from perdure.core.errors import FatalError
from perdure.core.machines.fields import fill_map
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["UpdateMachine"]


class State(IntEnum):
    REQUEST_INITIATED = auto()
    ACCEPTED = auto()
    ACCEPT_COMMAND_CREATED = auto()
    ACCEPT_COMMAND_RECORDED = auto()
    COMPLETED = auto()
    COMPLETED_COMMAND_CREATED = auto()
    COMPLETED_COMMAND_RECORDED = auto()
    COMPLETED_IMMEDIATELY = auto()
    COMPLETED_IMMEDIATELY_ACCEPT_CREATED = auto()
    COMPLETED_IMMEDIATELY_COMPLETE_CREATED = auto()
    REJECTED = auto()


class Event(IntEnum):
    ACCEPT = auto()
    REJECT = auto()
    COMPLETE = auto()
    COMMAND_PROTOCOL_MESSAGE = auto()
    UPDATE_ACCEPTED = auto()
    UPDATE_COMPLETED = auto()


S, E = State, Event

_COMMAND: Final = CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE


class UpdateMachine(Machine):
    """One update, known by its protocol instance."""

    __slots__ = ("_request", "_request_id", "_sequencing_event_id", "instance_id")

    table = Table(
        "Update",
        State,
        Event,
        {
            (S.REQUEST_INITIATED, E.ACCEPT): (S.ACCEPTED, "accept"),
            (S.REQUEST_INITIATED, E.REJECT): (S.REJECTED, "reject"),
            (S.ACCEPTED, E.COMMAND_PROTOCOL_MESSAGE): (S.ACCEPT_COMMAND_CREATED, None),
            (S.ACCEPTED, E.COMPLETE): (S.COMPLETED_IMMEDIATELY, "complete"),
            (S.ACCEPTED, E.REJECT): (S.COMPLETED_IMMEDIATELY, "fail"),
            (S.ACCEPT_COMMAND_CREATED, E.UPDATE_ACCEPTED): (S.ACCEPT_COMMAND_RECORDED, None),
            (S.ACCEPT_COMMAND_CREATED, E.COMPLETE): (
                S.COMPLETED_IMMEDIATELY_ACCEPT_CREATED,
                "complete",
            ),
            (S.ACCEPT_COMMAND_CREATED, E.REJECT): (S.COMPLETED_IMMEDIATELY_ACCEPT_CREATED, "fail"),
            (S.ACCEPT_COMMAND_RECORDED, E.COMPLETE): (S.COMPLETED, "complete"),
            (S.ACCEPT_COMMAND_RECORDED, E.REJECT): (S.COMPLETED, "fail"),
            (S.COMPLETED, E.COMMAND_PROTOCOL_MESSAGE): (S.COMPLETED_COMMAND_CREATED, None),
            (S.COMPLETED_COMMAND_CREATED, E.UPDATE_COMPLETED): (
                S.COMPLETED_COMMAND_RECORDED,
                None,
            ),
            (S.COMPLETED_IMMEDIATELY, E.COMMAND_PROTOCOL_MESSAGE): (
                S.COMPLETED_IMMEDIATELY_ACCEPT_CREATED,
                None,
            ),
            (S.COMPLETED_IMMEDIATELY_ACCEPT_CREATED, E.COMMAND_PROTOCOL_MESSAGE): (
                S.COMPLETED_IMMEDIATELY_COMPLETE_CREATED,
                None,
            ),
            (S.COMPLETED_IMMEDIATELY_COMPLETE_CREATED, E.UPDATE_ACCEPTED): (
                S.COMPLETED_COMMAND_CREATED,
                None,
            ),
        },
        initial=S.REQUEST_INITIATED,
        final=(S.COMPLETED_COMMAND_RECORDED, S.REJECTED),
        history={
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: E.UPDATE_ACCEPTED,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED: E.UPDATE_COMPLETED,
        },
        commands={_COMMAND: E.COMMAND_PROTOCOL_MESSAGE},
    )

    def __init__(self, host: Host, message: Message) -> None:
        """Raises `FatalError` if the message is no request that can be carried out."""
        super().__init__(host)
        if message.WhichOneof("sequencing_id") != "event_id":
            raise FatalError(
                f"the update request {message.id!r} does not say after which event it comes"
            )
        request = Request()
        if not message.body.Unpack(request):
            raise FatalError(
                f"the message {message.id!r} is a {message.body.type_url}, not an update request"
            )
        if not request.HasField("input") or not request.HasField("meta"):
            raise FatalError(f"the update request {message.id!r} has no input or no meta")
        self.instance_id = message.protocol_instance_id
        self._request_id = message.id
        self._request = request
        self._sequencing_event_id = message.event_id
        self._tell_lang()

    def describe(self) -> str:
        return f"Update({self._request.input.name!r}, id {self.instance_id!r})"

    def respond(self, command: LangCommand) -> None:
        """Lang's answer. Raises `NondeterminismError` if it is not one that may come now."""
        response = command.body.WhichOneof("response")
        event = _EVENT_OF_RESPONSE.get(response)
        if event is None:
            raise FatalError(f"the answer to {self.describe()} is empty")
        self.on_command(event, command)

    # Effects

    def accept(self, command: LangCommand) -> None:
        acceptance = Acceptance(
            accepted_request_message_id=self._request_id,
            accepted_request_sequencing_event_id=self._sequencing_event_id,
            accepted_request=self._request,
        )
        self._say("accept", acceptance, command.annotations)

    def reject(self, command: LangCommand) -> None:
        rejection = Rejection(
            rejected_request_message_id=self._request_id,
            rejected_request_sequencing_event_id=self._sequencing_event_id,
            rejected_request=self._request,
            failure=command.body.rejected,
        )
        self._say("reject", rejection, None)

    def complete(self, command: LangCommand) -> None:
        response = Response(meta=self._request.meta)
        response.outcome.success.payloads.add().CopyFrom(command.body.completed)
        self._say("complete", response, command.annotations)

    def fail(self, command: LangCommand) -> None:
        failure: Failure = command.body.rejected
        response = Response(meta=self._request.meta)
        response.outcome.failure.CopyFrom(failure)
        self._say("complete", response, command.annotations)

    # Parts

    def _tell_lang(self) -> None:
        request = self._request
        job = self.host.new_job().do_update
        job.id = request.meta.update_id
        job.protocol_instance_id = self.instance_id
        job.name = request.input.name
        job.input.extend(request.input.args.payloads)
        fill_map(job.headers, request.input.header.fields)
        job.meta.CopyFrom(request.meta)
        job.run_validator = not self.host.replaying

    def _say(self, what: str, body: ProtobufMessage, annotations: Annotations | None) -> None:
        """Sends a message; with annotations it gets a command, and so a place in history."""
        message_id = f"{self._request_id}/{what}"
        message = Message(id=message_id, protocol_instance_id=self.instance_id)
        message.body.Pack(body)
        self.host.send_message(message)
        if annotations is not None:
            self.host.queue_command(self, _COMMAND, lambda: self._build(message_id, annotations))

    def _build(self, message_id: str, annotations: Annotations) -> Command:
        command = self.new_command(_COMMAND, annotations)
        command.protocol_message_command_attributes.message_id = message_id
        return command


_EVENT_OF_RESPONSE: Final[dict[str | None, Event]] = {
    "accepted": E.ACCEPT,
    "rejected": E.REJECT,
    "completed": E.COMPLETE,
}
