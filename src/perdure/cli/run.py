"""`perdure run`: an engine's worker as a process.

The first SIGTERM or SIGINT drains: no new work is taken, running steps may finish, the rest goes
to sleep and is taken up by the next worker. While that lasts, the worker logs every seven seconds
what it still runs. A second signal ends the process at once, which is safe (every finished step is
stored) but leaves the leases of the running workflows to expire.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
import structlog

from perdure.cli.exits import failed
from perdure.cli.exposition import serve_metrics
from perdure.cli.loading import load_engine
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.engine.engine import Engine

__all__ = ["run"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.argument("target", metavar="MODULE:ENGINE")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics here; 0: any.")
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="HOST")
@click.option(
    "--grace", type=click.FloatRange(min=0), metavar="SECONDS",
    help="How long running steps may take to finish.  [default: the engine's own]",
)  # fmt: skip
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def run(
    *,
    target: str,
    metrics_port: int | None,
    metrics_address: str,
    grace: float | None,
    verbose: bool,
) -> None:
    """Run the worker of an engine until SIGTERM or SIGINT.

    MODULE:ENGINE names an Engine, or a function that makes one, in a module that can be imported
    from the current folder.
    """
    _refuse_data()
    _configure_logs(verbose=verbose)
    engine = load_engine(target)
    try:
        asyncio.run(_work(engine, grace, metrics_port, metrics_address))
    except PerdureError as error:
        raise failed(error, as_json=False) from error


def _refuse_data() -> None:
    """An option that would be ignored must not look as if it were not."""
    group = click.get_current_context().parent
    if group is not None and (
        group.get_parameter_source("data") is click.core.ParameterSource.COMMANDLINE
    ):
        raise click.UsageError("an engine names its own store: leave out --data")


def _configure_logs(*, verbose: bool) -> None:
    """Readable lines on standard error, unless the application's module decides otherwise."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def _work(engine: Engine, grace: float | None, port: int | None, address: str) -> None:
    stop: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    with _stop_signals(stop):
        await engine.start()
        try:
            with _metrics(engine, port, address):
                names = ", ".join(sorted(engine.registry.names)) or "none"
                _say(f"running; workflows: {names}")
                received = await stop
                _say(f"{received.name}: draining; send it again to end at once")
        finally:
            await engine.shutdown(grace)
        _say("stopped")


@contextmanager
def _metrics(engine: Engine, port: int | None, address: str) -> Iterator[None]:
    if port is None:
        yield
        return
    with serve_metrics(engine.metrics.registry, port, address) as real_port:
        _say(f"metrics: http://{address}:{real_port}/metrics")
        yield


@contextmanager
def _stop_signals(stop: asyncio.Future[signal.Signals]) -> Iterator[None]:
    """While the block runs, the first stop signal completes `stop`, the next ends the process."""
    loop = asyncio.get_running_loop()

    def received(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(number)
            return
        _say(f"{number.name} again: ending at once")
        sys.stderr.flush()
        # Not sys.exit: threads of activities would keep the process alive.
        os._exit(128 + number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _say(text: str) -> None:
    click.echo(f"perdure: {text}", err=True)
