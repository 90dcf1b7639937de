"""Timer: start, fire, cancel. A cancelled timer gives lang no job, for lang cancelled it."""

from __future__ import annotations

from enum import IntEnum, auto

from temporalio.api.command.v1.message_pb2 import Command
from temporalio.api.enums.v1 import CommandType, EventType
from temporalio.api.history.v1.message_pb2 import HistoryEvent

from perdure.core.commands import LangCommand
from perdure.core.machines.fields import check_same
from perdure.core.machines.host import Host
from perdure.core.machines.machine import Machine, Table

__all__ = ["TimerMachine"]


class State(IntEnum):
    CREATED = auto()
    START_COMMAND_CREATED = auto()
    START_COMMAND_RECORDED = auto()
    FIRED = auto()
    CANCEL_TIMER_COMMAND_CREATED = auto()
    CANCEL_TIMER_COMMAND_SENT = auto()
    CANCELED = auto()


class Event(IntEnum):
    SCHEDULE = auto()
    COMMAND_START_TIMER = auto()
    TIMER_STARTED = auto()
    TIMER_FIRED = auto()
    CANCEL = auto()
    COMMAND_CANCEL_TIMER = auto()
    TIMER_CANCELED = auto()


S, E = State, Event


class TimerMachine(Machine):
    """One timer of lang, known by its `seq`."""

    __slots__ = ("_cancel_annotations", "_start", "seq")

    table = Table(
        "Timer",
        State,
        Event,
        {
            (S.CREATED, E.SCHEDULE): (S.START_COMMAND_CREATED, "queue_start"),
            (S.START_COMMAND_CREATED, E.COMMAND_START_TIMER): (S.START_COMMAND_CREATED, None),
            (S.START_COMMAND_CREATED, E.TIMER_STARTED): (
                S.START_COMMAND_RECORDED,
                "check_started",
            ),
            (S.START_COMMAND_CREATED, E.CANCEL): (S.CANCELED, None),
            (S.START_COMMAND_RECORDED, E.TIMER_FIRED): (S.FIRED, "resolve_fired"),
            (S.START_COMMAND_RECORDED, E.CANCEL): (
                S.CANCEL_TIMER_COMMAND_CREATED,
                "queue_cancel",
            ),
            (S.CANCEL_TIMER_COMMAND_CREATED, E.COMMAND_CANCEL_TIMER): (
                S.CANCEL_TIMER_COMMAND_SENT,
                None,
            ),
            (S.CANCEL_TIMER_COMMAND_SENT, E.TIMER_CANCELED): (S.CANCELED, None),
        },
        initial=S.CREATED,
        final=(S.FIRED, S.CANCELED),
        withdrawn=(S.CANCELED,),
        ignored=(
            (S.CANCEL_TIMER_COMMAND_CREATED, E.CANCEL),
            (S.CANCEL_TIMER_COMMAND_SENT, E.CANCEL),
            (S.CANCELED, E.CANCEL),
            (S.FIRED, E.CANCEL),
        ),
        history={
            EventType.EVENT_TYPE_TIMER_STARTED: E.TIMER_STARTED,
            EventType.EVENT_TYPE_TIMER_FIRED: E.TIMER_FIRED,
            EventType.EVENT_TYPE_TIMER_CANCELED: E.TIMER_CANCELED,
        },
        commands={
            CommandType.COMMAND_TYPE_START_TIMER: E.COMMAND_START_TIMER,
            CommandType.COMMAND_TYPE_CANCEL_TIMER: E.COMMAND_CANCEL_TIMER,
        },
    )

    def __init__(self, host: Host, command: LangCommand) -> None:
        super().__init__(host, command.annotations)
        self.seq: int = command.body.seq
        self._start = command.body
        self._cancel_annotations = command.annotations
        self.fire(E.SCHEDULE)

    def describe(self) -> str:
        return f"Timer(seq {self.seq})"

    def cancel(self, command: LangCommand) -> None:
        """Lang does not want the timer any more."""
        self.on_command(E.CANCEL, command)

    # Effects

    def queue_start(self, _: None) -> None:
        self.host.queue_command(self, CommandType.COMMAND_TYPE_START_TIMER, self._build_start)

    def check_started(self, event: HistoryEvent) -> None:
        check_same(event, "timer id", event.timer_started_event_attributes.timer_id, str(self.seq))

    def resolve_fired(self, event: HistoryEvent) -> None:
        check_same(event, "timer id", event.timer_fired_event_attributes.timer_id, str(self.seq))
        self.host.new_job().fire_timer.seq = self.seq

    def queue_cancel(self, command: LangCommand) -> None:
        self._cancel_annotations = self.annotations.overridden_by(command.annotations)
        self.host.queue_command(self, CommandType.COMMAND_TYPE_CANCEL_TIMER, self._build_cancel)

    def _build_start(self) -> Command:
        command = self.new_command(CommandType.COMMAND_TYPE_START_TIMER)
        start = command.start_timer_command_attributes
        start.timer_id = str(self.seq)
        if self._start.HasField("start_to_fire_timeout"):
            start.start_to_fire_timeout.CopyFrom(self._start.start_to_fire_timeout)
        return command

    def _build_cancel(self) -> Command:
        command = self.new_command(CommandType.COMMAND_TYPE_CANCEL_TIMER, self._cancel_annotations)
        command.cancel_timer_command_attributes.timer_id = str(self.seq)
        return command
