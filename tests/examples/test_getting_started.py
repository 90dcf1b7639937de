"""docs/getting-started.md, done as it says."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"
PROGRAM, APPLICATION, TESTS = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)
PERDURE = Path(sys.executable).parent / "perdure"


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's program as the module `orders`, with the page's later additions."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "orders.py"
    path.write_text("\n".join([PROGRAM.split("if __name__")[0], APPLICATION, TESTS]))
    spec = importlib.util.spec_from_file_location("orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "orders", module)
    spec.loader.exec_module(module)
    return module


def perdure(*arguments: str, cwd: Path) -> str:
    command = [str(PERDURE), "--data", "orders-data", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_signal_from_the_command_line_reaches_the_program(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(PROGRAM)
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "orders.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        workflow_id = program.stdout.readline().split()[0]
        assert workflow_id in perdure("list", cwd=tmp_path)
        body = '{"approved": true, "by": "Ada"}'
        perdure("signal", workflow_id, "decision", body, cwd=tmp_path)
        said, _ = program.communicate(timeout=30)

    assert said == "parcel 17, approved by Ada\n"
    assert "complete" in perdure("get", workflow_id, cwd=tmp_path)
    assert "ship" in perdure("history", workflow_id, "--timestamps", cwd=tmp_path)


async def test_the_application_starts_dispatches_and_stops(orders: ModuleType) -> None:
    await orders.startup()
    first = await orders.place_order(17, 4_900)
    assert await orders.place_order(17, 4_900) == first
    await orders.shutdown()


async def test_the_tests_of_the_page_pass(orders: ModuleType) -> None:
    await orders.test_nobody_decides()
    await orders.test_a_decision_ships_the_parcel()
