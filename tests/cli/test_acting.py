"""Commands that change something, on a store that nobody owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Store


def state(store: Store, workflow_id: str) -> str:
    found: str = store.json("get", workflow_id)["state"]
    return found


def test_they_own_the_store_for_the_moment_and_say_so(store: Store) -> None:
    result = store.run("wake", store.waiting)

    assert result.exit_code == 0
    assert f"no process owns {store.folder}" in result.stderr
    assert result.stdout == f"{store.waiting} is due now\n"
    assert (store.folder / "owner").read_bytes() == b""


def test_signal_wakes_the_one_that_waits_for_it(store: Store) -> None:
    sent = store.json("signal", store.waiting, "paid", "12")

    assert sent["woken"] is True
    assert sent["workflow_id"] == store.waiting
    assert store.json("signals", store.waiting)[0]["body"] == 12


def test_a_signal_without_a_body_is_null(store: Store) -> None:
    assert "woke the workflow" in store.run("signal", store.waiting, "paid").stdout
    assert store.json("signals", store.waiting)[0]["body"] is None


def test_dispatch(store: Store) -> None:
    arguments = ["dispatch", "fulfil", '{"order": 8}', "-t", "n:=1", "-t", "who=Ada"]
    started = store.json(*arguments, "--unique", "order 8")
    again = store.run("dispatch", "fulfil", "--unique", "order 8")

    assert started["created"] is True
    assert again.stdout == f"{started['workflow_id']} is open already and has this key\n"
    detail = store.json("get", started["workflow_id"])
    assert (detail["name"], detail["input"]) == ("fulfil", {"order": 8})
    assert (detail["tags"], detail["unique"]) == ({"n": 1, "who": "Ada"}, "order 8")


def test_a_dispatch_without_an_input_is_null_and_never_the_same_twice(store: Store) -> None:
    first = store.run("dispatch", "fulfil").stdout
    assert first.endswith(" is dispatched\n")
    assert store.run("dispatch", "fulfil").stdout != first
    assert store.json("get", first.split()[0])["input"] is None


def test_a_dispatch_with_a_bad_name_is_refused(store: Store) -> None:
    result = store.run("dispatch", "Fulfil!")
    assert result.exit_code == 1
    assert "Fulfil!" in result.stderr


def test_cancel(store: Store) -> None:
    assert "will be told" in store.run("cancel", store.waiting, "--reason", "changed mind").stdout
    assert "before" in store.run("cancel", store.waiting).stdout

    detail = store.json("get", store.waiting)
    assert detail["cancel_reason"] == "changed mind"
    assert "changed mind" in store.run("get", store.waiting).stdout


def test_terminate(store: Store) -> None:
    assert store.run("terminate", store.busy, "--reason", "stuck").exit_code == 0
    assert state(store, store.busy) == "terminated"
    assert "stuck" in store.run("get", store.busy).stdout
    again = store.run("terminate", store.busy)
    assert again.exit_code == 1
    assert "terminated" in again.stderr


def test_silence_and_unsilence(store: Store) -> None:
    assert store.run("silence", store.waiting).exit_code == 0
    assert state(store, store.waiting) == "silenced"
    assert [each["id"] for each in store.json("list", "--state", "silenced")["workflows"]] == [
        store.waiting
    ]
    assert store.json("silence", store.waiting)["changed"] is False
    assert store.run("wake", store.waiting).exit_code == 1
    assert store.run("unsilence", store.waiting).exit_code == 0
    assert state(store, store.waiting) == "sleeping"
    assert store.json("unsilence", store.waiting)["changed"] is False


def test_silence_is_refused_while_it_runs(store: Store) -> None:
    result = store.run("silence", store.busy)
    assert result.exit_code == 1
    assert "running" in result.stderr


def test_revive_by_id(store: Store) -> None:
    assert store.run("revive", store.dead, "--dry-run").stdout.endswith("1 would be revived\n")
    assert state(store, store.dead) == "dead"
    assert store.run("revive", store.dead).stdout.endswith("1 revived\n")
    assert state(store, store.dead) == "sleeping"


def test_revive_by_name_and_error(store: Store) -> None:
    def revived(*arguments: str) -> list[str]:
        answer = store.json("revive", "--name", "fulfil", *arguments)
        return [workflow["id"] for workflow in answer["workflows"]]

    assert revived("--error", "another text") == []
    assert revived("--error", "card refused", "--dry-run") == [store.dead]
    assert state(store, store.dead) == "dead"
    assert revived("--error", "card refused") == [store.dead]
    assert state(store, store.dead) == "sleeping"


def test_only_the_dead_are_revived(store: Store) -> None:
    result = store.run("revive", store.complete)
    assert result.exit_code == 1
    assert "complete" in result.stderr


def test_prune(store: Store) -> None:
    assert store.run("prune", "--older-than", "1h").stdout == "0 pruned\n"
    assert store.json("prune", "--older-than", "0s") == {"pruned": 1}
    assert store.run("get", store.complete).exit_code == 1
    assert state(store, store.dead) == "dead"


@pytest.mark.parametrize(
    "arguments", [["signal", "paid"], ["cancel"], ["terminate"], ["wake"], ["silence"]]
)
def test_the_finished_refuse(store: Store, arguments: list[str]) -> None:
    command, *rest = arguments
    result = store.run(command, store.complete, *rest)
    assert result.exit_code == 1
    assert "complete" in result.stderr
