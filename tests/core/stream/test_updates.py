"""Updates through the stream (CT/updates): requests come as messages, answers leave as messages."""

from __future__ import annotations

from temporalio.api.enums.v1 import CommandType
from temporalio.api.failure.v1 import Failure
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistoryBuilder, HistorySlice, payload, update_message
from tests.core.support.stage import Stage, complete_workflow, kinds, start_timer

from perdure.core.actions import FailTask

PROTOCOL = CommandType.COMMAND_TYPE_PROTOCOL_MESSAGE


def accept(instance_id: str = "update") -> WorkflowCommand:
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = instance_id
    command.update_response.accepted.SetInParent()
    return command


def finish(instance_id: str = "update", result: object = "done") -> WorkflowCommand:
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = instance_id
    command.update_response.completed.CopyFrom(payload(result))
    return command


def reject(instance_id: str = "update") -> WorkflowCommand:
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = instance_id
    command.update_response.rejected.CopyFrom(Failure(message="no"))
    return command


def cached() -> tuple[Stage, HistoryBuilder]:
    """A run that started its timer, which has not fired."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(1))
    stage.activation()
    stage.complete(start_timer())
    stage.completion()
    stage.report()
    stage.actions.clear()
    del built.events[5:]
    return stage, built


def speculative(built: HistoryBuilder) -> HistorySlice:
    """A task that the server has not written down: events that only this poll carries."""
    written = len(built.events)
    started = built.task_scheduled_and_started()
    part = HistorySlice(built.events[3:], 3, started)
    del built.events[written:]
    return part


def test_initial_request_sent_back() -> None:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, built.to_task(1), messages=[update_message(event_id=1)])
    activation = stage.activation()
    assert kinds(activation) == ["initialize_workflow", "do_update"]
    job = activation.jobs[1].do_update
    assert (job.protocol_instance_id, job.name, job.run_validator) == ("update", "change", True)
    stage.complete(accept())
    request = stage.completion()
    (message,) = request.messages
    acceptance = Acceptance()
    assert message.body.Unpack(acceptance)
    assert message.protocol_instance_id == "update"
    assert acceptance.accepted_request_message_id == "update/request"
    assert acceptance.accepted_request.meta.update_id == "update"
    assert [c.command_type for c in request.commands] == [PROTOCOL]


def test_update_activation_has_update_id() -> None:
    stage, built = cached()
    stage.poll(built, speculative(built), messages=[update_message("one", event_id=6)])
    (job,) = stage.activation().jobs
    assert job.do_update.id == "one"
    assert job.do_update.meta.update_id == "one"


def test_accepted_and_completed_in_one_task() -> None:
    stage, built = cached()
    stage.poll(built, speculative(built), messages=[update_message(event_id=6)])
    stage.activation()
    stage.complete(accept(), finish(result=5))
    request = stage.completion()
    assert [c.command_type for c in request.commands] == [PROTOCOL, PROTOCOL]
    bodies = [message.body for message in request.messages]
    assert bodies[0].Is(Acceptance.DESCRIPTOR)
    response = Response()
    assert bodies[1].Unpack(response)
    assert response.outcome.success.payloads == [payload(5)]


def test_a_rejected_speculative_task_is_rolled_back() -> None:
    """Nothing of a rejection is written; the next update has the same event ids again."""
    stage, built = cached()
    for _ in range(2):
        stage.poll(built, speculative(built), messages=[update_message(event_id=6)])
        assert kinds(stage.activation()) == ["do_update"]
        stage.complete(reject())
        request = stage.completion()
        assert not [c for c in request.commands if c.command_type == PROTOCOL]
        assert request.messages[0].body.Is(Rejection.DESCRIPTOR)
        stage.report(reset_to=3)
    built.timer_fired(5)
    started = built.task_scheduled_and_started()
    stage.poll(built, HistorySlice(built.events[5:], 3, started))
    assert kinds(stage.activation()) == ["fire_timer"]


def test_speculative_wft_with_command_event() -> None:
    """An accepted update makes the speculative task real: its events open the next one."""
    stage, built = cached()
    part = speculative(built)
    stage.poll(built, part, messages=[update_message(event_id=6)])
    stage.activation()
    stage.complete(accept(), finish())
    stage.completion()
    stage.report()
    built.events[:] = built.events[:5]
    built.full_task()
    accepted = built.update_accepted(sequencing_event_id=6)
    built.update_completed(accepted)
    built.timer_fired(5)
    started = built.task_scheduled_and_started()
    stage.poll(built, HistorySlice(built.events[7:], 7, started))
    activation = stage.activation()
    assert (kinds(activation), activation.is_replaying) == (["fire_timer"], False)


def test_replay_with_empty_first_task() -> None:
    """The update came with the second task: the first one has an activation of its own."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled_and_started()
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=5)
    built.timer_started(1)
    built.update_completed(accepted)
    built.timer_fired(built.last_event_id - 1)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete()
    activation = stage.activation()
    assert kinds(activation) == ["do_update"]
    assert not activation.jobs[0].do_update.run_validator
    stage.complete(accept(), start_timer(), finish())
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(complete_workflow())
    assert len(stage.completion().commands) == 1


def test_replay_with_signal_and_update_same_task() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.signaled()
    built.full_task()
    accepted = built.update_accepted(sequencing_event_id=6)
    built.update_completed(accepted)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete()
    assert kinds(stage.activation()) == ["signal_workflow", "do_update"]
    stage.complete(accept(), finish())
    assert not stage.has(FailTask)


def test_an_update_after_heartbeats_of_a_run_that_is_not_cached() -> None:
    """A replay cuts the chain before an accepted update, so it is cut there from the beginning."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.task_scheduled()
    sequencing = built.signaled()
    built.task_started()
    stage = Stage()
    stage.poll(built, built.whole(), messages=[update_message(event_id=sequencing)])
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete()
    live = kinds(stage.activation())
    assert live == ["signal_workflow", "do_update"]
    built.task_completed()
    built.update_accepted(sequencing_event_id=sequencing)
    built.timer_started()
    built.timer_fired(built.last_event_id)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow"]
    stage.complete()
    assert kinds(stage.activation()) == live


def test_messages_are_not_sent_again_by_a_replay() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    accepted = built.update_accepted(sequencing_event_id=2)
    built.update_completed(accepted)
    built.signaled()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    assert kinds(stage.activation()) == ["initialize_workflow", "do_update"]
    stage.complete(accept(), finish())
    assert kinds(stage.activation()) == ["signal_workflow"]
    stage.complete(complete_workflow())
    request = stage.completion()
    assert not request.messages
    assert len(request.commands) == 1


def test_lang_internal_flag_with_update() -> None:
    """A flag that lang used with an update is written with its task, and there at the replay."""
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built, messages=[update_message(event_id=2)])
    assert list(stage.activation().available_internal_flags) == []
    stage.complete(accept(), finish(), complete_workflow(), flags=[1])
    assert list(stage.completion().sdk_metadata.lang_used_flags) == [1]

    built.task_completed(core_flags=[1, 2, 3, 4], lang_flags=[1])
    accepted = built.update_accepted(sequencing_event_id=2)
    built.update_completed(accepted)
    built.completed()
    stage = Stage(evict_after_replay=True)
    stage.poll(built)
    activation = stage.activation()
    assert kinds(activation) == ["initialize_workflow", "do_update"]
    assert list(activation.available_internal_flags) == [1]
    stage.complete(accept(), finish(), complete_workflow(), flags=[1])
    stage.eviction()
