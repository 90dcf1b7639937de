"""The container of the machines, driven like the stream drives it.

Tests are named after the cases they stand for.
"""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import SearchAttributes
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.bridge.proto.workflow_commands.workflow_commands_pb2 import WorkflowCommand
from tests.core.support.canned_histories import (
    parallel_timers,
    sequential_timers,
    single_activity,
    single_timer,
    two_signals,
)
from tests.core.support.fake_host import lang_message
from tests.core.support.history_builder import HistoryBuilder, payload, update_message
from tests.core.support.machines_driver import Driver

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.run.randomness import seed_of_run
from perdure.core.run.workflow_machines import Step
from perdure.core.run_info import RunInfo
from perdure.core.versioning import BuildId, DeploymentVersion

DONE = lang_message("complete_workflow_execution")


def start_timer(seq: int) -> WorkflowCommand:
    return lang_message("start_timer", seq=seq)


def schedule_activity(seq: int, activity_id: str = "1") -> WorkflowCommand:
    return lang_message(
        "schedule_activity", seq=seq, activity_id=activity_id, activity_type="activity"
    )


def attributes_of(driver: Driver) -> list[str]:
    """Variants of the commands that would be sent."""
    return [
        (command.WhichOneof("attributes") or "").removesuffix("_command_attributes")
        for command in driver.machines.outgoing_commands()
    ]


def begun() -> HistoryBuilder:
    built = HistoryBuilder()
    built.started()
    return built


# Plain runs


def test_single_timer() -> None:
    """Rows: timer_workflow_history."""
    driver = Driver(single_timer(1))
    assert driver.next_variants() == ["initialize_workflow"]
    assert driver.machines.replaying
    driver.answer(start_timer(1))
    activation = driver.activation()
    assert [job.fire_timer.seq for job in activation.jobs] == [1]
    assert not activation.is_replaying
    assert activation.history_length == 8
    assert driver.machines.apply_next_sequence() is Step.OVER
    driver.answer(DONE, apply=False)
    assert attributes_of(driver) == ["complete_workflow_execution"]


def test_single_timer_step_by_step() -> None:
    """The same as a cached run: each task brings only what is new."""
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    assert driver.next_variants() == ["initialize_workflow"]
    assert not driver.machines.replaying
    driver.answer(start_timer(1), apply=False)
    assert attributes_of(driver) == ["start_timer"]
    driver.feed(history.only_task(2))
    assert driver.next_variants() == ["fire_timer"]
    assert attributes_of(driver) == []


def test_parallel_timers_fire_in_the_order_of_history() -> None:
    driver = Driver(parallel_timers(1, 2))
    driver.next_variants()
    driver.answer(start_timer(1), start_timer(2))
    assert [job.fire_timer.seq for job in driver.activation().jobs] == [1, 2]


def test_commands_in_another_order_are_nondeterminism() -> None:
    driver = Driver(parallel_timers(1, 2))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match="timer id"):
        driver.answer(start_timer(2), start_timer(1))


def test_a_command_too_few_is_nondeterminism() -> None:
    driver = Driver(single_timer(1))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match=r"No command scheduled for event TIMER_STARTED"):
        driver.answer()


def test_a_replay_to_the_end() -> None:
    driver = Driver(sequential_timers(3))
    driver.next_variants()
    for seq in (1, 2, 3):
        assert driver.machines.replaying
        driver.answer(start_timer(seq))
        assert [job.fire_timer.seq for job in driver.activation().jobs] == [seq]
    driver.answer(DONE)
    assert driver.machines.have_seen_terminal_event
    assert driver.machines.apply_next_sequence() is Step.OVER
    assert not driver.machines.replaying


def test_two_signals() -> None:
    driver = Driver(two_signals())
    driver.step()
    driver.activation()
    driver.answer()
    jobs = driver.activation().jobs
    assert [job.WhichOneof("variant") for job in jobs] == ["signal_workflow", "signal_workflow"]
    assert all(job.signal_workflow.originating_event_id > 0 for job in jobs)


