"""Options every command understands, before or after the command's name.

`perdure --data PATH --json list` and `perdure list --data PATH --json` mean the same; the one given
later wins.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from perdure.cli.exits import failed
from perdure.cli.reach import reach_store
from perdure.engine.admin.requests import Request
from perdure.errors import PerdureError

__all__ = ["DEFAULT_DATA", "Settings", "common_options"]

DEFAULT_DATA: Final = Path("perdure-data")

P = ParamSpec("P")
T = TypeVar("T")
Answer = TypeVar("Answer")


class Settings:
    """What the common options say. `data` is the folder of the store."""

    def __init__(self, data: Path = DEFAULT_DATA, *, as_json: bool = False) -> None:
        self.data = data
        self.as_json = as_json

    def ask(self, request: Request[Answer]) -> Answer:
        """Reach the store and perform one request. Raises `Failed`."""
        return self.perform(self._ask(request))

    async def _ask(self, request: Request[Answer]) -> Answer:
        async with reach_store(self.data, writes=request.writes) as target:
            return await target.ask(request)

    def perform(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on an event loop of its own. Raises `Failed` for errors of perdure."""
        try:
            return asyncio.run(work)
        except PerdureError as error:
            raise failed(error, as_json=self.as_json) from error


def common_options(
    function: Callable[Concatenate[Settings, P], T],
) -> Callable[..., T]:
    """Add `--data` and `--json` to a command; it gets `Settings` as its first argument."""

    @click.option(
        "--data",
        type=click.Path(path_type=Path),
        envvar="PERDURE_DATA",
        metavar="PATH",
        help=f"Folder of the store.  [env: PERDURE_DATA; default: ./{DEFAULT_DATA}]",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
    @click.pass_context
    @functools.wraps(function)
    def with_settings(
        context: click.Context, /, data: Path | None, as_json: bool, **arguments: Any
    ) -> T:
        outer = context.find_object(Settings) or Settings()
        given = context.get_parameter_source("data") is click.core.ParameterSource.COMMANDLINE
        inner = Settings(
            data if data is not None and (given or context.parent is None) else outer.data,
            as_json=as_json or outer.as_json,
        )
        context.obj = inner
        return function(inner, **arguments)  # type: ignore[call-arg]

    return with_settings
