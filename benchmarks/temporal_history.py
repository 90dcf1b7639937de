"""Histories of `Rounds` and `Batches`, event by event as a server writes them, of any length.

Recording ten thousand events on a server takes minutes, and the figures are about the replay. Both
cores replay the result to its end, which proves that it is a possible history.
"""

from __future__ import annotations

from collections.abc import Iterable

from temporalio.api.common.v1 import ActivityType, Payload, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType, TaskQueueKind
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.api.taskqueue.v1 import TaskQueue

from benchmarks.temporal_workflows import BATCH

__all__ = ["batches", "rounds"]

_QUEUE = TaskQueue(name="queue", kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
_START = 1_700_000_000
_EVENTS_PER_ROUND = 15
_EVENTS_PER_BATCH = 3 * BATCH + 3


def rounds(events: int) -> History:
    """About so many events of `Rounds`: activity, timer and signal, one after the other."""
    count = events // _EVENTS_PER_ROUND
    story = _Story("Rounds", count)
    number = 0
    for number in range(1, count + 1):
        for scheduled in story.schedule([number - 1], first=number):
            story.complete_activity(scheduled, number)
        story.task()
        story.timer(number)
        story.task()
        story.signal()
        if number < count:
            story.task()
    story.end(sum(range(1, count + 1)))
    return story.history


def batches(events: int) -> History:
    """About so many events of `Batches`: many activities at once, and again."""
    count = events // _EVENTS_PER_BATCH
    story = _Story("Batches", count)
    for batch in range(count):
        scheduled = story.schedule(range(BATCH), first=batch * BATCH + 1)
        for number, event_id in enumerate(scheduled):
            story.complete_activity(event_id, number + 1)
        if batch < count - 1:
            story.task()
    story.end(count * sum(range(1, BATCH + 1)))
    return story.history


class _Story:
    """A history that grows."""

    def __init__(self, workflow: str, argument: int) -> None:
        self.history = History()
        event = self._add("WORKFLOW_EXECUTION_STARTED")
        started = event.workflow_execution_started_event_attributes
        started.workflow_type.CopyFrom(WorkflowType(name=workflow))
        started.task_queue.CopyFrom(_QUEUE)
        started.input.CopyFrom(_payloads(argument))
        started.workflow_task_timeout.seconds = 10
        started.original_execution_run_id = started.first_execution_run_id = "run"
        started.attempt = 1
        self._is_first_task = True
        self.task()

    def task(self) -> None:
        """A workflow task that is scheduled, started and completed."""
        scheduled = self._add("WORKFLOW_TASK_SCHEDULED")
        scheduled.workflow_task_scheduled_event_attributes.task_queue.CopyFrom(_QUEUE)
        started = self._add("WORKFLOW_TASK_STARTED")
        started.workflow_task_started_event_attributes.scheduled_event_id = scheduled.event_id
        completed = self._add("WORKFLOW_TASK_COMPLETED")
        attributes = completed.workflow_task_completed_event_attributes
        attributes.scheduled_event_id = scheduled.event_id
        attributes.started_event_id = started.event_id
        if self._is_first_task:
            self._is_first_task = False
            attributes.sdk_metadata.CopyFrom(
                WorkflowTaskCompletedMetadata(
                    core_used_flags=[1, 2, 3, 4], lang_used_flags=[1], sdk_name="temporal-python"
                )
            )

    def schedule(self, numbers: Iterable[int], *, first: int) -> list[int]:
        """Activities with these arguments and ids from `first`; the ids of their events."""
        ids = []
        for offset, number in enumerate(numbers):
            event = self._add("ACTIVITY_TASK_SCHEDULED")
            attributes = event.activity_task_scheduled_event_attributes
            attributes.activity_id = str(first + offset)
            attributes.activity_type.CopyFrom(ActivityType(name="add_one"))
            attributes.task_queue.CopyFrom(_QUEUE)
            attributes.input.CopyFrom(_payloads(number))
            ids.append(event.event_id)
        return ids

    def complete_activity(self, scheduled: int, result: int) -> None:
        started = self._add("ACTIVITY_TASK_STARTED")
        started.activity_task_started_event_attributes.scheduled_event_id = scheduled
        completed = self._add("ACTIVITY_TASK_COMPLETED")
        attributes = completed.activity_task_completed_event_attributes
        attributes.scheduled_event_id = scheduled
        attributes.started_event_id = started.event_id
        attributes.result.CopyFrom(_payloads(result))

    def timer(self, number: int) -> None:
        started = self._add("TIMER_STARTED")
        started.timer_started_event_attributes.timer_id = str(number)
        started.timer_started_event_attributes.start_to_fire_timeout.seconds = 1
        fired = self._add("TIMER_FIRED")
        fired.timer_fired_event_attributes.timer_id = str(number)
        fired.timer_fired_event_attributes.started_event_id = started.event_id

    def signal(self) -> None:
        event = self._add("WORKFLOW_EXECUTION_SIGNALED")
        event.workflow_execution_signaled_event_attributes.signal_name = "go_on"

    def end(self, result: int) -> None:
        self.task()
        event = self._add("WORKFLOW_EXECUTION_COMPLETED")
        attributes = event.workflow_execution_completed_event_attributes
        attributes.result.CopyFrom(_payloads(result))

    def _add(self, name: str) -> HistoryEvent:
        event_id = len(self.history.events) + 1
        event = self.history.events.add(
            event_id=event_id, event_type=EventType.Value(f"EVENT_TYPE_{name}")
        )
        event.event_time.seconds = _START + event_id
        return event


def _payloads(number: int) -> Payloads:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=str(number).encode())
    return Payloads(payloads=[payload])