def test_cancel_of_what_never_was_is_nondeterminism() -> None:
    driver = Driver(single_timer(1))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match="Missing associated machine"):
        driver.answer(lang_message("cancel_timer", seq=9))


def test_cancel_timer_before_sent() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    driver.answer(start_timer(1), lang_message("cancel_timer", seq=1), apply=False)
    assert attributes_of(driver) == []


def test_a_command_prepared_earlier_can_still_be_withdrawn() -> None:
    """A task that waits for local activities takes several completions."""
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    driver.answer(start_timer(1), apply=False)
    driver.answer(lang_message("cancel_timer", seq=1), apply=False)
    assert attributes_of(driver) == []


def test_tries_cancel_of_completed_activity() -> None:
    driver = Driver(single_activity())
    driver.next_variants()
    driver.answer(schedule_activity(1))
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["resolve_activity"]
    driver.answer(lang_message("request_cancel_activity", seq=1), apply=False)
    assert attributes_of(driver) == []


def test_immediate_cancel() -> None:
    built = begun()
    built.add("workflow_execution_cancel_requested", cause="enough")
    built.task_scheduled_and_started()
    driver = Driver(built)
    driver.step()
    jobs = driver.activation().jobs
    variants = [job.WhichOneof("variant") for job in jobs]
    assert variants == ["initialize_workflow", "cancel_workflow"]
    assert jobs[1].cancel_workflow.reason == "enough"
    driver.answer(lang_message("cancel_workflow_execution"), apply=False)
    assert attributes_of(driver) == ["cancel_workflow_execution"]


def test_jobs_are_in_appropriate_order() -> None:
    history = begun()
    history.full_task()
    timer = history.timer_started(1)
    history.patch_marker("p")
    history.timer_fired(timer, 1)
    history.signaled("name")
    history.full_task()
    history.patch_marker("q")
    history.task_scheduled_and_started()
    driver = Driver(history)
    assert driver.next_variants() == ["initialize_workflow", "notify_has_patch"]
    driver.answer(start_timer(1), lang_message("set_patch_marker", patch_id="p"))
    found = [job.WhichOneof("variant") for job in driver.activation().jobs]
    assert found == ["notify_has_patch", "signal_workflow", "fire_timer"]


# Activations


def test_history_byte_size_and_can_suggestion_in_activation() -> None:
    history = single_timer(1)
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            started = event.workflow_task_started_event_attributes
            started.history_size_bytes = 100 * event.event_id
            started.suggest_continue_as_new = event.event_id == 8
            started.target_worker_deployment_version_changed = event.event_id == 8
    driver = Driver(history)
    driver.step()
    first = driver.activation()
    assert (first.history_size_bytes, first.continue_as_new_suggested) == (300, False)
    driver.answer(start_timer(1))
    second = driver.activation()
    assert (second.history_size_bytes, second.continue_as_new_suggested) == (800, True)
    assert second.target_worker_deployment_version_changed
    assert second.timestamp == history.events[7].event_time
    assert driver.machines.time_now == history.events[7].event_time.ToNanoseconds()


def test_queries_come_alone_and_count_as_replay() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    before = driver.machines.activation_index
    activation = driver.machines.query_activation([("id", WorkflowQuery(query_type="q"))])
    assert activation.is_replaying
    (job,) = activation.jobs
    assert (job.query_workflow.query_id, job.query_workflow.query_type) == ("id", "q")
    assert driver.machines.activation_index == before


def test_workflow_update_random_seed_on_workflow_reset() -> None:
    history = begun()
    history.task_scheduled_and_started()
    history.add(
        "workflow_task_failed",
        scheduled_event_id=2,
        started_event_id=3,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
        new_run_id="new",
    )
    history.task_scheduled_and_started()
    driver = Driver(history)
    driver.step()
    initialize, seed = driver.activation().jobs
    assert initialize.initialize_workflow.randomness_seed == seed_of_run(history.original_run_id)
    assert seed.update_random_seed.randomness_seed == seed_of_run("new")


