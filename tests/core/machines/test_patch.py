"""Patches: the machine and its marker in both formats."""

from __future__ import annotations

import json

import pytest
from tests.core.support.fake_host import FakeHost, event, lang
from tests.core.support.history_builder import HistoryBuilder, payload

from perdure.core.errors import FatalError, NondeterminismError
from perdure.core.machines.patch import PatchMachine, PatchMarker, read_patch_marker


def test_the_marker() -> None:
    host = FakeHost()
    machine = PatchMachine(host, lang("set_patch_marker", patch_id="one", deprecated=True))
    host.prepare()
    (command,) = host.commands()
    attributes = command.record_marker_command_attributes
    assert attributes.marker_name == "core_patch"
    (data,) = attributes.details["patch-data"].payloads
    assert json.loads(data.data) == {"id": "one", "deprecated": True}
    assert data.metadata["encoding"] == b"json/plain"
    built = HistoryBuilder()
    built.patch_marker("one")
    machine.on_history(built.events[-1])
    assert machine.is_final


def test_in_a_replay() -> None:
    host = FakeHost(replaying=True)
    machine = PatchMachine(host, lang("set_patch_marker", patch_id="one"))
    host.prepare()
    built = HistoryBuilder()
    built.old_patch_marker("one")
    machine.on_history(built.events[-1])
    assert machine.is_final


def test_another_patch_is_nondeterminism() -> None:
    host = FakeHost()
    machine = PatchMachine(host, lang("set_patch_marker", patch_id="one"))
    host.prepare()
    built = HistoryBuilder()
    built.patch_marker("two")
    with pytest.raises(NondeterminismError, match="'two'"):
        machine.on_history(built.events[-1])


def test_another_marker_is_nondeterminism() -> None:
    host = FakeHost()
    machine = PatchMachine(host, lang("set_patch_marker", patch_id="one"))
    host.prepare()
    with pytest.raises(NondeterminismError, match="of another kind"):
        machine.on_history(event("marker_recorded", marker_name="other"))


@pytest.mark.parametrize("deprecated", [True, False])
def test_both_formats_are_read(deprecated: bool) -> None:
    built = HistoryBuilder()
    built.patch_marker("one", deprecated=deprecated)
    built.old_patch_marker("one", deprecated=deprecated)
    for found in built.events:
        assert read_patch_marker(found) == PatchMarker("one", deprecated)


def test_an_unreadable_marker_is_fatal() -> None:
    built = HistoryBuilder()
    built.marker("core_patch", {"patch-data": payload({"neither": "nor"})})
    with pytest.raises(FatalError, match="cannot be read"):
        read_patch_marker(built.events[-1])
