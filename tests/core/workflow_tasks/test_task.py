"""Workflow tasks: unpacked, and buffered for a run that is busy."""

from __future__ import annotations

import pytest
from temporalio.api.query.v1 import WorkflowQuery
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistorySlice
from tests.core.support.stage import queries

from perdure.core.history.paginator import HistoryPaginator
from perdure.core.history.sequences import HistoryUpdate
from perdure.core.workflow_tasks.task import (
    HeldTask,
    MalformedTask,
    OutstandingTask,
    TaskBuffer,
    prepare,
)


def held(name: str, *, query_only: bool) -> HeldTask:
    built = single_timer()
    if query_only:
        response = built.poll(HistorySlice([], 3, 0), query=WorkflowQuery(query_type="q"))
    else:
        response = built.poll()
    pages = HistoryPaginator(previous_started_id=0, started_id=0)
    update = HistoryUpdate([], previous_started_id=0, started_id=0)
    return HeldTask(prepare(response), name, 0.0, pages, update)


def test_a_task_is_unpacked() -> None:
    built = single_timer()
    work = prepare(built.poll(queries=queries(b="two", a="one"), next_page_token=b"more"))
    assert (work.workflow_id, work.run_id) == ("workflow-id", "run-id")
    assert (work.workflow_type, work.task_queue) == ("workflow-type", "task-queue")
    assert (work.previous_started_event_id, work.started_event_id) == (3, 8)
    assert [query_id for query_id, _ in work.queries] == ["a", "b"]
    assert work.next_page_token == b"more"
    assert not work.is_query_only


def test_a_lone_query_is_known() -> None:
    work = held("x", query_only=True).work
    assert work.is_query_only
    task = OutstandingTask(work, None, 0.0)
    assert task.has_legacy_query
    assert [query_id for query_id, _ in task.pending_queries] == ["legacy_query"]


@pytest.mark.parametrize(
    "field",
    [
        "task_token",
        "workflow_execution",
        "workflow_type",
        "history",
        "workflow_execution_task_queue",
    ],
)
def test_what_is_missing_is_named(field: str) -> None:
    response = single_timer().poll()
    response.ClearField(field)  # type: ignore[arg-type]
    with pytest.raises(MalformedTask) as caught:
        prepare(response)
    assert caught.value.missing == field.replace("_", " ")


def test_tasks_leave_the_buffer_in_order() -> None:
    buffer = TaskBuffer()
    for name, query_only in (("q1", True), ("real", False), ("q2", True), ("q3", True)):
        assert buffer.put(held(name, query_only=query_only)) == []
    assert len(buffer) == 4
    assert buffer.has_real_task
    assert [task.permit for task in buffer.drain()] == ["q1", "q2", "q3", "real"]
    assert len(buffer) == 0


def test_a_newer_real_task_drops_the_older_one_and_its_queries() -> None:
    buffer = TaskBuffer()
    for name, query_only in (("q1", True), ("old", False), ("q2", True)):
        buffer.put(held(name, query_only=query_only))
    assert [task.permit for task in buffer.put(held("new", query_only=False))] == ["old", "q2"]
    assert [task.permit for task in buffer.drain()] == ["q1", "new"]