def test_lang_internal_flags() -> None:
    history = single_timer(1)
    completed = history.events[3].workflow_task_completed_event_attributes
    metadata = WorkflowTaskCompletedMetadata(
        core_used_flags=[1, 2, 3], lang_used_flags=[5, 2], sdk_name="n", sdk_version="1.0"
    )
    completed.sdk_metadata.CopyFrom(metadata)
    driver = Driver(history)
    driver.step()
    activation = driver.activation()
    assert list(activation.available_internal_flags) == [2, 5]
    assert activation.last_sdk_version == "1.0"
    driver.machines.record_lang_flags([5, 7])
    driver.answer(start_timer(1))
    written, _ = driver.machines.completion_metadata()
    assert list(written.core_used_flags) == [4]
    assert list(written.lang_used_flags) == [7]


def versioned(driver: Driver) -> tuple[str, str]:
    version = driver.activation().deployment_version_for_current_task
    return version.deployment_name, version.build_id


def test_build_ids_of_history_and_of_this_worker() -> None:
    history = single_timer(1)
    completed = history.events[3].workflow_task_completed_event_attributes
    completed.worker_version.build_id = "old"
    run = RunInfo("ns", "wf", "run", "type", "tq", versioning=BuildId("new"))
    driver = Driver(history, run=run)
    driver.step()
    assert versioned(driver) == ("", "old")
    driver.answer(start_timer(1))
    assert versioned(driver) == ("", "new")


def test_a_query_has_the_version_of_the_last_task() -> None:
    """build_id_set_properly_on_query_on_first_task, and later ones on a newer worker."""
    history = single_timer(1)
    completed = history.events[3].workflow_task_completed_event_attributes
    completed.worker_version.build_id = "old"
    run = RunInfo("ns", "wf", "run", "type", "tq", versioning=BuildId("new"))

    def build_of_query(driver: Driver) -> str:
        activation = driver.machines.query_activation([("1", WorkflowQuery())])
        return activation.deployment_version_for_current_task.build_id

    replayed = Driver(history, run=run)
    replayed.step()
    assert build_of_query(replayed) == "old"
    replayed.answer(start_timer(1))
    replayed.activation()
    assert build_of_query(replayed) == "new"


@pytest.mark.parametrize("newest", [True, False])
def test_deployment_versions_of_history(newest: bool) -> None:
    history = single_timer(1)
    completed = history.events[3].workflow_task_completed_event_attributes
    completed.worker_version.build_id = "oldest"
    completed.worker_deployment_version = "name.build.1"
    if newest:
        completed.deployment_version.CopyFrom(
            WorkerDeploymentVersion(deployment_name="other", build_id="b2")
        )
    run = RunInfo("ns", "wf", "run", "type", "tq", versioning=DeploymentVersion("mine", "b3"))
    driver = Driver(history, run=run)
    driver.step()
    assert versioned(driver) == (("other", "b2") if newest else ("name", "build.1"))
    driver.answer(start_timer(1))
    assert versioned(driver) == ("mine", "b3")


# What history may hold


def test_ignorable_events_are_ok() -> None:
    history = begun()
    odd = history.add("workflow_execution_options_updated")
    history.events[odd - 1].worker_may_ignore = True
    history.events[odd - 1].event_type = 9999  # type: ignore[assignment]
    history.task_scheduled_and_started()
    assert Driver(history).next_variants() == ["initialize_workflow"]


def test_unknown_events_are_fatal() -> None:
    history = begun()
    odd = history.add("workflow_execution_options_updated")
    history.task_scheduled_and_started()
    driver = Driver(history)
    with pytest.raises(FatalError, match=f"event {odd}"):
        driver.step()


