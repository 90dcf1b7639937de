"""Patches in the container: markers ahead, markers without code and code without markers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.fake_host import lang_message
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.machines_driver import Driver

from perdure.core.errors import NondeterminismError
from perdure.core.run.workflow_machines import Step

TIMER = lang_message("start_timer", seq=1)


def patch(patch_id: str, *, deprecated: bool = False) -> WorkflowCommand:
    return lang_message("set_patch_marker", patch_id=patch_id, deprecated=deprecated)


def history(
    *markers: tuple[str, bool], upserts: bool = False, old_format: bool = False
) -> HistoryBuilder:
    """One task with these markers and a timer, and the next task."""
    built = HistoryBuilder()
    built.started()
    built.full_task()
    flags = [1, 2, 3] if upserts else [1]
    completed = built.events[-1].workflow_task_completed_event_attributes
    completed.sdk_metadata.CopyFrom(WorkflowTaskCompletedMetadata(core_used_flags=flags))
    met: list[str] = []
    for patch_id, deprecated in markers:
        met.append(patch_id)
        if old_format:
            built.old_patch_marker(patch_id, deprecated=deprecated)
        else:
            built.patch_marker(patch_id, deprecated=deprecated)
        if upserts:
            built.patch_search_attributes(*met)
    timer = built.timer_started(1)
    built.timer_fired(timer, 1)
    built.task_scheduled_and_started()
    return built


def live() -> Driver:
    built = history()
    driver = Driver(built, built.to_task(1))
    driver.next_variants()
    return driver


def change_versions(commands: Sequence[Command]) -> list[list[str]]:
    found = []
    for command in commands:
        if command.HasField("upsert_workflow_search_attributes_command_attributes"):
            upsert = command.upsert_workflow_search_attributes_command_attributes
            value = upsert.search_attributes.indexed_fields["TemporalChangeVersion"]
            assert value.metadata["type"] == b"KeywordList"
            found.append(json.loads(value.data))
    return found


def test_writes_change_markers() -> None:
    driver = live()
    driver.answer(patch("b"), TIMER, patch("a"), patch("b"), apply=False)
    commands = driver.machines.outgoing_commands()
    kinds = [(command.WhichOneof("attributes") or "").split("_command")[0] for command in commands]
    assert kinds == [
        "record_marker",
        "upsert_workflow_search_attributes",
        "start_timer",
        "record_marker",
        "upsert_workflow_search_attributes",
    ]
    assert change_versions(commands) == [["b"], ["a", "b"]]


def test_the_upsert_of_a_patch_is_in_its_event_groups() -> None:
    driver = live()
    asked = patch("a")
    asked.event_group_markers.add().label.id = "group"
    driver.answer(asked, apply=False)
    groups = [
        [group.label.id for group in command.event_group_markers]
        for command in driver.machines.outgoing_commands()
    ]
    assert groups == [["group"], ["group"]]


def test_patch_marker_size_overflow_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    driver = live()
    driver.answer(patch("x" * 2050), apply=False)
    assert len(driver.machines.outgoing_commands()) == 1
    assert "TemporalChangeVersion" in caplog.text


@pytest.mark.parametrize("old_format", [True, False])
@pytest.mark.parametrize("upserts", [True, False])
def test_replaying_with_patch_marker(old_format: bool, upserts: bool) -> None:
    """Rows: replay_old_patch_format, old_change_marker_format."""
    driver = Driver(history(("p", False), upserts=upserts, old_format=old_format))
    driver.step()
    initialize, notify = driver.activation().jobs
    assert initialize.HasField("initialize_workflow")
    assert notify.notify_has_patch.patch_id == "p"
    driver.answer(patch("p"), TIMER)
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]


def test_many_patches_combine_in_search_attrib_update() -> None:
    driver = Driver(history(("b", False), ("a", False), upserts=True))
    assert driver.next_variants() == [
        "initialize_workflow",
        "notify_has_patch",
        "notify_has_patch",
    ]
    driver.answer(patch("b"), patch("a"), TIMER)
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]


@pytest.mark.parametrize("upserts", [True, False])
def test_deprecated_patch_removal(upserts: bool) -> None:
    """The code has lost the patch: its deprecated marker does not matter."""
    driver = Driver(history(("p", True), upserts=upserts))
    driver.next_variants()
    driver.answer(TIMER)
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]


def test_removal_of_a_patch_that_is_not_deprecated_is_nondeterminism() -> None:
    driver = Driver(history(("p", False)))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match=r"patch 'p'.*asks for Timer"):
        driver.answer(TIMER)


@pytest.mark.parametrize("upserts", [True, False])
def test_can_remove_deprecated_patch_near_other_patch(upserts: bool) -> None:
    driver = Driver(history(("gone", True), ("p", False), upserts=upserts))
    driver.next_variants()
    driver.answer(patch("p"), TIMER)
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]


def test_can_add_change_markers() -> None:
    """Code deprecates a patch that history never had: no marker is expected."""
    driver = Driver(history(upserts=True))
    driver.next_variants()
    driver.answer(patch("new", deprecated=True), TIMER)
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]
    assert driver.machines.outgoing_commands() == []


def test_another_patch_in_its_place_is_nondeterminism() -> None:
    driver = Driver(history(("p", False)))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match="'q'"):
        driver.answer(patch("q"), TIMER)


def test_a_marker_at_the_end_without_any_command() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    built.patch_marker("p", deprecated=True)
    built.task_scheduled_and_started()
    driver = Driver(built)
    driver.next_variants()
    driver.answer()
    assert driver.machines.apply_next_sequence() is Step.OVER


# Four versions of one workflow: without the patch, with it, with the patch deprecated, and with the
# new way only. What each writes, and what it asks for when it replays what another one wrote.

OLD, NEW = TIMER, lang_message("start_timer", seq=2)


def written_by(version: int) -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    if version in (2, 3):
        built.patch_marker("p", deprecated=version == 3)
    seq = 1 if version == 1 else 2
    built.timer_fired(built.timer_started(seq), seq)
    built.task_scheduled_and_started()
    return built


def code_of(version: int, *, is_patched: bool) -> list[WorkflowCommand]:
    """`patched` is true live and when lang was told of the marker."""
    if version == 1:
        return [OLD]
    if version == 2:
        return [patch("p"), NEW] if is_patched else [OLD]
    return [patch("p", deprecated=True), NEW] if version == 3 else [NEW]


def replays(history_of: int, code: int) -> bool:
    driver = Driver(written_by(history_of))
    is_patched = "notify_has_patch" in driver.next_variants()
    try:
        driver.answer(*code_of(code, is_patched=is_patched))
    except NondeterminismError:
        return False
    return [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]


@pytest.mark.parametrize("history_of", [1, 2, 3, 4])
def test_v1_and_v4_changes(history_of: int) -> None:
    """Code that knows nothing of the patch: the old way only, or the new way only.

    The old code cannot replay the new way. The new code can replay it unless the marker says that
    the patch is still needed.
    """
    assert replays(history_of, 1) is (history_of == 1)
    assert replays(history_of, 4) is (history_of in (3, 4))


@pytest.mark.parametrize("history_of", [1, 2, 3, 4])
def test_v2_and_v3_changes(history_of: int) -> None:
    """Code with the patch, deprecated or not, replays what was written with one; patched code
    also replays what was written before it, and deprecating code what comes after it."""
    assert replays(history_of, 2) is (history_of in (1, 2, 3))
    assert replays(history_of, 3) is (history_of in (2, 3, 4))
