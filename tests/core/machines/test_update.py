"""Updates: every order of answers, preparations and events."""

from __future__ import annotations

import pytest
from temporalio.api.update.v1 import Acceptance, Rejection, Response
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import application_failure, payload, update_message

from perdure.core.commands import LangCommand
from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.machines.update import UpdateMachine

ACCEPT = lang("update_response", protocol_instance_id="update", accepted={})
REJECT = lang("update_response", protocol_instance_id="update", rejected=application_failure())
COMPLETE = lang("update_response", protocol_instance_id="update", completed=payload("done"))
ACCEPTED = event("workflow_execution_update_accepted")
COMPLETED = event("workflow_execution_update_completed")


def new(host: FakeHost) -> UpdateMachine:
    return UpdateMachine(host, update_message("update", event_id=3))


def sent(host: FakeHost) -> list[str]:
    """Ids of the messages since the last time."""
    messages, host.messages = host.messages, []
    return [message.id for message in messages]


def test_initial_request_sent_back() -> None:
    host = FakeHost()
    machine = new(host)
    job = host.take_job().do_update
    assert (job.id, job.protocol_instance_id, job.name) == ("update", "update", "change")
    assert job.meta.identity == "client"
    assert list(job.input) == [payload("argument")]
    assert job.run_validator
    machine.respond(ACCEPT)
    (message,) = host.messages
    acceptance = Acceptance()
    assert message.body.Unpack(acceptance)
    assert message.id == "update/request/accept"
    assert acceptance.accepted_request_message_id == "update/request"
    assert acceptance.accepted_request_sequencing_event_id == 3
    assert acceptance.accepted_request.meta.update_id == "update"
    host.prepare()
    (command,) = host.commands()
    attributes = command.protocol_message_command_attributes
    assert attributes.message_id == "update/request/accept"


def test_no_validator_in_a_replay() -> None:
    host = FakeHost(replaying=True)
    new(host)
    assert not host.take_job().do_update.run_validator


def test_rejection_leaves_no_command() -> None:
    host = FakeHost()
    machine = new(host)
    machine.respond(REJECT)
    rejection = Rejection()
    assert host.messages[0].body.Unpack(rejection)
    assert rejection.failure == application_failure()
    assert sent(host) == ["update/request/reject"]
    assert not host.new
    assert machine.is_final


@pytest.mark.parametrize("answer", [COMPLETE, REJECT], ids=["complete", "reject"])
def test_completed_long_after_accepted(answer: LangCommand) -> None:
    host = FakeHost()
    machine = new(host)
    machine.respond(ACCEPT)
    host.prepare()
    machine.on_history(ACCEPTED)
    sent(host)
    machine.respond(answer)
    response = Response()
    assert host.messages[0].body.Unpack(response)
    assert response.meta.update_id == "update"
    if answer is COMPLETE:
        assert list(response.outcome.success.payloads) == [payload("done")]
    else:
        assert response.outcome.failure == application_failure()
    assert sent(host) == ["update/request/complete"]
    host.prepare()
    machine.on_history(COMPLETED)
    assert machine.is_final


@pytest.mark.parametrize("answer", [COMPLETE, REJECT], ids=["complete", "reject"])
@pytest.mark.parametrize("prepared", [True, False], ids=["later", "at_once"])
def test_completed_before_accepted_is_recorded(answer: LangCommand, prepared: bool) -> None:
    host = FakeHost()
    machine = new(host)
    machine.respond(ACCEPT)
    if prepared:
        host.prepare()
    machine.respond(answer)
    host.prepare()
    assert sent(host) == ["update/request/accept", "update/request/complete"]
    ids = [c.protocol_message_command_attributes.message_id for c in host.commands()]
    assert ids == ["update/request/accept", "update/request/complete"]
    machine.on_history(ACCEPTED)
    machine.on_history(COMPLETED)
    assert machine.is_final


def test_an_answer_out_of_order_is_nondeterminism() -> None:
    with pytest.raises(NondeterminismError, match="COMPLETE"):
        new(FakeHost()).respond(COMPLETE)


def test_an_empty_answer_is_fatal() -> None:
    with pytest.raises(FatalError, match="empty"):
        new(FakeHost()).respond(lang("update_response", protocol_instance_id="update"))


def test_a_missing_sequencing_event_is_fatal() -> None:
    with pytest.raises(FatalError, match="after which event"):
        UpdateMachine(FakeHost(), update_message("update"))


def test_a_request_without_input_is_fatal() -> None:
    message = update_message("update", event_id=1)
    message.body.value = b""
    with pytest.raises(FatalError, match="no input"):
        UpdateMachine(FakeHost(), message)


def test_another_message_is_fatal() -> None:
    message = update_message("update", event_id=1)
    message.body.Pack(Response())
    with pytest.raises(FatalError, match="not an update request"):
        UpdateMachine(FakeHost(), message)
