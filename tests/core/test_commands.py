"""Commands of lang in their typed form, and what is shown beside them."""

from __future__ import annotations

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import EventGroupMarker, UserMetadata
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.fake_host import FakeHost, event, lang, lang_message

from perdure.core.commands import NO_ANNOTATIONS, Annotations, parse_command
from perdure.core.errors import MalformedCommand
from perdure.core.machines.activity import ActivityMachine
from perdure.core.machines.child_workflow import ChildWorkflowMachine
from perdure.core.machines.machine import Machine
from perdure.core.machines.nexus_operation import NexusOperationMachine
from perdure.core.machines.timer import TimerMachine


def metadata(summary: str) -> UserMetadata:
    return UserMetadata(summary=Payload(data=summary.encode()))


def group(label: str) -> EventGroupMarker:
    marker = EventGroupMarker()
    marker.label.SetInParent()
    marker.label.id = label
    return marker


def test_a_command_without_a_variant_is_malformed() -> None:
    with pytest.raises(MalformedCommand, match="no variant"):
        parse_command(WorkflowCommand())


def test_the_body_is_what_lang_sent() -> None:
    message = lang_message("start_timer", seq=3)
    message.user_metadata.CopyFrom(metadata("why"))
    message.event_group_markers.append(group("g"))
    command = parse_command(message)
    assert command.variant == "start_timer"
    assert command.body.seq == 3
    assert not command.is_terminal
    assert not command.is_query_answer
    built = Command()
    command.annotations.put_on(built)
    assert built.user_metadata == metadata("why")
    assert list(built.event_group_markers) == [group("g")]


def test_kinds_of_commands() -> None:
    assert lang("complete_workflow_execution").is_terminal
    assert lang("respond_to_query").is_query_answer
    assert lang("start_timer").annotations is NO_ANNOTATIONS


def test_annotations_override_each_other_field_by_field() -> None:
    first = Annotations(metadata("first"), (group("first"),))
    assert first.overridden_by(NO_ANNOTATIONS) is first
    merged = first.overridden_by(Annotations(metadata("second"), ()))
    assert merged.user_metadata == metadata("second")
    assert merged.event_groups == (group("first"),)
    merged = first.overridden_by(Annotations(None, (group("second"),)))
    assert merged.user_metadata == metadata("first")
    assert merged.event_groups == (group("second"),)


CANCELLABLE: list[tuple[type[Machine], str, str, str]] = [
    (TimerMachine, "start_timer", "timer_started", "cancel_timer"),
    (
        ActivityMachine,
        "schedule_activity",
        "activity_task_scheduled",
        "request_cancel_activity",
    ),
    (
        NexusOperationMachine,
        "schedule_nexus_operation",
        "nexus_operation_scheduled",
        "request_cancel_nexus_operation",
    ),
    (
        ChildWorkflowMachine,
        "start_child_workflow_execution",
        "start_child_workflow_execution_initiated",
        "cancel_child_workflow_execution",
    ),
]


@pytest.mark.parametrize(("kind", "begin", "recorded", "cancel"), CANCELLABLE)
def test_cancel_commands_inherit_annotations(
    kind: type[Machine], begin: str, recorded: str, cancel: str
) -> None:
    host = FakeHost(checks=False)
    fields = {"cancellation_type": 2} if kind is ChildWorkflowMachine else {}
    command = lang(begin, **fields)
    command.annotations = Annotations(metadata("why"), (group("g"),))
    machine = kind(host, command)  # type: ignore[arg-type]
    host.prepare()
    machine.on_history(event(recorded, **({"timer_id": "0"} if kind is TimerMachine else {})))
    host.prepared.clear()
    machine.cancel(lang(cancel))
    host.prepare()
    (built,) = host.commands()
    assert built.user_metadata == metadata("why")
    assert list(built.event_group_markers) == [group("g")]
