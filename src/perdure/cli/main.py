"""The command with its subcommands."""

from __future__ import annotations

from importlib.metadata import version

import click

from perdure.cli import controlling, inspecting
from perdure.cli.registry import registry
from perdure.cli.run import run
from perdure.cli.settings import Settings, common_options

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("perdure"), prog_name="perdure")
@common_options
def main(settings: Settings) -> None:
    """Durable workflows: run workers, look at workflows, act on them.

    Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 store not reachable.
    """


for command in (
    run,
    inspecting.list_workflows,
    inspecting.get,
    inspecting.history,
    inspecting.signals,
    inspecting.stats,
    controlling.dispatch,
    controlling.signal,
    controlling.cancel,
    controlling.terminate,
    controlling.wake,
    controlling.revive,
    controlling.silence,
    controlling.unsilence,
    controlling.prune,
    registry,
):
    main.add_command(command)
