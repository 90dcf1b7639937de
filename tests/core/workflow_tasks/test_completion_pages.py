"""The answer of a workflow task, cut into pages."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio.api.workflowservice.v1 import RespondWorkflowTaskCompletedRequest

from perdure.core.workflow_tasks.completion_pages import Pages, pages_of

PAGE = 1000


def completion(sizes: Iterable[int]) -> RespondWorkflowTaskCompletedRequest:
    request = RespondWorkflowTaskCompletedRequest(
        task_token=b"token",
        identity="me",
        namespace="default",
        worker_instance_key="key",
        return_new_workflow_task=True,
    )
    request.sdk_metadata.core_used_flags.append(3)
    request.messages.add(id="m").body.value = b"message"
    for number, size in enumerate(sizes):
        attributes = request.commands.add().schedule_activity_task_command_attributes
        attributes.activity_id = str(number)
        attributes.input.payloads.add(data=b"x" * size)
    return request


def activities(page: RespondWorkflowTaskCompletedRequest) -> list[str]:
    return [c.schedule_activity_task_command_attributes.activity_id for c in page.commands]


def cut(request: RespondWorkflowTaskCompletedRequest) -> Pages:
    pages = pages_of(request, PAGE)
    assert pages is not None
    return pages


def test_what_fits_into_a_page_is_sent_whole() -> None:
    assert pages_of(completion([300, 300]), PAGE) is None


def test_commands_go_ahead_in_order_and_fill_the_pages() -> None:
    pages = cut(completion([400, 400, 400, 900, 10]))
    assert [activities(page) for page in pages.intermediate] == [["0", "1"], ["2"], ["3", "4"]]
    assert all(page.ByteSize() < PAGE + 100 for page in pages.intermediate)


def test_an_intermediate_page_says_only_what_it_belongs_to() -> None:
    first, second = cut(completion([600, 600])).intermediate
    for number, page in enumerate((first, second)):
        page.ClearField("commands")
        assert page == RespondWorkflowTaskCompletedRequest(
            task_token=b"token",
            identity="me",
            namespace="default",
            page_number=number,
            intermediate_page=True,
        )


def test_the_final_page_is_the_answer_without_its_commands() -> None:
    request = completion([600, 600])
    final = cut(request).final
    request.ClearField("commands")
    request.page_number = 2
    assert final == request


def test_large_messages_stay_in_the_final_page() -> None:
    request = completion([1])
    request.messages[0].body.value = b"x" * 2 * PAGE
    pages = cut(request)
    assert [activities(page) for page in pages.intermediate] == [["0"]]
    assert pages.final.messages == request.messages


def test_one_command_that_is_too_large_keeps_the_answer_whole() -> None:
    assert pages_of(completion([10, 2 * PAGE, 10]), PAGE) is None


def test_an_answer_without_commands_is_sent_whole() -> None:
    request = completion([])
    request.messages[0].body.value = b"x" * 2 * PAGE
    assert pages_of(request, PAGE) is None
