"""`perdure registry`: what an engine can run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.loading import load_engine
from perdure.cli.output import clean, print_json, show, table
from perdure.cli.settings import Settings, common_options

if TYPE_CHECKING:
    from perdure.engine.definitions import Workflow

__all__ = ["registry"]


class WorkflowDefinition(msgspec.Struct, frozen=True):
    """A registered workflow as text. `about` is the first line of its docstring."""

    name: str
    function: str
    input: str
    output: str
    prune: str
    keep_iterations: int
    about: str


@click.command()
@click.argument("target", metavar="MODULE:ENGINE")
@common_options
def registry(settings: Settings, target: str) -> None:
    """List the workflows that an engine can run."""
    engine = load_engine(target)
    found = [_described(engine.registry.get(name)) for name in sorted(engine.registry.names)]
    if settings.as_json:
        print_json(found)
        return
    made = table("WORKFLOW", "INPUT", "OUTPUT", "PRUNE", "FUNCTION", "ABOUT")
    for each in found:
        made.add_row(
            each.name, each.input, each.output, each.prune, each.function, clean(each.about)
        )
    show(made)


def _described(workflow: Workflow[Any, Any]) -> WorkflowDefinition:
    function = workflow.function
    annotations = inspect.get_annotations(function)
    parameters = list(inspect.signature(function).parameters)
    taken = annotations.get(parameters[1], Any) if workflow.takes_input else None
    return WorkflowDefinition(
        name=workflow.name,
        function=f"{function.__module__}.{function.__qualname__}",
        input=_type_text(taken),
        output=_type_text(annotations.get("return", Any)),
        prune=workflow.stored_prune.name.lower(),
        keep_iterations=workflow.keep_iterations,
        about=(inspect.getdoc(function) or "").partition("\n")[0],
    )


def _type_text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    return inspect.formatannotation(annotation)
