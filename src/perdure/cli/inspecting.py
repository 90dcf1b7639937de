"""Commands that only look: list, get, history, signals, stats."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext, suppress

import click
from rich.live import Live

from perdure.cli.history_tree import history_view
from perdure.cli.output import notice, print_json, show
from perdure.cli.parameters import instant, tag, workflow_id
from perdure.cli.reach import reach_store
from perdure.cli.render import signal_table, stats_view, workflow_detail, workflow_table
from perdure.cli.settings import Settings, common_options
from perdure.clock import SYSTEM_CLOCK
from perdure.engine.admin.requests import (
    GetWorkflow,
    ListSignals,
    ListWorkflows,
    ReadHistory,
    Stats,
)
from perdure.engine.database.inspect import STATES
from perdure.engine.tags import TagValue

__all__ = ["get", "history", "list_workflows", "signals", "stats"]


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only workflows in this state.")
@click.option("--name", metavar="NAME", help="Only workflows of this name.")
@click.option(
    "--tag", "-t", "tags", type=tag, multiple=True, metavar="KEY=VALUE",
    help="Only workflows with this tag; may be repeated. KEY:=VALUE for a number or true/false.",
)  # fmt: skip
@click.option(
    "--since", type=instant, metavar="TIME", help="Created since: 2h, 7d, or a date and time."
)
@click.option("--before", type=instant, metavar="TIME", help="Created before.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--page", metavar="TOKEN", help="Go on where an earlier list ended.")
@common_options
def list_workflows(
    settings: Settings,
    *,
    state: str | None,
    name: str | None,
    tags: tuple[tuple[str, TagValue], ...],
    since: int | None,
    before: int | None,
    limit: int,
    page: str | None,
) -> None:
    """List workflows, the newest first."""
    answer = settings.ask(
        ListWorkflows(
            state=state,
            name=name,
            tags=dict(tags),
            since=since,
            before=before,
            limit=limit,
            page=page,
        )
    )
    if settings.as_json:
        print_json(answer)
        return
    show(workflow_table(answer.workflows, SYSTEM_CLOCK.now()))
    if answer.next_page is not None:
        notice(f"more with --page {answer.next_page}")


@click.command()
@click.argument("id", type=workflow_id)
@common_options
def get(settings: Settings, *, id: str) -> None:
    """Show everything about a workflow but its history."""
    answer = settings.ask(GetWorkflow(id=id))
    if settings.as_json:
        print_json(answer)
    else:
        show(workflow_detail(answer, SYSTEM_CLOCK.now()))


@click.command()
@click.argument("id", type=workflow_id)
@click.option("--forgotten", "-f", is_flag=True, help="Also finished iterations of loops.")
@click.option("--timestamps", "-t", is_flag=True, help="Show when each step began and ended.")
@common_options
def history(
    settings: Settings,
    id: str,
    forgotten: bool,
    timestamps: bool,
) -> None:
    """Show the recorded steps of a workflow as a tree."""
    answer = settings.ask(ReadHistory(id=id, forgotten=forgotten))
    if settings.as_json:
        print_json(answer)
    else:
        show(history_view(answer, SYSTEM_CLOCK.now(), timestamps=timestamps))


@click.command()
@click.argument("id", type=workflow_id)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@common_options
def signals(settings: Settings, *, id: str, limit: int) -> None:
    """List the signals sent to a workflow that it has not received yet."""
    answer = settings.ask(ListSignals(id=id, limit=limit))
    if settings.as_json:
        print_json(answer)
    else:
        show(signal_table(answer, SYSTEM_CLOCK.now()))


@click.command()
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until interrupted.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, metavar="SECONDS",
    help="Pause between two looks of --watch.",
)  # fmt: skip
@common_options
def stats(settings: Settings, *, watch: bool, every: float) -> None:
    """Count workflows by name and state, and pending signals."""
    if watch:
        with suppress(KeyboardInterrupt):
            settings.perform(_watch(settings, every))
        return
    answer = settings.ask(Stats())
    if settings.as_json:
        print_json(answer)
    else:
        show(stats_view(answer))


async def _watch(settings: Settings, every: float) -> None:
    """Ask for ever, each time anew: the store's owner may come and go meanwhile."""
    live = sys.stdout.isatty() and not settings.as_json
    with Live(auto_refresh=False) if live else nullcontext() as display:
        while True:
            async with reach_store(settings.data, writes=False) as target:
                answer = await target.ask(Stats())
            if settings.as_json:
                print_json(answer)
            elif isinstance(display, Live):
                display.update(stats_view(answer), refresh=True)
            else:
                show(stats_view(answer))
            await asyncio.sleep(every)
