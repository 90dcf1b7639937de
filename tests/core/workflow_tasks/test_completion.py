"""The order in which lang's commands are carried out (preprocess_command_sequence*)."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.stage import (
    answer_query,
    complete_workflow,
    fail_workflow,
    schedule_activity,
    start_timer,
)

from perdure.core.commands import parse_command
from perdure.core.workflow_tasks.completion import (
    Failed,
    MalformedCompletion,
    Succeeded,
    in_order,
    validate,
)

TERMINAL, TIMER, ACTIVITY = complete_workflow(), start_timer(), schedule_activity()


def variants(*commands: WorkflowCommand, keep: bool) -> list[str]:
    ordered = in_order(map(parse_command, commands), keep_after_terminal=keep)
    return [command.variant for command in ordered]


def test_nothing_stays_nothing() -> None:
    assert variants(keep=True) == variants(keep=False) == []


def test_commands_without_an_end_keep_their_order() -> None:
    expected = ["start_timer", "schedule_activity"]
    assert variants(TIMER, ACTIVITY, keep=True) == expected
    assert variants(TIMER, ACTIVITY, keep=False) == expected


def test_what_follows_the_end_moves_in_front_of_it() -> None:
    """Rows: preprocess_command_sequence."""
    assert variants(TIMER, TERMINAL, ACTIVITY, keep=True) == [
        "start_timer",
        "schedule_activity",
        "complete_workflow_execution",
    ]


def test_what_follows_the_end_is_dropped_by_the_old_rule() -> None:
    """Rows: preprocess_command_sequence_old_behavior,
    test_replayer_command_reordering_backward_compatibility.
    """
    assert variants(TIMER, TERMINAL, ACTIVITY, keep=False) == [
        "start_timer",
        "complete_workflow_execution",
    ]


@pytest.mark.parametrize("keep", [False, True])
def test_only_the_first_end_counts(*, keep: bool) -> None:
    assert variants(TERMINAL, fail_workflow(), keep=keep) == ["complete_workflow_execution"]


def test_answers_of_queries_are_taken_out() -> None:
    completion = WorkflowActivationCompletion(run_id="run")
    completion.successful.commands.extend([TIMER, answer_query("q1"), answer_query("q2")])
    completion.successful.used_internal_flags.extend([3])
    done = validate(completion)
    assert isinstance(done, Succeeded)
    assert [command.variant for command in done.commands] == ["start_timer"]
    assert [answer.query_id for answer in done.answers] == ["q1", "q2"]
    assert list(done.used_flags) == [3]
    assert done.legacy_answer is None
    assert not done.is_empty


def test_a_legacy_answer_among_other_commands_is_malformed() -> None:
    completion = WorkflowActivationCompletion(run_id="run")
    completion.successful.commands.extend([answer_query(), answer_query("q")])
    with pytest.raises(MalformedCompletion, match="only command"):
        validate(completion)


def test_a_failure_keeps_the_forced_cause() -> None:
    completion = WorkflowActivationCompletion(run_id="run")
    completion.failed.failure.message = "m"
    done = validate(completion)
    assert isinstance(done, Failed)
    assert done.cause == 14
    completion.failed.force_cause = (
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    )
    forced = validate(completion)
    assert isinstance(forced, Failed)
    assert forced.cause == 24