def test_history_out_of_order_is_fatal() -> None:
    history = single_timer(1)
    history.events[1].event_id = 7
    driver = Driver(history)
    with pytest.raises(FatalError, match="History is out of order"):
        driver.step()


def test_an_event_of_nothing_is_nondeterminism() -> None:
    history = begun()
    history.add("activity_task_started", scheduled_event_id=99)
    history.task_scheduled_and_started()
    with pytest.raises(NondeterminismError, match="event 99"):
        Driver(history).step()


@pytest.mark.parametrize("how", ["terminated", "timed_out"])
def test_replay_ok_ending_with_terminated_or_timed_out(how: str) -> None:
    history = single_timer(1)
    history.add(f"workflow_execution_{how}")
    driver = Driver(history)
    driver.next_variants()
    driver.answer(start_timer(1))
    while driver.machines.apply_next_sequence() is not Step.OVER:
        pass
    assert driver.machines.have_seen_terminal_event


def test_failed_and_timed_out_tasks_never_move_the_clock() -> None:
    history = begun()
    history.task_scheduled_and_started()
    history.add("workflow_task_failed", scheduled_event_id=2, started_event_id=3)
    history.task_scheduled_and_started()
    history.add("workflow_task_timed_out", scheduled_event_id=5, started_event_id=6)
    history.task_scheduled_and_started()
    driver = Driver(history)
    driver.step()
    activation = driver.activation()
    assert activation.history_length == 9
    assert activation.timestamp == history.events[8].event_time
    assert driver.machines.current_started_event_id == 9


# Search attributes


def upsert(**values: object) -> WorkflowCommand:
    fields = {name: payload(value) for name, value in values.items()}
    return lang_message(
        "upsert_workflow_search_attributes",
        search_attributes=SearchAttributes(indexed_fields=fields),
    )


def test_upserts_are_kept_for_continue_as_new() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    end = lang_message("continue_as_new_workflow_execution", workflow_type="type")
    driver.answer(upsert(a=1), upsert(a=2, b=3), end, apply=False)
    command = driver.machines.outgoing_commands()[-1]
    attributes = command.continue_as_new_workflow_execution_command_attributes
    assert attributes.search_attributes.indexed_fields["a"] == payload(2)
    assert attributes.search_attributes.indexed_fields["b"] == payload(3)


def test_users_cannot_set_the_attribute_of_patches() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    driver.answer(upsert(TemporalChangeVersion=["x"]), apply=False)
    (command,) = driver.machines.outgoing_commands()
    attributes = command.upsert_workflow_search_attributes_command_attributes
    assert not attributes.search_attributes.indexed_fields


# Updates


def answer_update(instance_id: str = "update", **answer: Any) -> WorkflowCommand:
    return lang_message("update_response", protocol_instance_id=instance_id, **answer)


def test_initial_request_sent_back() -> None:
    history = begun()
    history.task_scheduled_and_started()
    driver = Driver(history, messages=[update_message(event_id=1)])
    assert driver.next_variants() == ["initialize_workflow", "do_update"]
    driver.answer(answer_update(accepted={}), answer_update(completed=payload(1)), apply=False)
    assert attributes_of(driver) == ["protocol_message", "protocol_message"]
    assert driver.machines.has_messages
    ids = [message.id for message in driver.machines.drain_messages()]
    assert ids == ["update/request/accept", "update/request/complete"]
    assert not driver.machines.has_messages


def accepted_history() -> HistoryBuilder:
    history = begun()
    history.full_task()
    accepted = history.update_accepted(sequencing_event_id=1)
    timer = history.timer_started(1)
    history.update_completed(accepted)
    history.timer_fired(timer, 1)
    history.task_scheduled_and_started()
    return history


