"""How our core gets into the official SDK, in processes of their own."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import temporalio
from temporalio.service import BridgeRPCError  # type: ignore[attr-defined]
from tests.temporal.support.cores import SCRIPTS, on_both_cores

from perdure.temporal import install, installed

SHOW = """
import temporalio.client, temporalio.worker, temporalio.testing, temporalio.envconfig
import temporalio.bridge.temporal_sdk_bridge as bridge
print(bridge.ClientRef.__module__)
"""


def run(
    *arguments: str, code: str | None = None, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-c", code] if code is not None else []), *arguments]
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=60
    )


def test_this_test_run_uses_our_core() -> None:
    assert installed()
    install()  # once more changes nothing
    assert BridgeRPCError.__module__ == "perdure.temporal.sdk_errors"


def test_after_installing_the_whole_sdk_imports() -> None:
    done = run(code=f"import perdure.temporal\nperdure.temporal.install()\n{SHOW}")
    assert done.stdout.strip() == "perdure.temporal.bridge.client", done.stderr


def test_installing_too_late_says_what_to_do() -> None:
    done = run(code="import temporalio.client, perdure.temporal\nperdure.temporal.install()")
    assert done.returncode != 0
    assert "InstalledTooLate" in done.stderr
    assert "python -m perdure.temporal" in done.stderr


def test_a_script_is_run_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SHOW + "import sys; print(sys.argv[1:], __name__)")
    done = run("-m", "perdure.temporal", str(script), "one")
    assert done.stdout.split("\n")[:2] == [
        "perdure.temporal.bridge.client",
        "['one'] __main__",
    ], done.stderr


def test_a_module_is_run_unchanged() -> None:
    done = run("-m", "perdure.temporal", "-m", "temporalio.bridge")
    assert "No module named temporalio.bridge.__main__" in done.stderr


def test_a_wrong_call_shows_the_usage() -> None:
    done = run("-m", "perdure.temporal")
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: python -m perdure.temporal" in done.stderr


def test_help_is_no_error() -> None:
    done = run("-m", "perdure.temporal", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: python -m perdure.temporal" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "status"),
    [
        (["missing.py"], "can't open file 'missing.py': no such file\n", 2),
        (["-m", "missing.module"], "no module named missing.module\n", 1),
        (["-m", ""], "no module named \n", 1),
    ],
)
def test_a_program_that_is_missing_is_named_without_a_traceback(
    arguments: list[str], text: str, status: int
) -> None:
    done = run("-m", "perdure.temporal", *arguments)
    assert (done.returncode, done.stderr) == (status, text)


@pytest.mark.parametrize("package", ["temporalio", "grpc"])
def test_a_missing_package_is_named_with_its_extra(package: str, tmp_path: Path) -> None:
    hide = f"""
import importlib.util as finding
found = finding.find_spec
finding.find_spec = lambda name, *rest: None if name == {package!r} else found(name, *rest)
"""
    (tmp_path / "sitecustomize.py").write_text(hide)
    (tmp_path / "script.py").write_text("print('it ran')")
    environment = os.pathsep.join([str(tmp_path), *sys.path])
    done = run("-m", "perdure.temporal", str(tmp_path / "script.py"), path=Path(environment))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"perdure.temporal needs the package {package}, which is not installed: "
        "pip install 'perdure[temporal]'\n"
    )


def test_the_compiled_file_is_not_needed(tmp_path: Path) -> None:
    original = Path(temporalio.__file__).parent
    compiled = list((original / "bridge").glob("temporal_sdk_bridge*.so"))
    assert compiled, "the official package comes with its core"
    shutil.copytree(
        original,
        tmp_path / "temporalio",
        ignore=shutil.ignore_patterns("*.so", "*.rs", "sdk-core", "__pycache__"),
    )
    without = run(code="import temporalio.client", path=tmp_path)
    assert "temporal_sdk_bridge" in without.stderr
    done = run(code=f"import perdure.temporal\nperdure.temporal.install()\n{SHOW}", path=tmp_path)
    assert done.stdout.strip() == "perdure.temporal.bridge.client", done.stderr


@pytest.mark.parametrize("name", ["perdure.temporal", "perdure.temporal.pytest_plugin"])
def test_installing_does_not_load_the_engine(name: str) -> None:
    code = f"import sys, {name}; perdure.temporal.install()\nprint('perdure.engine' in sys.modules)"
    assert run(code=code).stdout.strip() == "False"


def test_the_core_has_every_name_of_the_compiled_one() -> None:
    compiled, ours = on_both_cores("surface.py")
    of_instances = {"target", "has_test_service", "default_attributes"}
    for name, value in compiled.items():
        if isinstance(value, list):
            assert set(value) - of_instances <= set(ours[name]), name
        else:
            assert ours[name] == value, name


def test_the_contributed_modules_import() -> None:
    for name, promised in (
        ("opentelemetry", "TracingInterceptor"),
        ("pydantic", "pydantic_data_converter"),
        ("workflow_streams", "WorkflowStreamClient"),
    ):
        assert hasattr(importlib.import_module(f"temporalio.contrib.{name}"), promised)


@pytest.mark.parametrize("how", [["install"], []])
def test_a_workflow_may_be_in_the_script_itself(server: str, how: list[str]) -> None:
    """The sandbox reads the file again, and with it whatever installs our core."""
    runner = [] if how else ["-m", "perdure.temporal"]
    done = run("-W", "error", *runner, str(SCRIPTS / "one_file.py"), server, *how)
    assert done.stdout == '["hello file", true, "__main__"]', done.stderr
    assert done.stderr == ""


def test_a_script_finds_its_neighbours_only(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.path[0], __file__)")
    done = run("-m", "perdure.temporal", str(script))
    assert done.stdout.split() == [str(tmp_path), str(script)], done.stderr


def run_pytest(folder: Path, *plugins: str) -> subprocess.CompletedProcess[str]:
    (folder / "other_plugin.py").write_text("import temporalio.worker\n")
    (folder / "conftest.py").write_text("import temporalio.client\n")
    (folder / "test_core.py").write_text(
        "import perdure.temporal\ndef test_core(): assert perdure.temporal.installed()\n"
    )
    arguments = [part for plugin in plugins for part in ("-p", plugin)]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=60,
        cwd=folder,
    )


def test_a_suite_runs_on_our_core(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "perdure.temporal.pytest_plugin", "other_plugin")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_plugin_that_loads_the_compiled_core_first_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "other_plugin", "perdure.temporal.pytest_plugin")
    assert done.returncode != 0
    assert "the compiled core of temporalio is already imported" in done.stdout + done.stderr
