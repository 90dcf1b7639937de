"""Answers of the admin interface as tables and lists on the screen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli.output import ago, clean, field_table, moment, shown, state_text, table
from perdure.engine.admin.views import (
    FailureView,
    PendingSignalView,
    ProgressView,
    StatsView,
    WorkflowDetail,
    WorkflowView,
)
from perdure.engine.tags import TagValue

__all__ = ["progress_text", "signal_table", "stats_view", "workflow_detail", "workflow_table"]

_ERROR_SHOWN = 80
_PHASES = ("running", "sleeping", "dead", "complete", "cancelled", "terminated")


def workflow_table(workflows: Iterable[WorkflowView], now: int) -> RenderableType:
    """One line per workflow."""
    made = table("ID", "NAME", "STATE", "CREATED", "DOING", "TAGS")
    for workflow in workflows:
        made.add_row(
            workflow.id,
            clean(workflow.name),
            state_text(workflow.state),
            ago(workflow.created_at, now),
            _doing(workflow, now),
            _tags(workflow),
        )
    return made if made.row_count else Text("no workflows", style="dim")


def _doing(workflow: WorkflowView, now: int) -> Text:
    """Why it sleeps or died, and how far its long work has come: what one wants to know first."""
    parts: list[Text] = []
    if workflow.error is not None:
        text = _short(workflow.error)
        parts.append(clean(text if len(text) <= _ERROR_SHOWN else f"{text[:_ERROR_SHOWN]}..."))
    parts += [clean(f"waits for {what}") for what in workflow.waiting_for]
    if workflow.wake_at is not None:
        parts.append(Text(f"due {ago(workflow.wake_at, now)}"))
    parts += [progress_text(progress, now) for progress in workflow.progress]
    return Text("; ").join(parts)


def _short(error: str) -> str:
    """`shop.CardDeclined: no` without the module: a list has little room."""
    kind, separator, message = error.partition(": ")
    return kind.rpartition(".")[2] + separator + message


def progress_text(progress: ProgressView, now: int) -> Text:
    """`loop {3} at iteration 17 (2s ago)`, `activity copy attempt 2: {"done": 40} (1s ago)`."""
    when = f" ({ago(progress.at, now)})"
    if progress.what == "loop":
        return Text(f"loop {progress.location} at iteration {progress.iteration}{when}")
    text = clean(f"activity {progress.name} attempt {progress.attempt}")
    if progress.details is not None:
        text = text + Text(": ") + shown(progress.details)
    return text + Text(when)


def _tags(workflow: WorkflowView) -> Text:
    return clean(" ".join(_tag(key, value) for key, value in workflow.tags.items()))


def _tag(key: str, value: TagValue) -> str:
    """In the form in which `--tag` takes it."""
    return f"{key}={value}" if isinstance(value, str) else f"{key}:={json.dumps(value)}"


def workflow_detail(workflow: WorkflowDetail, now: int) -> RenderableType:
    """Everything about one workflow, a line per fact; facts that do not apply are left out."""
    facts = field_table()
    facts.add_row("id", workflow.id)
    facts.add_row("name", clean(workflow.name))
    facts.add_row("state", state_text(workflow.state))
    _add_times(facts, workflow, now)
    _add_relations(facts, workflow)
    _add_work(facts, workflow, now)
    _add_values(facts, workflow)
    if workflow.failure is None:
        return facts
    return Group(facts, Text(), _failure(workflow.failure))


def _add_times(facts: Table, workflow: WorkflowDetail, now: int) -> None:
    times = {
        "created": workflow.created_at,
        "changed": workflow.changed_at,
        "due": workflow.wake_at,
        "silenced": workflow.silenced_at,
        "history pruned": workflow.pruned_at,
    }
    for label, at in times.items():
        if at is not None:
            facts.add_row(label, f"{moment(at)} ({ago(at, now)})")
    if workflow.cancel_requested_at is not None:
        at = workflow.cancel_requested_at
        facts.add_row(
            "cancel asked", clean(f"{moment(at)} ({ago(at, now)}) {workflow.cancel_reason or ''}")
        )


def _add_relations(facts: Table, workflow: WorkflowDetail) -> None:
    relations = {
        "tags": _tags(workflow).plain,
        "unique key": workflow.unique,
        "parent": workflow.parent,
        "ray": workflow.ray_id,
        "worker": workflow.worker,
    }
    for label, text in relations.items():
        if text:
            facts.add_row(label, clean(text))
    facts.add_row("runs", str(workflow.epoch))


def _add_work(facts: Table, workflow: WorkflowDetail, now: int) -> None:
    for what in workflow.waiting_for:
        facts.add_row("waits for", clean(what))
    for name, count in workflow.pending_signals.items():
        facts.add_row("pending", clean(f"{count} of signal {name}"))
    for progress in workflow.progress:
        facts.add_row("progress", progress_text(progress, now))


def _add_values(facts: Table, workflow: WorkflowDetail) -> None:
    for label, value in (
        ("input", workflow.input),
        ("value", workflow.value),
        ("output", workflow.output),
    ):
        if value is not None:
            facts.add_row(label, clean(json.dumps(value, ensure_ascii=False, indent=2)))


def _failure(failure: FailureView) -> Text:
    """The failure with its stack, causes below."""
    text = Text()
    while True:
        text.append(f"{failure.type}: ", style="bold red").append_text(clean(failure.message))
        if failure.code is not None:
            text.append(f" ({failure.code})", style="dim")
        if failure.stack is not None:
            text.append("\n").append_text(clean(failure.stack.rstrip()))
        if failure.cause is None:
            return text
        text.append("\ncaused by ")
        failure = failure.cause


def signal_table(signals: Sequence[PendingSignalView], now: int) -> RenderableType:
    """One line per pending signal, in the order in which they will be received by name."""
    made = table("ID", "NAME", "SENT", "BODY")
    for signal in signals:
        made.add_row(signal.id, clean(signal.name), ago(signal.sent_at, now), shown(signal.body))
    return made if signals else Text("no pending signals", style="dim")


def stats_view(stats: StatsView) -> RenderableType:
    """Counts per workflow name, and pending signals if there are any."""
    counts = table("WORKFLOW", "TOTAL", *(phase.upper() for phase in _PHASES))
    for column in counts.columns[1:]:
        column.justify = "right"
    for name, phases in sorted(stats.workflows.items()):
        numbers = [f"{phases.get(phase, 0):,}" for phase in _PHASES]
        counts.add_row(clean(name), f"{sum(phases.values()):,}", *numbers)
    parts: list[RenderableType] = [Text(moment(stats.at), style="dim"), counts]
    if stats.signals:
        pending = table("SIGNAL", "PENDING")
        pending.columns[1].justify = "right"
        for name, count in sorted(stats.signals.items()):
            pending.add_row(clean(name), f"{count:,}")
        parts.append(pending)
    return Group(*parts)