def test_an_accepted_update_is_replayed() -> None:
    driver = Driver(accepted_history())
    driver.step()
    initialize, update = driver.activation().jobs
    assert initialize.HasField("initialize_workflow")
    assert update.do_update.protocol_instance_id == "update"
    assert not update.do_update.run_validator
    driver.answer(answer_update(accepted={}), start_timer(1), answer_update(completed=payload(1)))
    assert [job.WhichOneof("variant") for job in driver.activation().jobs] == ["fire_timer"]
    assert not driver.machines.has_messages


def test_an_update_that_was_accepted_has_to_be_accepted() -> None:
    driver = Driver(accepted_history())
    driver.next_variants()
    with pytest.raises(NondeterminismError):
        driver.answer(start_timer(1))


def test_updates_wait_for_their_event() -> None:
    """The update was sent after the signal, so lang meets it after the signal."""
    history = begun()
    signal = history.signaled("name")
    history.task_scheduled_and_started()
    driver = Driver(
        history,
        messages=[update_message("b", event_id=signal), update_message("a", event_id=1)],
    )
    driver.step()
    jobs = [job for job in driver.activation().jobs if not job.HasField("initialize_workflow")]
    assert [job.WhichOneof("variant") for job in jobs] == [
        "do_update",
        "signal_workflow",
        "do_update",
    ]
    assert [job.do_update.id for job in jobs if job.HasField("do_update")] == ["a", "b"]


def test_an_answer_to_no_update_is_nondeterminism() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    with pytest.raises(NondeterminismError, match="Missing associated machine"):
        driver.answer(answer_update("other", accepted={}))


def test_an_admitted_update_of_history_is_delivered_live() -> None:
    history = begun()
    history.update_admitted("update")
    history.task_scheduled_and_started()
    driver = Driver(history)
    driver.step()
    update = driver.activation().jobs[1].do_update
    assert (update.id, update.protocol_instance_id) == ("update", "update")
    driver.answer(answer_update(accepted={}), apply=False)
    (message,) = driver.machines.drain_messages()
    assert message.id == "update/request/accept"


def test_an_admitted_update_is_kept_for_its_acceptance() -> None:
    history = begun()
    history.update_admitted("update")
    history.full_task()
    accepted = history.update_accepted(sequencing_event_id=2)
    attributes = history.events[accepted - 1].workflow_execution_update_accepted_event_attributes
    attributes.ClearField("accepted_request")
    history.task_scheduled_and_started()
    driver = Driver(history)
    assert driver.next_variants() == ["initialize_workflow", "do_update"]


def test_a_rejected_speculative_task_is_rolled_back() -> None:
    history = single_timer(1)
    driver = Driver(history, history.to_task(1))
    driver.next_variants()
    driver.answer(start_timer(1), apply=False)
    speculative = HistoryBuilder()
    speculative.events = list(history.events[:5])
    speculative.task_scheduled_and_started()
    part = speculative.to_task(2)
    part.events[:] = part.events[3:]
    driver.feed(part, [update_message(event_id=5)])
    assert driver.next_variants() == ["do_update"]
    driver.answer(answer_update(rejected={"message": "no"}), apply=False)
    assert attributes_of(driver) == []
    driver.machines.reset_last_started(3)
    assert driver.machines.last_processed_event == 5
    assert driver.machines.current_started_event_id == 3
    later = history.only_task(2)
    later.events[:] = [event for event in later.events if event.event_id > 5]
    driver.feed(later)
    assert driver.next_variants() == ["fire_timer"]


def test_nothing_is_kept_for_events_that_cannot_come() -> None:
    """A run that goes on for long keeps only what may still be asked for by event."""
    history = accepted_history()
    driver = Driver(history)
    driver.next_variants()
    driver.answer(answer_update(accepted={}), start_timer(1), answer_update(completed=payload(1)))
    kept = {type(machine).__name__ for machine in driver.machines._by_event.values()}
    assert kept == {"WorkflowTaskMachine"}
