"""A workflow told task by task sends the commands of its history, and sees what a replay sees."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.enums.v1 import CommandType
from temporalio.api.workflowservice.v1 import RespondWorkflowTaskCompletedResponse
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from tests.core.support.random_histories import Lang, Story, random_story

from perdure.core.actions import (
    Action,
    CompleteTask,
    LangActivation,
)
from perdure.core.history.events import COMMAND_EVENTS, NAMES, TASK_COMPLETED
from perdure.core.inputs import (
    Completed,
    Input,
    NewTask,
    Reported,
)
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_stream import WorkflowStream

SETTINGS = StreamSettings(
    namespace="namespace", task_queue="task-queue", identity="identity", sticky_queue="sticky"
)
EVENT_OF = {
    "START_TIMER": "TIMER_STARTED",
    "CANCEL_TIMER": "TIMER_CANCELED",
    "SCHEDULE_ACTIVITY_TASK": "ACTIVITY_TASK_SCHEDULED",
    "REQUEST_CANCEL_ACTIVITY_TASK": "ACTIVITY_TASK_CANCEL_REQUESTED",
    "START_CHILD_WORKFLOW_EXECUTION": "START_CHILD_WORKFLOW_EXECUTION_INITIATED",
    "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION": "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED",
    "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION": (
        "REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED"
    ),
    "RECORD_MARKER": "MARKER_RECORDED",
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES": "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
    "MODIFY_WORKFLOW_PROPERTIES": "WORKFLOW_PROPERTIES_MODIFIED",
    "SCHEDULE_NEXUS_OPERATION": "NEXUS_OPERATION_SCHEDULED",
    "REQUEST_CANCEL_NEXUS_OPERATION": "NEXUS_OPERATION_CANCEL_REQUESTED",
    "COMPLETE_WORKFLOW_EXECUTION": "WORKFLOW_EXECUTION_COMPLETED",
    "FAIL_WORKFLOW_EXECUTION": "WORKFLOW_EXECUTION_FAILED",
    "CANCEL_WORKFLOW_EXECUTION": "WORKFLOW_EXECUTION_CANCELED",
    "CONTINUE_AS_NEW_WORKFLOW_EXECUTION": "WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
}


class World:
    """A server that has the story's history, a stream, and the workflow's code."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.stream = WorkflowStream(SETTINGS)
        self.lang = Lang(story)
        self.activations: list[WorkflowActivation] = []
        self.sent: list[list[str]] = []

    def task(self, given: Input) -> None:
        """Everything that follows from one input."""
        actions: deque[Action] = deque(self.stream.handle(given))
        while actions:
            action = actions.popleft()
            if isinstance(action, LangActivation):
                data = action.activation.SerializeToString()
                activation = WorkflowActivation.FromString(data)
                self.activations.append(activation)
                actions.extend(self.stream.handle(Completed(self.lang.answer(activation))))
            elif isinstance(action, CompleteTask):
                self.sent.append([event_of(command) for command in action.request.commands])
                answer = Reported(action.run_id, 0.0, RespondWorkflowTaskCompletedResponse())
                actions.extend(self.stream.handle(answer))

    def worked(self) -> list[WorkflowActivation]:
        """The activations that were not evictions."""
        return [one for one in self.activations if not one.jobs[0].HasField("remove_from_cache")]


def jobs_of(world: World) -> list[bytes]:
    """All jobs, without order: a replay merges tasks that were heartbeats, and sorts what they had.

    Only a replay is told of patches: live code asks for itself.
    """
    return sorted(
        job.SerializeToString(deterministic=True)
        for activation in world.worked()
        for job in activation.jobs
        if not job.HasField("notify_has_patch")
    )


def event_of(command: Command) -> str:
    name = CommandType.Name(command.command_type).removeprefix("COMMAND_TYPE_")
    return EVENT_OF[name]


def recorded(story: Story, started_event_id: int) -> list[str]:
    """What the history says was sent when this task was completed."""
    events = story.built.events[started_event_id:]
    if not events or events[0].event_type != TASK_COMPLETED:
        return []
    names = []
    for event in events[1:]:
        if event.event_type not in COMMAND_EVENTS:
            break
        names.append(NAMES[event.event_type])
    return names


@pytest.mark.parametrize("seed", range(4))
def test_a_story_told_task_by_task(seed: int) -> None:
    random = Random(seed)
    for number in range(50):
        story = random_story(random, f"run-{number}", live=True)
        world = World(story)
        ends = story.built.task_ends()
        for index, _ in enumerate(ends, start=1):
            part = story.built.only_task(index)
            world.task(NewTask(story.built.poll(part), "permit", 0.0))
        assert world.sent == [recorded(story, end) for end in ends]
        assert not any(activation.is_replaying for activation in world.worked())
        replay = World(story)
        replay.task(NewTask(story.built.poll(), "permit", 0.0))
        assert jobs_of(world) == jobs_of(replay)
