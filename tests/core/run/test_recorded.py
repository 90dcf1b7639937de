"""Replays of real histories, activation by activation as the compiled core gave them.

A recording is gzipped and holds length-prefixed messages: a history that a real server wrote, then
what the compiled core said to lang while it replayed the history, and what lang answered, in turn.
Here lang is the recording: with the same answers the activations have to be the same.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from temporalio.api.history.v1 import History
from temporalio.bridge.proto.workflow_activation.workflow_activation_pb2 import WorkflowActivation
from temporalio.bridge.proto.workflow_completion.workflow_completion_pb2 import (
    WorkflowActivationCompletion,
)
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.machines_driver import Driver

from perdure.core.run_info import RunInfo
from perdure.core.workflow_tasks.completion import Succeeded, in_order, validate

RECORDINGS = sorted((Path(__file__).parent / "recorded").glob("*.bin.gz"))


def read(path: Path) -> tuple[History, list[tuple[WorkflowActivation, Succeeded]]]:
    """The history, and pairs of activation and answer without the final eviction."""
    data = gzip.decompress(path.read_bytes())
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    pairs = []
    for said, answered in zip(parts[1::2], parts[2::2], strict=True):
        activation = WorkflowActivation.FromString(said)
        answer = validate(WorkflowActivationCompletion.FromString(answered))
        assert isinstance(answer, Succeeded)
        pairs.append((activation, answer))
    assert pairs[-1][0].jobs[0].HasField("remove_from_cache")
    return History.FromString(parts[0]), pairs[:-1]


def without_own_version(activation: WorkflowActivation) -> WorkflowActivation:
    """Live activations carry the version of the worker, which is another one here."""
    if not activation.is_replaying:
        activation.ClearField("deployment_version_for_current_task")
    return activation


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.removesuffix(".bin.gz"))
def test_activations_are_those_of_the_official_core(path: Path) -> None:
    history, pairs = read(path)
    built = HistoryBuilder()
    built.events = list(history.events)
    started = built.events[0].workflow_execution_started_event_attributes
    run = RunInfo(
        namespace="ReplayNamespace",
        workflow_id=pairs[0][0].jobs[0].initialize_workflow.workflow_id,
        run_id=pairs[0][0].run_id,
        workflow_type=started.workflow_type.name,
        task_queue=started.task_queue.name,
    )
    driver = Driver(built, run=run)
    machines = driver.machines
    driver.step()
    for expected, answer in pairs:
        assert without_own_version(driver.activation()) == without_own_version(expected)
        machines.record_lang_flags(answer.used_flags)
        keep = machines.keeps_commands_after_terminal()
        machines.iterate(in_order(answer.commands, keep_after_terminal=keep))
        driver.advance()
    assert machines.drain_jobs() == []
    assert machines.have_seen_terminal_event


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 4
