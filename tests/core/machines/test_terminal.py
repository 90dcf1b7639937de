"""Ends of workflows, and commands without an outcome."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Memo, RetryPolicy, SearchAttributes
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import application_failure, payload, payloads

from perdure.core.commands import NO_ANNOTATIONS
from perdure.core.errors import NondeterminismError
from perdure.core.machines.fire_and_forget import (
    ModifyPropertiesMachine,
    UpsertSearchAttributesMachine,
)
from perdure.core.machines.terminal import TERMINAL_MACHINES

ENDS: dict[str, dict[str, Any]] = {
    "complete_workflow_execution": {"result": payload("done")},
    "fail_workflow_execution": {"failure": application_failure()},
    "cancel_workflow_execution": {"details": payloads("why")},
    "continue_as_new_workflow_execution": {"workflow_type": "type"},
}
EVENTS = {
    "complete_workflow_execution": "workflow_execution_completed",
    "fail_workflow_execution": "workflow_execution_failed",
    "cancel_workflow_execution": "workflow_execution_canceled",
    "continue_as_new_workflow_execution": "workflow_execution_continued_as_new",
}


@pytest.mark.parametrize("variant", ENDS)
def test_end(variant: str) -> None:
    host = FakeHost()
    machine = TERMINAL_MACHINES[variant](host, lang(variant, **ENDS[variant]))
    host.prepare()
    (command,) = host.commands()
    attributes = getattr(command, f"{variant}_command_attributes")
    if variant == "complete_workflow_execution":
        assert attributes.result == payloads("done")
    if variant == "fail_workflow_execution":
        assert attributes.failure == application_failure()
    if variant == "cancel_workflow_execution":
        assert attributes.details == payloads("why")
    for other, name in EVENTS.items():
        if other != variant:
            with pytest.raises(NondeterminismError):
                machine.on_history(event(name))
    machine.on_history(event(EVENTS[variant]))
    assert machine.is_final


def continued(host: FakeHost, **fields: Any) -> Any:
    command = lang("continue_as_new_workflow_execution", workflow_type="type", **fields)
    TERMINAL_MACHINES[command.variant](host, command)
    host.prepare()
    return host.commands()[0].continue_as_new_workflow_execution_command_attributes


def test_continue_as_new_preserves_some_values() -> None:
    host = FakeHost()
    memo = Memo(fields={"m": payload(1)})
    host.started = WorkflowExecutionStartedEventAttributes(
        memo=memo, retry_policy=RetryPolicy(maximum_attempts=3)
    )
    host.search_attributes = SearchAttributes(indexed_fields={"s": payload(2)})
    attributes = continued(host)
    assert attributes.memo == memo
    assert attributes.retry_policy.maximum_attempts == 3
    assert attributes.search_attributes.indexed_fields["s"] == payload(2)
    assert attributes.inherit_build_id


def test_continue_as_new_takes_what_lang_says() -> None:
    host = FakeHost()
    host.started = WorkflowExecutionStartedEventAttributes(
        memo=Memo(fields={"m": payload(1)}), retry_policy=RetryPolicy(maximum_attempts=3)
    )
    attributes = continued(
        host,
        task_queue="other",
        arguments=[payload(5)],
        headers={"h": payload(6)},
        memo={"n": payload(7)},
        retry_policy=RetryPolicy(maximum_attempts=1),
        search_attributes=SearchAttributes(indexed_fields={"t": payload(8)}),
        backoff_start_interval=Duration(seconds=9),
    )
    assert attributes.task_queue.name == "other"
    assert list(attributes.input.payloads) == [payload(5)]
    assert attributes.header.fields["h"] == payload(6)
    assert dict(attributes.memo.fields) == {"n": payload(7)}
    assert attributes.retry_policy.maximum_attempts == 1
    assert dict(attributes.search_attributes.indexed_fields) == {"t": payload(8)}
    assert attributes.backoff_start_interval.seconds == 9
    assert not attributes.inherit_build_id


def test_continue_as_new_omits_what_is_empty() -> None:
    attributes = continued(FakeHost())
    for name in ("header", "memo", "retry_policy", "search_attributes"):
        assert not attributes.HasField(name)


def test_upsert() -> None:
    host = FakeHost()
    wanted = SearchAttributes(indexed_fields={"s": payload(1)})
    machine = UpsertSearchAttributesMachine(host, wanted, NO_ANNOTATIONS)
    host.prepare()
    attributes = host.commands()[0].upsert_workflow_search_attributes_command_attributes
    assert attributes.search_attributes == wanted
    machine.on_history(event("upsert_workflow_search_attributes"))
    assert machine.is_final
    assert not host.jobs


def test_modify_properties() -> None:
    host = FakeHost()
    memo = Memo(fields={"m": payload(1)})
    machine = ModifyPropertiesMachine(host, lang("modify_workflow_properties", upserted_memo=memo))
    host.prepare()
    attributes = host.commands()[0].modify_workflow_properties_command_attributes
    assert attributes.upserted_memo == memo
    machine.on_history(event("workflow_properties_modified"))
    assert machine.is_final
