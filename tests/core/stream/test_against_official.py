"""The stream replays random histories as the compiled core does, activation by activation."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from temporalio.api.workflowservice.v1 import RespondWorkflowTaskCompletedResponse
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from tests.core.support.official import needs_official_core, official_activations
from tests.core.support.random_histories import Lang, Story, random_story

from perdure.core.actions import (
    Action,
    CompleteTask,
    LangActivation,
)
from perdure.core.inputs import (
    Completed,
    Input,
    NewTask,
    Reported,
)
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_stream import WorkflowStream

COUNT = 150
SETTINGS = StreamSettings(
    namespace="namespace",
    task_queue="task-queue",
    identity="identity",
    max_cached_workflows=2,
    evict_after_replay=True,
)


def replayed(story: Story) -> list[WorkflowActivation]:
    """All activations of a replay, as lang gets them."""
    stream = WorkflowStream(SETTINGS)
    lang = Lang(story)
    activations = []
    actions: deque[Action] = deque(stream.handle(NewTask(story.built.poll(), "permit", 0.0)))
    while actions:
        action = actions.popleft()
        answer: Input
        if isinstance(action, LangActivation):
            data = action.activation.SerializeToString()
            activations.append(WorkflowActivation.FromString(data))
            answer = Completed(lang.answer(activations[-1]))
        elif isinstance(action, CompleteTask):
            answer = Reported(action.run_id, 0.0, RespondWorkflowTaskCompletedResponse())
        else:
            continue
        actions.extend(stream.handle(answer))
    return activations


@needs_official_core
@pytest.mark.parametrize("seed", [1, 2])
def test_activations_are_those_of_the_official_core(seed: int) -> None:
    random = Random(seed)
    official = official_activations(seed, COUNT)
    assert len(official) == COUNT
    for number, expected in enumerate(official):
        assert replayed(random_story(random, f"run-{number}")) == expected
