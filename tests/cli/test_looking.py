"""Commands that only look, on a store that nobody owns."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from perdure.cli import main
from perdure.ids import Id

if TYPE_CHECKING:
    from tests.cli.conftest import Store


def line_of(text: str, start: str) -> str:
    [line] = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line


def test_list_shows_what_each_workflow_is_doing(store: Store) -> None:
    result = store.run("list")

    assert result.exit_code == 0
    waiting = line_of(result.stdout, store.waiting)
    assert "sleeping" in waiting
    assert "waits for signal paid" in waiting
    assert "due in 59m" in waiting
    assert "loop {3} at iteration 12" in waiting
    assert 'activity copy attempt 1: {"rows": 40}' in waiting
    assert "customer=42 tries:=1" in waiting
    assert "running" in line_of(result.stdout, store.busy)
    assert "complete" in line_of(result.stdout, store.complete)


def test_texts_from_the_store_cannot_drive_the_terminal(store: Store) -> None:
    result = store.run("list")

    assert " CardRefused: card refused\\x1b[31m" in line_of(result.stdout, store.dead)
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--state", "dead"], ["dead"]),
        (["--state", "sleeping"], ["waiting"]),
        (["--state", "running"], ["busy"]),
        (["--state", "complete"], ["complete"]),
        (["--state", "terminated"], []),
        (["--state", "open"], ["busy", "waiting"]),
        (["--state", "closed"], ["complete", "dead"]),
        (["--tag", "customer=42"], ["waiting"]),
        (["--tag", "customer=42", "--tag", "tries:=1"], ["waiting"]),
        (["--tag", "tries=1"], []),
        (["--name", "other"], []),
        (["--name", "fulfil", "--since", "1h"], ["busy", "complete", "dead", "waiting"]),
        (["--before", "1h"], []),
        (["--limit", "1"], ["busy"]),
    ],
)
def test_list_filters(store: Store, arguments: list[str], expected: list[str]) -> None:
    page = store.json("list", *arguments)
    found = [workflow["id"] for workflow in page["workflows"]]
    assert sorted(found) == sorted(getattr(store, name) for name in expected)


def test_pages_follow_one_another(store: Store) -> None:
    found = []
    arguments: list[str] = []
    for _ in range(4):
        page = store.json("list", "--limit", "1", *arguments)
        found += [workflow["id"] for workflow in page["workflows"]]
        if page["next_page"] is None:
            break
        arguments = ["--page", page["next_page"]]
    assert sorted(found) == sorted([store.waiting, store.dead, store.complete, store.busy])


def test_an_empty_list_says_so(store: Store) -> None:
    assert "no workflows" in store.run("list", "--name", "other").stdout


def test_get_shows_all_facts(store: Store) -> None:
    text = store.run("get", store.waiting).stdout

    assert line_of(text, "state").split() == ["state", "sleeping"]
    assert line_of(text, "waits for").split(maxsplit=2)[2] == "signal paid"
    assert '"order": 7' in text
    assert "loop {3} at iteration 12" in text
    assert "customer=42 tries:=1" in text

    assert '"done": true' in store.run("get", store.complete).stdout
    dead = store.run("get", store.dead).stdout
    assert "CardRefused: card refused" in dead
    assert "Traceback: card" in dead


def test_get_in_json(store: Store) -> None:
    waiting = store.json("get", store.waiting)

    assert waiting["state"] == "sleeping"
    assert waiting["waiting_for"] == ["signal paid"]
    assert waiting["tags"] == {"customer": "42", "tries": 1}
    assert waiting["input"] == {"order": 7}
    assert [each["what"] for each in waiting["progress"]] == ["loop", "activity"]
    assert waiting["progress"][1]["details"] == {"rows": 40}
    assert store.json("get", store.dead)["failure"]["type"] == "shop.money.CardRefused"
    assert store.json("get", store.complete)["output"] == {"done": True}
    assert store.json("get", store.busy)["worker"] is not None


def test_history_is_a_tree(store: Store) -> None:
    text = store.run("history", store.waiting).stdout

    charge = line_of(text.replace("├── ", ""), "{1}")
    assert "activity charge" in charge
    assert "4 attempts" in charge
    assert "x3 last TimeoutError: too slow" in charge
    assert '-> "ok"' in charge
    assert "until " in line_of(text.replace("├── ", ""), "{2}")
    loop = line_of(text.replace("└── ", ""), "{3}")
    assert "at iteration 12" in loop
    assert "    └── {3, 13, 1} activity copy" in text
    assert "now: loop {3} at iteration 12" in text


def test_history_with_timestamps(store: Store) -> None:
    plain = store.run("history", store.waiting).stdout
    timed = store.run("history", store.waiting, "--timestamps").stdout
    assert "+1s" not in plain
    assert "+1s" in timed


def test_history_in_json(store: Store) -> None:
    answer = store.json("history", store.waiting)
    charge, sleep, loop = answer["events"]

    assert answer["workflow"]["id"] == store.waiting
    assert (charge["kind"], charge["name"], charge["location"]) == ("activity", "charge", "{1}")
    assert charge["details"]["attempts"] == 4
    assert charge["details"]["output"] == "ok"
    assert sleep["details"]["state"] == "normal"
    assert loop["details"] == {"iteration": 12, "ended": False, "state": {"seen": 120}}
    assert loop["children"][0]["details"]["progress"] == {"rows": 40}


def test_stats(store: Store) -> None:
    answer = store.json("stats")
    assert answer["workflows"]["fulfil"] == {
        "sleeping": 1,
        "running": 1,
        "complete": 1,
        "dead": 1,
    }
    line = line_of(store.run("stats").stdout, "fulfil")
    assert line.split() == ["fulfil", "4", "1", "1", "1", "1", "0", "0"]


def test_signals(store: Store) -> None:
    assert store.json("signals", store.waiting) == []
    assert store.run("signal", store.waiting, "note", '{"text": "hi"}').exit_code == 0

    [signal] = store.json("signals", store.waiting)
    assert (signal["name"], signal["body"]) == ("note", {"text": "hi"})
    assert '{"text": "hi"}' in store.run("signals", store.waiting).stdout
    assert store.json("stats")["signals"] == {"note": 1}
    assert store.json("get", store.waiting)["pending_signals"] == {"note": 1}


def test_looking_changes_nothing_in_the_folder(store: Store) -> None:
    def contents() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in sorted(store.folder.rglob("*"))
            if path.is_file()
        }

    before = contents()
    for arguments in (["list"], ["get", store.dead], ["history", store.waiting], ["stats"]):
        assert store.run(*arguments).exit_code == 0
    assert contents() == before


def test_what_does_not_exist(store: Store) -> None:
    missing = str(Id.new())
    for command in ("get", "history", "signals"):
        result = store.run(command, missing)
        assert result.exit_code == 1
        assert missing in result.stderr
        assert result.stdout == ""


def test_errors_in_json(store: Store) -> None:
    missing = str(Id.new())
    result = store.run("get", missing, "--json")

    assert result.exit_code == 1
    assert '"code":"engine.workflow_not_found"' in result.stderr
    assert f'"workflow_id":"{missing}"' in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["get"],
        ["get", "nonsense"],
        ["list", "--state", "happy"],
        ["list", "--tag", "a"],
        ["list", "--since", "yesterday"],
        ["explode"],
        ["revive"],
        ["revive", "--error", "x"],
        ["prune"],
        ["run", "no_such_module_at_all:engine"],
        ["run", "json"],
        ["run", "json:nothing"],
        ["run", "json:loads.__doc__"],
    ],
)
def test_wrong_usage(store: Store, arguments: list[str]) -> None:
    assert store.run(*arguments).exit_code == 2


def test_no_store_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data", str(tmp_path / "nothing"), "list"])
    assert result.exit_code == 3
    assert "nothing" in result.stderr
    assert "--data" in result.stderr
    assert not (tmp_path / "nothing").exists()


def test_a_folder_without_a_store(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data", str(tmp_path), "list"])
    assert result.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_the_store_can_be_named_before_and_after_the_command(store: Store) -> None:
    runner = CliRunner()
    folder = str(store.folder)
    wrong = {"PERDURE_DATA": "/nowhere"}
    for arguments in (["--data", folder, "stats"], ["stats", "--data", folder]):
        assert runner.invoke(main, arguments, env=wrong).exit_code == 0
    assert runner.invoke(main, ["stats"], env=wrong).exit_code == 3
    assert runner.invoke(main, ["--json", "stats"], env={"PERDURE_DATA": folder}).stdout[0] == "{"


def test_help_tells_the_exit_codes() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "3 store not reachable" in " ".join(result.stdout.split())


def test_watch_repeats_until_interrupted(store: Store) -> None:
    # Started from a shell in the background, the tests ignore SIGINT, and so would the command.
    program = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "runpy.run_module('perdure.cli', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", program, "stats", "--watch", "--every", "0.1"]
    watching = subprocess.Popen(
        [*command, "--data", str(store.folder)], stdout=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(60, watching.kill)
    watchdog.start()
    assert watching.stdout is not None
    seen = 0
    for line in watching.stdout:
        seen += line.strip().startswith("fulfil")
        if seen == 2:
            break
    watching.send_signal(signal.SIGINT)
    watching.communicate()
    watchdog.cancel()
    assert seen == 2
    assert watching.returncode == 0
