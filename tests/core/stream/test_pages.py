"""Where the pages of a history end changes nothing of what lang sees."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.workflowservice.v1 import RespondWorkflowTaskCompletedResponse
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from tests.core.support.history_builder import HistorySlice
from tests.core.support.random_histories import Lang, Story, random_story

from perdure.core.actions import (
    Action,
    CompleteTask,
    FetchPage,
    LangActivation,
)
from perdure.core.inputs import (
    Completed,
    Input,
    NewTask,
    PageFetched,
    Reported,
)
from perdure.core.stream_settings import StreamSettings
from perdure.core.workflow_stream import WorkflowStream

SETTINGS = StreamSettings(
    namespace="namespace", task_queue="task-queue", identity="identity", evict_after_replay=True
)


class Replay:
    """A replay of one story by a stream that has to fetch the history in pages of `size`."""

    def __init__(self, story: Story, size: int) -> None:
        self.story = story
        self.size = size
        self.whole = story.built.whole()
        self.activations: list[WorkflowActivation] = []
        self.fetched = 0

    def from_first_page(self) -> list[WorkflowActivation]:
        """The poll carries the first page."""
        return self._run(self.whole.events[: self.size], self._token(self.size))

    def from_newest_events(self) -> list[WorkflowActivation]:
        """The poll carries only the last events, for a run that is not in the cache."""
        newest = self.whole.events[self.whole.previous_started_event_id :]
        return self._run(newest or self.whole.events[-1:], b"")

    def _token(self, end: int) -> bytes:
        return b"%d" % end if end < len(self.whole.events) else b""

    def _run(self, events: list[HistoryEvent], token: bytes) -> list[WorkflowActivation]:
        stream = WorkflowStream(SETTINGS)
        lang = Lang(self.story)
        whole = self.whole
        part = HistorySlice(events, whole.previous_started_event_id, whole.started_event_id)
        poll = self.story.built.poll(part, next_page_token=token)
        actions: deque[Action] = deque(stream.handle(NewTask(poll, "permit", 0.0)))
        while actions:
            answer = self._answer(lang, actions.popleft())
            if answer is not None:
                actions.extend(stream.handle(answer))
        return self.activations

    def _answer(self, lang: Lang, action: Action) -> Input | None:
        if isinstance(action, LangActivation):
            data = action.activation.SerializeToString()
            activation = WorkflowActivation.FromString(data)
            self.activations.append(activation)
            return Completed(lang.answer(activation))
        if isinstance(action, CompleteTask):
            return Reported(action.run_id, 0.0, RespondWorkflowTaskCompletedResponse())
        if isinstance(action, FetchPage):
            self.fetched += 1
            begin = int(action.token or b"0")
            end = begin + self.size
            page = History(events=self.whole.events[begin:end])
            return PageFetched(action.fetch, page, self._token(end))
        return None


def replayed_at_once(story: Story) -> list[WorkflowActivation]:
    replay = Replay(story, len(story.built.events))
    activations = replay.from_first_page()
    assert replay.fetched == 0
    assert activations[-1].jobs[0].HasField("remove_from_cache")
    return activations


@pytest.mark.parametrize("seed", range(4))
def test_pages_of_any_size_give_the_same_activations(seed: int) -> None:
    """Rows: random_workflow_replays."""
    random = Random(seed)
    fetched = 0
    for number in range(25):
        story = random_story(random, f"run-{number}")
        expected = replayed_at_once(story)
        for size in (1, 2, 3, 5, 8, 13):
            replay = Replay(story, size)
            assert replay.from_first_page() == expected
            fetched += replay.fetched
    assert fetched > 0


@pytest.mark.parametrize("size", [1, 4, 10_000])
def test_a_lost_cache_gives_the_same_activations(size: int) -> None:
    random = Random(size)
    for number in range(25):
        story = random_story(random, f"run-{number}")
        replay = Replay(story, size)
        assert replay.from_newest_events() == replayed_at_once(story)
        assert replay.fetched > 0
