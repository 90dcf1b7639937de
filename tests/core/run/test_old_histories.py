"""Histories that older cores have written: what they lack, and how they are replayed all the same.

The official recordings are not ours to copy; these are the same shapes, built event by event.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from tests.core.support.fake_host import lang_message
from tests.core.support.history_builder import HistoryBuilder, cancelled_failure
from tests.core.support.scenario import Answers, replayed, told
from tests.core.support.stage import (
    Stage,
    complete_workflow,
    kinds,
    run_local,
    schedule_activity,
    start_timer,
)

from perdure.core.actions import FailTask
from perdure.core.versioning import BuildId


def begun(*flags: int) -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.task_scheduled_and_started()
    built.task_completed(core_flags=flags)
    return built


def answer_update(kind: str, instance_id: str = "update") -> WorkflowCommand:
    command = WorkflowCommand()
    command.update_response.protocol_instance_id = instance_id
    getattr(command.update_response, kind).SetInParent()
    return command


ACCEPT, FINISH = answer_update("accepted"), answer_update("completed")


# Local activities with updates, heartbeat by heartbeat, in the order of the official recordings


def accepted_in_the_first_heartbeat() -> tuple[HistoryBuilder, Answers]:
    """The update comes in a task that was only a heartbeat till then, and the marker later."""
    built = begun(1, 2, 3)
    sequencing = built.task_scheduled_and_started() - 1
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=sequencing)
    built.update_completed(accepted)
    built.full_task()
    built.local_activity_marker(1, "done")
    built.completed()
    return built, [[run_local(1)], [ACCEPT, FINISH], [complete_workflow()]]


def accepted_after_heartbeats() -> tuple[HistoryBuilder, Answers]:
    """Two heartbeats went by before the update."""
    built = begun(1, 2, 3)
    built.full_task()
    built.full_task()
    sequencing = built.task_scheduled_and_started() - 1
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=sequencing)
    built.update_completed(accepted)
    built.full_task()
    built.local_activity_marker(1, "done")
    built.completed()
    return built, [[run_local(1)], [ACCEPT, FINISH], [complete_workflow()]]


def finished_with_the_activity() -> tuple[HistoryBuilder, Answers]:
    """The update waits for the local activity, so both end in one task."""
    built = begun(1, 2, 3)
    sequencing = built.task_scheduled_and_started() - 1
    built.task_completed()
    accepted = built.update_accepted(sequencing_event_id=sequencing)
    built.full_task()
    built.full_task()
    built.local_activity_marker(1, "done")
    built.update_completed(accepted)
    built.completed()
    return built, [[run_local(1)], [ACCEPT], [FINISH, complete_workflow()]]


def two_updates_around_the_activity() -> tuple[HistoryBuilder, Answers]:
    """One before the marker and one with it."""
    built = begun(1, 2, 3)
    sequencing = built.task_scheduled_and_started() - 1
    built.task_completed()
    accepted = built.update_accepted("one", sequencing_event_id=sequencing)
    built.update_completed(accepted, "one")
    built.full_task()
    built.local_activity_marker(1, "done")
    sequencing = built.task_scheduled_and_started() - 1
    built.task_completed()
    accepted = built.update_accepted("two", sequencing_event_id=sequencing)
    built.update_completed(accepted, "two")
    built.completed()
    one = [answer_update("accepted", "one"), answer_update("completed", "one")]
    two = [answer_update("accepted", "two"), answer_update("completed", "two")]
    return built, [[run_local(1)], one, [], [*two, complete_workflow()]]


@pytest.mark.parametrize(
    "build",
    [
        accepted_in_the_first_heartbeat,
        accepted_after_heartbeats,
        finished_with_the_activity,
        two_updates_around_the_activity,
    ],
    ids=lambda build: build.__name__,
)
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "old"])
def test_long_local_activity_with_update(build: Any, indexed: bool) -> None:
    """Each update reaches lang in a task of its own, before the result that came later."""
    built, answers = build()
    if indexed:
        for event in built.events:
            details = event.marker_recorded_event_attributes.details
            if "data" in details:
                data = json.loads(details["data"].payloads[0].data) | {"activation_index": 0}
                details["data"].payloads[0].data = json.dumps(data).encode()
    activations = replayed(built, answers)
    jobs = [kind for activation in told(activations) for kind in activation]
    assert jobs[:2] == ["initialize_workflow", "do_update"]
    assert jobs.count("resolve_activity") == 1
    assert jobs.index("do_update") < jobs.index("resolve_activity")
    assert all(activation.is_replaying for activation in activations)


# Markers of local activities


@pytest.mark.parametrize("count", [1, 2, 5])
def test_la_replay_without_activation_index(count: int) -> None:
    """Results without an index are given out all together, as they were when they were written."""
    built = begun(1, 2, 3)
    for seq in range(1, count + 1):
        built.local_activity_marker(seq, seq)
    built.completed()
    answers = [[run_local(seq) for seq in range(1, count + 1)], [complete_workflow()]]
    assert told(replayed(built, answers)) == [
        ["initialize_workflow"],
        ["resolve_activity"] * count,
    ]


def test_a_marker_with_the_least_that_it_can_say() -> None:
    """Keys that may be null may be missing, and keys that nobody knows are nobody's business."""
    built = begun()
    marker = built.local_activity_marker(1, "done")
    details = built.event(marker).marker_recorded_event_attributes.details["data"].payloads[0]
    details.data = (
        b'{"seq":1,"attempt":1,"activity_id":"1","activity_type":"activity","from_the_future":{}}'
    )
    built.completed()
    activations = replayed(built, [[run_local(1)], [complete_workflow()]])
    assert told(activations) == [["initialize_workflow"], ["resolve_activity"]]


