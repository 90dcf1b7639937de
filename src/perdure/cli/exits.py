"""Exit codes of the command, and how a failure becomes one.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused: the thing does not exist, or is not in a state that allows it |
| 2 | the command line is wrong (unknown option, malformed id) |
| 3 | the store cannot be reached: there is none, its owner does not answer, or it failed |
| 128 + n | `perdure run` was forced to end by signal n |
"""

from __future__ import annotations

from typing import Final

import click
import msgspec

from perdure.engine.admin.failures import ErrorView, error_view
from perdure.errors import PerdureError, WorldError

__all__ = ["Failed", "StoreUnreachable", "Unreachable", "failed"]

REFUSED: Final = 1
UNREACHABLE: Final = 3


class StoreUnreachable(WorldError):
    """There is no way to the store in folder `path` from here; `reason` says why."""

    code = "cli.store_unreachable"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot reach the store in {path}: {reason}")
        self.path = path
        self.reason = reason


class Failed(click.ClickException):
    """A command that was refused. Shown on standard error, as JSON if `as_json`."""

    exit_code = REFUSED

    def __init__(self, view: ErrorView, *, as_json: bool) -> None:
        super().__init__(view.message)
        self.view = view
        self.as_json = as_json

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        """Write the error to standard error."""
        if self.as_json:
            click.echo(msgspec.json.encode({"error": self.view}).decode(), err=True)
        else:
            click.secho("error: ", fg="red", bold=True, nl=False, err=True)
            click.echo(f"{self.view.message} ({self.view.code})", err=True)


class Unreachable(Failed):
    """A command that did not get at the store."""

    exit_code = UNREACHABLE


def failed(error: PerdureError, *, as_json: bool) -> Failed:
    """The exception for click that shows `error` and exits with the code for it."""
    view = error_view(error)
    return (Failed if view.fault == "caller" else Unreachable)(view, as_json=as_json)
