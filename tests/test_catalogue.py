"""The catalogue of cases that a worker core has to stand, and where each of them is proved.

The cases have the names under which the compiled core tests them. A test proves a case when its
name or its docstring (or that of its module) says so; so a search for the name finds it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROWS = {
    "WF/history_update: chunking and pagination": """
        consumes_standard_wft_sequence skips_wft_failed skips_wft_timeout
        skips_events_before_desired_wft history_ends_abruptly heartbeats_skipped
        heartbeat_marker_end heartbeats_then_signal task_just_before_heartbeat_chain_is_taken
        la_marker_chunking just_signal_is_complete_wft
        finding_end_index_with_started_as_last_event needs_fetch_if_ending_in_middle_of_wft_seq
        update_accepted_after_empty_wft wft_fail_on_first_task_with_update
        paginator_extracts_updates paginator_streams
        paginator_works_with_wft_over_multiple_pages
        extreme_pagination_doesnt_drop_wft_events_paginator handles_cache_misses
        cache_miss_with_only_one_wft_available_orders_properly handles_blank_fetch_response
        handles_empty_page_with_next_token
        handles_fetching_page_with_complete_wft_and_page_token_to_empty_page
    """,
    "CT/workflow_tasks: activation flow": """
        single_timer parallel_timer_test_across_wf_bridge single_activity_completion two_signals
        timer_cancel cancel_timer_before_sent_wf_bridge scheduled_activity_cancellation_abandon
        scheduled_activity_cancellation_try_cancel
        scheduled_activity_cancellation_wait_for_cancellation
        started_activity_cancellation_abandon started_activity_cancellation_try_cancel
        started_activity_cancellation_wait_for_cancellation
        scheduled_cancelled_activity_task_canceled
        started_activity_cancellation_try_cancel_task_canceled scheduled_activity_timeout
        started_activity_timeout cancelled_activity_timeout tries_cancel_of_completed_activity
        activity_not_canceled_on_replay_repro activity_not_canceled_when_also_completed_repro
        jobs_are_in_appropriate_order history_byte_size_and_can_suggestion_in_activation
        signal_activation_has_originating_event_id workflow_update_random_seed_on_workflow_reset
        ignorable_events_are_ok post_terminal_commands_are_retained_when_not_replaying
        post_terminal_commands_are_retained_when_replaying_and_flag_set
        post_terminal_commands_are_not_retained_when_replaying_and_flag_not_set
        core_internal_flags lang_internal_flags lang_internal_flag_with_update
        continue_as_new_preserves_some_values use_compatible_version_flag
        simple_timer_fail_wf_execution complete_activation_with_failure
        default_wft_fail_cause_is_worker_unhandled workflow_failures_only_reported_once
        fail_wft_then_recover poll_response_triggers_wf_error wft_timeout_repro
        grpc_message_too_large_doesnt_spam_task_fails payloads_too_large_doesnt_spam_task_fails
        cached_run_fetch_failure_doesnt_spam_task_fails
        unstored_wft_fetch_failure_doesnt_spam_task_fails
    """,
    "CT/workflow_tasks: cache, buffering, eviction, pollers": """
        cache_miss_will_fetch_history fetching_to_continue_replay_works fetching_error_evicts_wf
        ensure_fetching_fail_during_complete_sends_task_failure
        pagination_works_with_tasks_from_completion tasks_from_completion_are_delivered
        sends_appropriate_sticky_task_queue_responses autocompletes_wft_no_work
        lang_slower_than_wft_timeouts lots_of_workflows
        poll_faster_than_complete_wont_overflow_cache buffered_work_drained_on_shutdown
        new_server_work_while_eviction_outstanding_doesnt_overwrite_activation
        eviction_waits_until_replay_finished complete_after_eviction
        failing_wft_doesnt_eat_permit_forever la_cancel_delivered_before_eviction_activation
        eviction_requested_during_activation_cancels_la_before_evicting
        la_results_during_withheld_eviction_do_not_surface
        queued_la_cancelled_by_eviction_does_not_surface
        backing_off_la_cancelled_by_eviction_does_not_surface
        la_resolution_after_wft_not_found_during_eviction poller_wont_poll_until_lang_polls
        poller_wont_run_ahead_of_task_slots no_race_acquiring_permits
        slot_provider_cant_hand_out_more_permits_than_cache_size
        both_normal_and_sticky_pollers_poll_concurrently
    """,
    "CT/queries, CT/updates, CT/replay_flag, CT/workflow_cancels, CT/event_groups, machines": """
        legacy_query legacy_query_after_complete new_queries new_query_fail
        legacy_query_failure_on_wft_failure legacy_query_too_large_responds_with_failure
        legacy_query_response_gets_not_found_not_fatal query_failure_because_nondeterminism
        query_cache_miss_causes_page_fetch_dont_reply_wft_too_early
        query_replay_with_continue_as_new_doesnt_reply_empty_command
        legacy_query_combined_with_timer_fire_repro queries_arent_lost_in_buffer_void
        build_id_set_properly_on_query_on_first_task initial_request_sent_back
        replay_with_empty_first_task speculative_wft_with_command_event
        replay_with_signal_and_update_same_task update_activation_has_update_id
        replay_flag_correct_with_query
        replay_flag_correct_signal_before_query_ending_on_wft_completed immediate_cancel
        timer_then_cancel_req timer_then_cancel_req_then_timer_then_cancelled event_groups
        cancel_does_not_pull_resolution_from_later_activation
        histories_without_activation_indices_replay_unchanged
        histories_without_activation_indices_continue_and_replay preprocess_command_sequence
        cancels_ignored_terminal immediately_cancelled_ok_with_terminal_events
        service_mismatch_is_nondeterministic operation_mismatch_is_nondeterministic
        mismatch_is_allowed_before_determinism_flag_is_recorded
    """,
    "CT/activity_tasks, ACT/*, CT/workers: activities, local activities, workers": """
        max_activities_respected max_worker_acts_per_second_respected
        max_tq_acts_set_passed_to_poll_properly heartbeats_report_cancels_only_once
        many_concurrent_heartbeat_cancels heartbeat_response_can_be_paused
        activity_timeout_no_double_resolve activity_not_found_returns_ok
        complete_act_with_fail_includes_latest_heartbeat
        activity_cancellation_still_flushes_latest_heartbeat
        activity_tasks_from_completion_are_delivered
        no_eager_activities_requested_when_worker_options_disable_it
        cant_complete_activity_with_unset_result_payload activity_cancel_interrupts_poll
        activity_poll_timeout_retries retryable_net_error_exhaustion_is_nonfatal
        graceful_shutdown can_heartbeat_acts_during_shutdown
        activities_must_be_flushed_to_server_on_shutdown
        worker_shutdown_awaits_activity_completion_flushing_result
        process_heartbeats_and_shutdown send_heartbeats_less_frequently_than_throttle_interval
        report_heartbeat_after_timeout evict_works evict_immediate_after_record
        max_concurrent_respected respects_timer_backoff_threshold
        respects_non_retryable_error_types can_cancel_in_flight can_cancel_during_local_backoff
        sched_to_start_timeout local_x_to_close_timeout nonfirst_la_attempt_count_is_accurate
        cancelled_attempt_is_not_retried_locally cancel_all_in_run_drops_la_not_yet_dispatched
        duplicate_cancel_requests_queue_one_cancel_and_report_delivery worker_shutdown_api
        after_shutdown_of_worker_get_shutdown_err
        shutdown_worker_can_complete_pending_activation
        worker_can_shutdown_after_never_polling_ok worker_shutdown_during_poll_doesnt_deadlock
        can_shutdown_local_act_only_worker_when_act_polling
        complete_with_task_not_found_during_shutdown
        complete_eviction_after_shutdown_doesnt_panic
        graceful_shutdown_sends_shutdown_worker_rpc_during_initiate
    """,
    "IT/workflow_tests/local_activities": """
        cancel_immediate one_local_activity local_act_fanout local_act_then_timer_then_wait_result
        local_act_retry_timer_backoff local_act_retry_long_backoff_uses_timer
        cancel_after_act_starts x_to_close_timeout
        schedule_to_close_timeout_across_timer_backoff
        timer_backoff_concurrent_with_non_timer_backoff weird_la_nondeterminism_repro
        second_weird_la_nondeterminism_repro third_weird_la_nondeterminism_repro
        repro_nondeterminism_with_timer_bug la_resolve_same_time_as_other_cancel
        local_act_two_wfts_before_marker local_act_command_immediately_follows_la_marker
        long_local_activity_with_update local_act_heartbeat wft_failure_cancels_running_las
        resolved_las_not_recorded_if_wft_fails_many_times
        query_during_wft_heartbeat_doesnt_accidentally_fail_to_continue_heartbeat
        la_resolve_during_legacy_query_does_not_combine
        legacy_query_while_waiting_on_la_is_buffered
        local_activity_resolutions_are_delivered_incrementally
        old_batched_local_activity_history_replays
        replay_out_of_order_local_activity_markers_is_deterministic
        zero_cache_doesnt_evict_before_wft_is_answered
    """,
    "IT/workflow_tests/patches": """
        writes_change_markers can_add_change_markers replaying_with_patch_marker
        deprecated_patch_removal can_remove_deprecated_patch_near_other_patch v1_and_v4_changes
        v2_and_v3_changes same_change_multiple_spots
        many_patches_combine_in_search_attrib_update
        patched_on_second_workflow_task_is_deterministic
        patch_marker_size_overflow_replay_is_deterministic
    """,
    "IT/workflow_tests/child_workflows, determinism, replay": """
        abandoned_child_bug_repro abandoned_child_resolves_post_cancel
        cancel_child_before_started_event cancel_already_complete_child_ignored
        single_child_workflow_cancel_before_sent single_child_workflow_start_fail
        cancelled_child_gets_reason activity_id_or_type_change_is_nondeterministic
        child_wf_id_or_type_change_is_nondeterministic random_workflow_replays
        task_fail_causes_replay_unset_too_soon replay_flag_is_correct
        replay_flag_is_correct_partial_history replay_ends_with_empty_wft
        replay_old_patch_format replay_ok_ending_with_terminated replay_ok_ending_with_timed_out
        replay_ending_wft_complete_with_commands_but_no_scheduled_started
        multiple_histories_can_handle_dupe_run_ids replay_shutdown_worker
    """,
    "recorded histories": """
        ends_empty_wft_complete fail_wf_task old_change_marker_format timer_workflow_history
        evict_while_la_running_no_interference la_replay_without_activation_index
        opentelemetry_replay_history openai_agents_histories google_adk_agents_histories
        test_replayer_complete_history
        test_replayer_nondeterministic_history
        test_replayer_command_reordering_backward_compatibility test_replayer_event_tracing
        test_replayer_swallowed_activity_cancellation
    """,
    "IT, whole files of cases": """
        IT/workflow_tests/resets IT/workflow_tests/stickyness IT/workflow_tests/eager
        IT/update_tests IT/queries_tests IT/heartbeat_tests IT/pagination_tests IT/polling_tests
        IT/metrics_tests IT/worker_versioning_tests IT/worker_heartbeat_tests
        IT/ephemeral_server_tests fuzzy_workflow
    """,
    "CT/workers and IT/workflow_tests/nexus: Nexus": """
        nexus_basic nexus_async nexus_cancel_before_start nexus_cancellation_types
        nexus_must_complete_task_to_shutdown nexus_request_deadline_valid_header
        nexus_request_deadline_missing_header nexus_request_deadline_invalid_header
        converts_to_legacy_for_old_server
    """,
}

NOT_REBUILT = {
    "openai_agents_histories": "files of the official repository, and its agents to replay them",
    "google_adk_agents_histories": "likewise",
    "opentelemetry_replay_history": "only a file of the official repository; nothing in it that"
    " the recorded and the random histories do not have",
}
"""Cases without a test of their own, and why."""


@cache
def claims() -> str:
    """All that tests say they prove."""
    said: list[str] = []
    for path in Path(__file__).parent.rglob("test_*.py"):
        if path == Path(__file__):
            continue
        module = ast.parse(path.read_text())
        said.append(ast.get_docstring(module) or "")
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                said += [node.name, ast.get_docstring(node) or ""]
    return "\n".join(said)


def is_proved(row: str) -> bool:
    """The name of a test may say more than the case, such as a part of it."""
    return re.search(rf"(?<![A-Za-z0-9]){row}(?![A-Za-z0-9])", claims()) is not None


@pytest.mark.parametrize("source", ROWS)
def test_every_case_is_proved(source: str) -> None:
    rows = [row for row in ROWS[source].split() if row not in NOT_REBUILT]
    assert [row for row in rows if not is_proved(row)] == []


def test_no_case_stands_twice() -> None:
    rows = " ".join(ROWS.values()).split()
    assert len(rows) == len(set(rows))
    assert set(NOT_REBUILT) <= set(rows)
