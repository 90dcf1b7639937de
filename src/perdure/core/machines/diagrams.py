"""Draws the state machines from their tables, as mermaid diagrams in one page of Markdown.

`python -m perdure.core.machines.diagrams` writes the page to standard output; the page in the
documentation is that output, and a test compares them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from perdure.core.machines.activity import ActivityMachine
from perdure.core.machines.cancel_external import CancelExternalMachine
from perdure.core.machines.child_workflow import ChildWorkflowMachine
from perdure.core.machines.fire_and_forget import (
    ModifyPropertiesMachine,
    UpsertSearchAttributesMachine,
)
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.machine import Machine, Table
from perdure.core.machines.nexus_operation import NexusOperationMachine
from perdure.core.machines.patch import PatchMachine
from perdure.core.machines.signal_external import SignalExternalMachine
from perdure.core.machines.terminal import TERMINAL_MACHINES
from perdure.core.machines.timer import TimerMachine
from perdure.core.machines.update import UpdateMachine
from perdure.core.machines.workflow_task import WorkflowTaskMachine

__all__ = ["ALL_MACHINES", "page"]

ALL_MACHINES: Final[tuple[type[Machine], ...]] = (
    WorkflowTaskMachine,
    TimerMachine,
    ActivityMachine,
    LocalActivityMachine,
    ChildWorkflowMachine,
    SignalExternalMachine,
    CancelExternalMachine,
    NexusOperationMachine,
    PatchMachine,
    UpdateMachine,
    UpsertSearchAttributesMachine,
    ModifyPropertiesMachine,
    *TERMINAL_MACHINES.values(),
)

_HEAD: Final = """\
# State machines of the worker core

Every command of a workflow is a small state machine. These pictures are drawn from the tables that
run, by `python -m perdure.core.machines.diagrams`; do not edit them. An arrow is an event, with the
name of its effect after the slash. Events that are ignored in a state are listed below the picture;
every other pair of state and event is an error.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(machine.table) for machine in ALL_MACHINES)])


def _section(table: Table) -> str:
    return "\n".join([f"## {table.name}", "", "```mermaid", *_diagram(table), "```", *_rest(table)])


def _diagram(table: Table) -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {table.initial.name}"
    for (state, event), (following, effect) in table.transitions.items():
        label = f"{event.name} / {effect}" if effect else event.name
        yield f"    {state.name} --> {following.name}: {label}"
    for state in sorted(table.final):
        yield f"    {table.states(state).name} --> [*]"


def _rest(table: Table) -> Iterator[str]:
    yield ""
    ignored: dict[str, list[str]] = defaultdict(list)
    for state, event in sorted(table.ignored):
        ignored[table.states(state).name].append(table.events(event).name)
    for name, events in ignored.items():
        yield f"* {name} ignores {', '.join(events)}"
    if ignored:
        yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
