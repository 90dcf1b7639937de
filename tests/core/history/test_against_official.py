"""The compiled core cuts random histories where this one does."""

from __future__ import annotations

from random import Random

import pytest
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.official import needs_official_core, official_activations
from tests.core.support.random_histories import random_story

from perdure.core.history.events import NAMES
from perdure.core.history.sequences import HistoryUpdate, TaskSequence

COUNT = 150


def sequences(built: HistoryBuilder) -> list[TaskSequence]:
    part = built.whole()
    update = HistoryUpdate(
        part.events,
        previous_started_id=part.previous_started_event_id,
        started_id=part.started_event_id,
    )
    taken = []
    from_id = 0
    while isinstance(sequence := update.take_next_sequence(from_id), TaskSequence):
        taken.append(sequence)
        from_id = sequence.events[-1].event_id
    return taken


def signals_by_end(built: HistoryBuilder) -> dict[int, int]:
    """How many signals each sequence holds, by the id of its last event."""
    return {
        sequence.events[-1].event_id: sum(
            NAMES[event.event_type] == "WORKFLOW_EXECUTION_SIGNALED" for event in sequence.events
        )
        for sequence in sequences(built)
    }


@needs_official_core
@pytest.mark.parametrize("seed", [1, 2])
def test_sequences_are_those_of_the_official_core(seed: int) -> None:
    random = Random(seed)
    for number, activations in enumerate(official_activations(seed, COUNT)):
        built = random_story(random, f"run-{number}").built
        expected = signals_by_end(built)
        *worked, eviction = activations
        reason = eviction.jobs[0].remove_from_cache.reason
        assert reason == RemoveFromCache.EvictionReason.LANG_REQUESTED
        found = dict.fromkeys(expected, 0)
        for activation in worked:
            assert activation.history_length in expected
            found[activation.history_length] += sum(
                job.HasField("signal_workflow") for job in activation.jobs
            )
        assert found == expected
    assert number == COUNT - 1
