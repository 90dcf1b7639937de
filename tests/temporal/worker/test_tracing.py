"""`PERDURE_TRACE` and `PERDURE_RECORD`, and the replay of what they recorded."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner
from temporalio.client import Client
from temporalio.worker import Worker
from tests.temporal.support import sample

from perdure.temporal.errors import RecordFolderUnusable
from perdure.temporal.replay_inputs import main


async def run_some(client: Client) -> None:
    queue = f"queue/{uuid.uuid4()}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=sample.WORKFLOWS,
        activities=[sample.greet, sample.refuse, sample.third_time_lucky, sample.wait_for_cancel],
    ):
        for name in ("LocalActivities", "Patched"):
            await client.execute_workflow(name, id=f"{queue}-{name}", task_queue=queue)


async def test_the_trace_shows_each_run(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_TRACE", "1")
    await run_some(client)
    trace = capsys.readouterr().err
    assert "task of LocalActivities (attempt 1)" in trace
    assert "lang did: schedule_local_activity(1, " in trace
    assert f"{sample.__file__}:" in trace, "the lines of code that asked for commands"
    assert "to lang, live at event 3: initialize_workflow(" in trace
    assert "complete the task: " in trace
    assert "measured" not in trace
    assert "count sticky_cache_hit" not in trace, "what is counted says nothing about a run"


async def test_a_folder_that_cannot_be_written_to_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PERDURE_RECORD", str(tmp_path / "file"))
    with pytest.raises(RecordFolderUnusable, match=r"PERDURE_RECORD .*/file.*File exists"):
        await run_some(client)


async def test_nothing_is_printed_unless_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_TRACE", "0")
    await run_some(client)
    assert "to lang" not in capsys.readouterr().err


async def test_recorded_inputs_are_replayed_offline(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_RECORD", str(tmp_path / "records"))
    await run_some(client)
    (path,) = (tmp_path / "records").iterdir()
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == 0, done.output
    assert "0 with another outcome than recorded" in done.output
    assert "complete the task: " in done.output

    lines = path.read_text().splitlines()
    changed = json.loads(lines[1])
    changed["did"] = ["worker: something else"]
    path.write_text("\n".join([lines[0], json.dumps(changed), *lines[2:]]))
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == 1
    assert "<- recorded: worker: something else" in done.output


def test_a_file_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("nothing of the kind\n")
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == 2
    assert "line 1 of the input log" in done.output
