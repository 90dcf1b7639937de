"""What is measured of a request, and against which limit."""

from __future__ import annotations

import pytest
import temporalio.api.workflowservice.v1 as requests
from google.protobuf.message import Message
from temporalio.api.common.v1 import Memo, Payload, Payloads
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    ExecuteMultiOperationRequest,
    RespondActivityTaskCompletedRequest,
    RespondActivityTaskFailedRequest,
    RespondWorkflowTaskCompletedRequest,
    StartWorkflowExecutionRequest,
)

from perdure.core.payload_limits import _FIELDS, Limit, Limits, excesses

LIMITS = Limits(payloads=100, memo=50)


def payloads(size: int) -> Payloads:
    return Payloads(payloads=[Payload(data=b"x" * size)])


def found(request: Message, *, refused: bool = False) -> list[tuple[str, Limit, int]]:
    return [
        (excess.field, excess.limit, excess.size)
        for excess in excesses(request, LIMITS, refused=refused)
    ]


def test_a_list_of_payloads_counts_as_its_whole_message() -> None:
    request = StartWorkflowExecutionRequest(input=payloads(60))
    request.input.payloads.add(data=b"y" * 60)
    assert found(request) == [("input", Limit.PAYLOADS, request.input.ByteSize())]


def test_exactly_at_the_limit_is_not_over_it() -> None:
    request = StartWorkflowExecutionRequest(input=payloads(96))
    assert request.input.ByteSize() == 100
    assert found(request) == []
    request.input.payloads[0].data += b"x"
    assert found(request) == [("input", Limit.PAYLOADS, 101)]


def test_a_limit_of_zero_is_none() -> None:
    request = StartWorkflowExecutionRequest(input=payloads(1000))
    request.memo.fields["m"].data = b"x" * 1000
    assert excesses(request, Limits()) == []
    (only,) = excesses(request, Limits(memo=50))
    assert only.limit is Limit.MEMO


def test_a_memo_has_its_own_limit() -> None:
    memo = Memo(fields={"m": Payload(data=b"x" * 60)})
    request = StartWorkflowExecutionRequest(memo=memo)
    assert found(request) == [("memo", Limit.MEMO, memo.ByteSize())]


def test_headers_and_user_metadata_are_not_measured() -> None:
    request = StartWorkflowExecutionRequest()
    request.header.fields["h"].data = b"x" * 1000
    request.user_metadata.summary.data = b"x" * 1000
    assert found(request) == []


def test_each_command_is_measured_by_itself_and_the_first_comes_first() -> None:
    request = RespondWorkflowTaskCompletedRequest()
    for size in (60, 200, 60):
        attributes = request.commands.add().schedule_activity_task_command_attributes
        attributes.input.CopyFrom(payloads(size))
    child = request.commands.add().start_child_workflow_execution_command_attributes
    child.memo.fields["m"].data = b"x" * 60
    assert [field for field, _, _ in found(request)] == [
        "commands[1].schedule_activity_task_command_attributes.input",
        "commands[3].start_child_workflow_execution_command_attributes.memo",
    ]


def test_upserts_count_names_and_raw_values_against_the_payload_limit() -> None:
    request = RespondWorkflowTaskCompletedRequest()
    memo = request.commands.add().modify_workflow_properties_command_attributes.upserted_memo
    memo.fields["abcd"].CopyFrom(Payload(data=b"x" * 100, metadata={"encoding": b"whatever"}))
    memo.fields["ef"].data = b"x" * 200
    attributes = request.commands.add().upsert_workflow_search_attributes_command_attributes
    attributes.search_attributes.indexed_fields["a"].data = b"x" * 100
    assert [(limit, size) for _, limit, size in found(request)] == [
        (Limit.PAYLOADS, 306),
        (Limit.PAYLOADS, 101),
    ]


def test_the_details_of_a_marker_count_together() -> None:
    request = RespondWorkflowTaskCompletedRequest()
    details = request.commands.add().record_marker_command_attributes.details
    details["key1"].CopyFrom(payloads(100))
    details["k2"].CopyFrom(payloads(50))
    assert [size for _, _, size in found(request)] == [4 + 104 + 2 + 54]


def test_failures_and_answers_of_queries_are_told_of_but_not_refused() -> None:
    failed = RespondActivityTaskFailedRequest()
    failed.failure.message = "x" * 200
    answered = RespondWorkflowTaskCompletedRequest()
    answered.query_results["q"].answer.CopyFrom(payloads(200))
    for request, field in ((failed, "failure"), (answered, "query_results[q].answer")):
        assert [name for name, _, _ in found(request)] == [field]
        assert found(request, refused=True) == []


def test_results_and_messages_are_refused() -> None:
    result = RespondActivityTaskCompletedRequest(result=payloads(200))
    assert [field for field, _, _ in found(result, refused=True)] == ["result"]
    update = RespondWorkflowTaskCompletedRequest()
    update.messages.add().body.value = b"x" * 200
    assert [field for field, _, _ in found(update, refused=True)] == ["messages[0].body"]


def test_starts_inside_of_other_requests_are_measured() -> None:
    schedule = CreateScheduleRequest()
    schedule.schedule.action.start_workflow.input.CopyFrom(payloads(200))
    assert [field for field, _, _ in found(schedule)] == ["schedule.action.start_workflow.input"]
    both = ExecuteMultiOperationRequest()
    both.operations.add().start_workflow.input.CopyFrom(payloads(200))
    assert [field for field, _, _ in found(both)] == ["operations[0].start_workflow.input"]


@pytest.mark.parametrize("name", _FIELDS)
def test_every_listed_field_exists(name: str) -> None:
    for field in _FIELDS[name]:
        descriptor = getattr(requests, name).DESCRIPTOR
        for part in field.split("."):
            descriptor = descriptor.fields_by_name[part].message_type
            if descriptor.GetOptions().map_entry:
                descriptor = descriptor.fields_by_name["value"].message_type
