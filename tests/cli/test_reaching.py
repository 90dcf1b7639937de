"""Stores that another process owns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

from perdure.cli import main
from perdure.ids import Id

if TYPE_CHECKING:
    from tests.cli.conftest import Store


def test_an_owner_that_listens_is_asked(store: Store) -> None:
    with store.owned(listening=True):
        assert store.json("get", store.waiting)["state"] == "sleeping"
        result = store.run("signal", store.waiting, "paid", "1")
        assert result.exit_code == 0
        assert result.stderr == ""
        assert len(store.json("signals", store.waiting)) == 1
        started = store.json("dispatch", "fulfil", "[1]", "--tag", "n:=1")
        assert store.json("get", started["workflow_id"])["tags"] == {"n": 1}
        refused = store.run("wake", store.complete)
        assert refused.exit_code == 1
        assert "engine.workflow_finished" in refused.stderr
        history = store.run("history", store.waiting)
        assert "activity charge" in history.stdout


def test_a_folder_without_a_store_stays_one(tmp_path: Path) -> None:
    for arguments in (["list"], ["dispatch", "fulfil"]):
        result = CliRunner().invoke(main, ["--data", str(tmp_path), *arguments])
        assert result.exit_code == 3
        assert "there is no store in that folder" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_in_a_process_of_its_own(store: Store) -> None:
    command = [sys.executable, "-m", "perdure.cli", "--data", str(store.folder)]
    with store.owned(listening=True):
        listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=False)
        missing = subprocess.run(
            [*command, "get", str(Id.new())], capture_output=True, text=True, check=False
        )
    assert listed.returncode == 0, listed.stderr
    assert store.waiting in listed.stdout
    assert missing.returncode == 1


def test_an_owner_that_does_not_listen_is_named(store: Store) -> None:
    with store.owned(listening=False) as owner:
        for command in ("list", "wake"):
            arguments = [] if command == "list" else [store.waiting]
            result = store.run(command, *arguments)
            assert result.exit_code == 3
            assert str(owner.pid) in result.stderr
            assert str(store.folder) in result.stderr
            assert "does not listen" in result.stderr


def test_what_a_killed_owner_leaves_is_not_in_the_way(store: Store) -> None:
    with store.owned(listening=True):
        pass

    assert (store.folder / "admin.sock").exists()
    assert (store.folder / "owner").read_bytes() != b""
    assert store.json("get", store.waiting)["state"] == "sleeping"
    assert store.run("wake", store.waiting).exit_code == 0