def test_a_marker_of_a_cancelled_local_activity() -> None:
    built = begun()
    built.local_activity_marker(1, failure=cancelled_failure())
    built.completed()
    activations = replayed(built, [[run_local(1)], [complete_workflow()]])
    assert activations[1].jobs[0].resolve_activity.result.HasField("cancelled")


# Patches


@pytest.mark.parametrize("deprecated", [False, True])
def test_old_change_marker_format(deprecated: bool) -> None:
    """Two raw-bytes details, no search attribute, no flags."""
    built = begun()
    built.old_patch_marker("change", deprecated=deprecated)
    built.timer_fired(built.timer_started(1), 1)
    built.full_task()
    built.completed()
    ask = lang_message("set_patch_marker", patch_id="change", deprecated=deprecated)
    jobs = told(replayed(built, [[ask, start_timer(1)], [complete_workflow()]]))
    assert jobs == [["initialize_workflow", "notify_has_patch"], ["fire_timer"]]


def test_a_patch_without_its_search_attribute() -> None:
    """Cores before flag 2 wrote none; this one writes it as soon as it goes on by itself."""
    built = begun(1)
    built.patch_marker("change")
    built.timer_fired(built.timer_started(1), 1)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    ask = lang_message("set_patch_marker", patch_id="change")
    stage.complete(ask, start_timer(1))
    assert kinds(stage.activation()) == ["fire_timer"]
    stage.complete(lang_message("set_patch_marker", patch_id="another"), start_timer(2))
    request = stage.completion()
    upserts = [
        command.upsert_workflow_search_attributes_command_attributes.search_attributes
        for command in request.commands
        if command.HasField("upsert_workflow_search_attributes_command_attributes")
    ]
    (attributes,) = upserts
    versions = json.loads(attributes.indexed_fields["TemporalChangeVersion"].data)
    assert versions == ["another", "change"]
    assert list(request.sdk_metadata.core_used_flags) == [2, 3, 4]


# Flags


def other_activity() -> tuple[HistoryBuilder, Answers]:
    """The code has renamed the activity since."""
    built = begun()
    scheduled = built.activity_scheduled("1", "renamed since")
    built.activity_completed(scheduled, built.activity_started(scheduled))
    built.full_task()
    built.completed()
    return built, [[schedule_activity(1)], [complete_workflow()]]


def other_child() -> tuple[HistoryBuilder, Answers]:
    built = begun()
    child = built.child_initiated("another id", "another type")
    built.child_started(child, "another id", "another type")
    built.full_task()
    built.completed()
    start = lang_message(
        "start_child_workflow_execution", seq=1, workflow_id="child", workflow_type="child"
    )
    return built, [[start], [complete_workflow()]]


