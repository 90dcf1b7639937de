"""The tables themselves: closed, connected, and all of them reached by the other tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.machines.diagrams import ALL_MACHINES, page
from perdure.core.machines.machine import Machine

DIAGRAMS = Path(__file__).parents[3] / "docs" / "temporal-state-machines.md"

every_machine = pytest.mark.parametrize(
    "machine", ALL_MACHINES, ids=lambda machine: machine.table.name
)


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


def test_the_diagrams_are_drawn_from_the_tables() -> None:
    assert DIAGRAMS.read_text() == page()


def test_all_transitions_are_covered(taken: set[tuple[str, int, int]]) -> None:
    missing = [
        f"{machine.table.name}: {state.name} on {event.name}"
        for machine in ALL_MACHINES
        for state, event in (*machine.table.transitions, *machine.table.ignored)
        if (machine.table.name, int(state), int(event)) not in taken
    ]
    assert missing == []
