"""The tables themselves: closed, connected, and all of them reached by the other tests."""

from __future__ import annotations

import pytest

from perdure.core.machines.activity import ActivityMachine
from perdure.core.machines.cancel_external import CancelExternalMachine
from perdure.core.machines.child_workflow import ChildWorkflowMachine
from perdure.core.machines.fire_and_forget import (
    ModifyPropertiesMachine,
    UpsertSearchAttributesMachine,
)
from perdure.core.machines.local_activity import LocalActivityMachine
from perdure.core.machines.machine import Machine
from perdure.core.machines.nexus_operation import NexusOperationMachine
from perdure.core.machines.patch import PatchMachine
from perdure.core.machines.signal_external import SignalExternalMachine
from perdure.core.machines.terminal import TERMINAL_MACHINES
from perdure.core.machines.timer import TimerMachine
from perdure.core.machines.update import UpdateMachine
from perdure.core.machines.workflow_task import WorkflowTaskMachine

ALL: list[type[Machine]] = [
    ActivityMachine,
    CancelExternalMachine,
    ChildWorkflowMachine,
    LocalActivityMachine,
    ModifyPropertiesMachine,
    NexusOperationMachine,
    PatchMachine,
    SignalExternalMachine,
    TimerMachine,
    UpdateMachine,
    UpsertSearchAttributesMachine,
    WorkflowTaskMachine,
    *TERMINAL_MACHINES.values(),
]

every_machine = pytest.mark.parametrize("machine", ALL, ids=lambda machine: machine.table.name)


@every_machine
def test_no_pair_is_both_taken_and_ignored(machine: type[Machine]) -> None:
    assert not machine.table.ignored & set(machine.table.transitions)


@every_machine
def test_every_state_can_be_reached(machine: type[Machine]) -> None:
    table = machine.table
    begins = {state for state, event in table.transitions if event.name == "SCHEDULE"}
    reached = {table.initial, *begins}
    while True:
        more = {
            following
            for (state, _), (following, _) in table.transitions.items()
            if state in reached
        } - reached
        if not more:
            break
        reached |= more
    assert reached == set(table.states)


@every_machine
def test_only_final_states_have_no_way_out(machine: type[Machine]) -> None:
    table = machine.table
    with_exit = {
        state for (state, _), (following, _) in table.transitions.items() if following != state
    }
    assert set(table.states) - with_exit == set(table.final)
    assert table.withdrawn <= table.final


@every_machine
def test_every_event_is_used(machine: type[Machine]) -> None:
    table = machine.table
    assert {event for _, event in table.transitions} == set(table.events)
    assert set(table.history.values()) | set(table.commands.values()) <= set(table.events)


def test_all_transitions_are_covered(taken: set[tuple[str, int, int]]) -> None:
    missing = [
        f"{machine.table.name}: {state.name} on {event.name}"
        for machine in ALL
        for state, event in (*machine.table.transitions, *machine.table.ignored)
        if (machine.table.name, int(state), int(event)) not in taken
    ]
    assert missing == []
