"""Finding the engine that a command line names: `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from perdure.engine.engine import Engine

__all__ = ["load_engine"]


def load_engine(target: str) -> Engine:
    """The engine at `module:name`, or what the function there returns when called.

    Raises `click.BadParameter`. Errors that the module itself raises pass through: their traceback
    is what its author needs to see.
    """
    from perdure.engine.engine import Engine

    found = _look_up(target)
    if callable(found) and not isinstance(found, Engine):
        found = found()
    if not isinstance(found, Engine):
        raise click.BadParameter(
            f"{target} is a {type(found).__qualname__}, not an Engine or a function that makes one"
        )
    return found


def _look_up(target: str) -> Any:
    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        raise click.BadParameter(f"{target!r} must look like package.module:name")
    # As `python -m` does: modules of the current folder are what people mean.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise click.BadParameter(f"there is no module {error.name} here ({here})") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise click.BadParameter(f"module {module_name} has no {path}") from error
    return found
