"""Commands that change something: starting, talking to and ending workflows, mending, pruning."""

from __future__ import annotations

from typing import Any

import click

from perdure.cli.output import notice, print_json, show
from perdure.cli.parameters import duration, json_value, tag, workflow_id
from perdure.cli.render import workflow_table
from perdure.cli.settings import Settings, common_options
from perdure.clock import SYSTEM_CLOCK
from perdure.engine.admin.requests import (
    CancelWorkflow,
    DispatchWorkflow,
    Prune,
    Request,
    ReviveWorkflows,
    SendSignal,
    SilenceWorkflow,
    TerminateWorkflow,
    UnsilenceWorkflow,
    WakeWorkflow,
)
from perdure.engine.admin.views import ControlResult
from perdure.engine.tags import TagValue

__all__ = ["cancel", "dispatch", "prune", "revive", "signal", "silence", "terminate", "unsilence",
           "wake"]  # fmt: skip


@click.command()
@click.argument("workflow")
@click.argument("value", type=json_value, default="null", metavar="[JSON]")
@click.option(
    "--tag", "-t", "tags", type=tag, multiple=True, metavar="KEY=VALUE",
    help="A tag to find it by; may be repeated. KEY:=VALUE for a number or true/false.",
)  # fmt: skip
@click.option(
    "--unique", metavar="KEY", help="Start none if an open workflow of that name has this key."
)
@common_options
def dispatch(
    settings: Settings,
    *,
    workflow: str,
    value: Any,
    tags: tuple[tuple[str, TagValue], ...],
    unique: str | None,
) -> None:
    """Start the workflow named WORKFLOW with an input in JSON.

    If an engine owns the store, it checks name and input; otherwise the workflow waits for one that
    knows the name.
    """
    answer = settings.ask(
        DispatchWorkflow(
            name=workflow, input=value, tags=dict(tags), unique=False if unique is None else unique
        )
    )
    if settings.as_json:
        print_json(answer)
    else:
        effect = "is dispatched" if answer.created else "is open already and has this key"
        click.echo(f"{answer.workflow_id} {effect}")


@click.command()
@click.argument("id", type=workflow_id)
@click.argument("name")
@click.argument("body", type=json_value, default="null", metavar="[JSON]")
@common_options
def signal(settings: Settings, *, id: str, name: str, body: Any) -> None:
    """Send the signal NAME with a body in JSON to a workflow."""
    answer = settings.ask(SendSignal(id=id, name=name, body=body))
    if settings.as_json:
        print_json(answer)
    else:
        effect = "woke the workflow" if answer.woken else "is queued"
        click.echo(f"signal {answer.signal_id} {effect}")


def _control(settings: Settings, request: Request[ControlResult], done: str, already: str) -> None:
    answer = settings.ask(request)
    if settings.as_json:
        print_json(answer)
    else:
        click.echo(f"{answer.workflow_id} {done if answer.changed else already}")


@click.command()
@click.argument("id", type=workflow_id)
@click.option("--reason", default="", metavar="TEXT", help="Why; the workflow's code can read it.")
@common_options
def cancel(settings: Settings, *, id: str, reason: str) -> None:
    """Ask a workflow to end. Its code is told and can clean up."""
    _control(
        settings,
        CancelWorkflow(id=id, reason=reason),
        "will be told to end",
        "was asked to end before",
    )


@click.command()
@click.argument("id", type=workflow_id)
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the workflow.")
@common_options
def terminate(settings: Settings, *, id: str, reason: str) -> None:
    """End a workflow at once. Its code is not asked and cannot clean up."""
    _control(
        settings, TerminateWorkflow(id=id, reason=reason), "is terminated", "was terminated before"
    )


@click.command()
@click.argument("id", type=workflow_id)
@common_options
def wake(settings: Settings, *, id: str) -> None:
    """Run a sleeping workflow now; it looks around and goes back to sleep if it must."""
    _control(settings, WakeWorkflow(id=id), "is due now", "was due already")


@click.command()
@click.argument("id", type=workflow_id)
@common_options
def silence(settings: Settings, *, id: str) -> None:
    """Keep a workflow from running until it is unsilenced. Refused while it runs."""
    _control(settings, SilenceWorkflow(id=id), "is silenced", "was silenced before")


@click.command()
@click.argument("id", type=workflow_id)
@common_options
def unsilence(settings: Settings, *, id: str) -> None:
    """Let a silenced workflow run again."""
    _control(settings, UnsilenceWorkflow(id=id), "may run again", "was not silenced")


@click.command()
@click.argument("ids", type=workflow_id, nargs=-1, metavar="[ID]...")
@click.option("--name", metavar="NAME", help="Dead workflows of this name.")
@click.option("--error", metavar="TEXT", help="Only those whose error contains TEXT.")
@click.option("--dry-run", "-n", is_flag=True, help="Only show which ones.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@common_options
def revive(
    settings: Settings,
    *,
    ids: tuple[str, ...],
    name: str | None,
    error: str | None,
    dry_run: bool,
    limit: int,
) -> None:
    """Let dead workflows go on from their last step, by id or by name and error."""
    if bool(ids) == (name is not None):
        raise click.UsageError("say which: either ids, or --name (with --error if you like)")
    if error is not None and name is None:
        raise click.UsageError("--error needs --name")
    answer = settings.ask(
        ReviveWorkflows(ids=list(ids), name=name, error=error, dry_run=dry_run, limit=limit)
    )
    if settings.as_json:
        print_json(answer)
        return
    if answer.workflows:
        show(workflow_table(answer.workflows, SYSTEM_CLOCK.now()))
    verb = "would be revived" if dry_run else "revived"
    click.echo(f"{len(answer.workflows)} {verb}")
    if answer.more:
        notice("the limit was reached, there may be more: run it again, or raise --limit")


@click.command()
@click.option(
    "--older-than", type=duration, required=True, metavar="DURATION",
    help="How long ago a workflow must have ended: 12h, 7d.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=10_000, show_default=True)
@common_options
def prune(settings: Settings, *, older_than: int, limit: int) -> None:
    """Delete workflows that ended long ago, as their definitions allow."""
    answer = settings.ask(Prune(closed_before=SYSTEM_CLOCK.now() - older_than, limit=limit))
    if settings.as_json:
        print_json(answer)
    else:
        click.echo(f"{answer.pruned} pruned")