def other_nexus_operation() -> tuple[HistoryBuilder, Answers]:
    built = begun(1, 2, 3)
    scheduled = built.nexus_scheduled("endpoint", "service", "another operation")
    built.nexus("started", scheduled, operation_token="token")
    built.full_task()
    built.completed()
    schedule = lang_message(
        "schedule_nexus_operation",
        seq=1,
        endpoint="endpoint",
        service="service",
        operation="operation",
    )
    return built, [[schedule], [complete_workflow()]]


@pytest.mark.parametrize("build", [other_activity, other_child, other_nexus_operation])
def test_what_nobody_checked_then_is_not_checked_now(build: Any) -> None:
    """A history without the flag goes through; with it the same history does not."""
    built, answers = build()
    assert len(replayed(built, answers)) == 2
    built, answers = build()
    built.set_flags(4, core=[1, 4])
    with pytest.raises(AssertionError, match="TMPRL1100"):
        replayed(built, answers)


@pytest.mark.parametrize(
    ("flags", "ok"), [((), True), ((1, 2), True), ((3,), False)], ids=["none", "older", "moved"]
)
def test_replayer_command_reordering_backward_compatibility(
    flags: tuple[int, ...], *, ok: bool
) -> None:
    """test_replayer_command_reordering_backward_compatibility: without flag 3 a command behind the
    end of the workflow was dropped, so there is no event for it."""
    built = begun(*flags)
    built.completed()
    stage = Stage(evict_after_replay=True)
    stage.poll(built)
    stage.activation()
    stage.complete(complete_workflow(), start_timer(1))
    assert stage.has(FailTask) is not ok


def test_flags_that_came_in_the_midst_of_history() -> None:
    """A worker was replaced by a newer one: what that one found when it came, and all that follows,
    is checked."""
    built = begun()
    scheduled = built.activity_scheduled("1", "renamed since")
    built.activity_completed(scheduled, built.activity_started(scheduled))
    built.full_task()
    built.timer_fired(built.timer_started(9), 9)
    built.task_scheduled_and_started()
    built.task_completed(core_flags=[1, 2, 3, 4])
    later = built.activity_scheduled("2", "activity")
    built.activity_completed(later, built.activity_started(later))
    built.full_task()
    built.completed()
    answers = [
        [schedule_activity(1)],
        [start_timer(9)],
        [schedule_activity(2)],
        [complete_workflow()],
    ]
    assert len(replayed(built, answers)) == 4
    attributes = built.event(later).activity_task_scheduled_event_attributes
    attributes.activity_type.name = "renamed since"
    with pytest.raises(AssertionError, match="TMPRL1100"):
        replayed(built, answers)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_the_last_task_did_is_checked_without_a_flag(goes_on: bool) -> None:
    """As in the compiled core: a worker that takes a run over checks what it can still refuse."""
    built = begun()
    scheduled = built.activity_scheduled("1", "renamed since")
    built.activity_completed(scheduled, built.activity_started(scheduled))
    built.task_scheduled_and_started()
    answers: list[list[WorkflowCommand]] = [[schedule_activity(1)], [start_timer(2)]]
    if not goes_on:
        with pytest.raises(AssertionError, match="TMPRL1100"):
            replayed(built, answers)
        return
    built.task_completed()
    built.timer_fired(built.timer_started(2), 2)
    built.task_scheduled_and_started()
    assert len(replayed(built, [*answers, [complete_workflow()]])) == 3


def test_flags_of_the_future_are_left_alone() -> None:
    """A newer core was here: what it did is not known, and its flags are not written again."""
    built = begun(1, 2, 3, 4, 77)
    built.timer_fired(built.timer_started(1), 1)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    stage.complete(start_timer(1))
    stage.activation()
    stage.complete(complete_workflow())
    assert list(stage.completion().sdk_metadata.core_used_flags) == []


# Versions


def test_the_version_of_a_task_when_it_was_called_a_checksum() -> None:
    """Workers that knew only the checksum of their binary have no version in history."""
    built = begun()
    completed = built.event(4).workflow_task_completed_event_attributes
    completed.binary_checksum = "checksum"
    built.timer_fired(built.timer_started(1), 1)
    built.task_scheduled_and_started()
    stage = Stage(versioning=BuildId("1.0"))
    stage.poll(built)
    assert not stage.activation().HasField("deployment_version_for_current_task")
    stage.complete(start_timer(1))
    assert stage.activation().deployment_version_for_current_task.build_id == "1.0"
