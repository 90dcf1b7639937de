"""The texts of a task that fails because history and code disagree."""

from __future__ import annotations

from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from tests.core.support.canned_histories import single_timer
from tests.core.support.history_builder import HistoryBuilder
from tests.core.support.stage import (
    RUN,
    Stage,
    cancel_timer,
    kinds,
    schedule_activity,
    start_timer,
)

from perdure.core.evidence import CallSite
from perdure.core.inputs import Completed

SITE = CallSite("orders.py", 12, "Order.run")


def complete(
    stage: Stage, commands: list[WorkflowCommand], sites: tuple[CallSite | None, ...]
) -> None:
    completion = WorkflowActivationCompletion(run_id=RUN)
    completion.successful.commands.extend(commands)
    stage.feed(Completed(completion, sites))


def disagreeing(commands: list[WorkflowCommand], sites: tuple[CallSite | None, ...]) -> Stage:
    """A run that has a timer in its history, and whose code does this."""
    stage, built = Stage(), single_timer()
    stage.poll(built, built.to_task(2))
    stage.activation()
    complete(stage, commands, sites)
    return stage


def test_the_failure_says_what_the_code_asked_for_and_where() -> None:
    failure = disagreeing([schedule_activity(1)], (SITE,)).failure().failure
    assert "history has: 5 TIMER_STARTED (timer_id '1')" in failure.message
    assert "at orders.py:12, in Order.run" in failure.message
    assert "workflow.patched()" in failure.message


def test_the_failure_carries_the_way_through_the_core() -> None:
    failure = disagreeing([schedule_activity(1)], ()).failure().failure
    assert failure.stack_trace.startswith("Traceback (most recent call last):")
    assert "in on_history" in failure.stack_trace
    assert "around it:" in failure.stack_trace


def test_code_that_asks_for_nothing_is_told_so() -> None:
    commands = [start_timer(1), cancel_timer(1)]
    stage = disagreeing(commands, (SITE, SITE))
    assert "code asked:  for nothing so far" in stage.failure().failure.message


def test_a_line_is_named_for_the_right_command_only() -> None:
    other = CallSite("orders.py", 99, "Order.run")
    failure = disagreeing([schedule_activity(1), start_timer(1)], (SITE, other)).failure().failure
    assert "orders.py:12" in failure.message
    assert "orders.py:99" not in failure.message


def test_the_last_command_is_named_when_none_is_left() -> None:
    built = HistoryBuilder()
    built.started()
    built.full_task()
    started = built.timer_started(1)
    built.timer_fired(started, 1)
    built.full_task()
    built.timer_started(2)
    built.task_scheduled_and_started()
    stage = Stage()
    stage.poll(built)
    stage.activation()
    complete(stage, [start_timer(1)], (SITE,))
    assert kinds(stage.activation()) == ["fire_timer"]
    complete(stage, [], ())
    message = stage.failure().failure.message
    assert "No command scheduled for event" in message
    assert "code's last: Timer(seq 1), at orders.py:12, in Order.run" in message
