"""The first five minutes of the README, done as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_program_survives_its_kill_as_the_readme_says(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (commands,) = [block for block in blocks("sh") if "kill -9" in block]
    (tmp_path / "hello.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    finished = subprocess.run(
        ["bash", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    said = finished.stdout.splitlines()
    assert said[-1] == "counted to 8"
    steps = [int(line.removeprefix("step ")) for line in said[:-1]]
    assert sorted(set(steps)) == list(range(1, 9))
    # One step may have been under way when the kill came, and is then said again.
    assert len(steps) <= 9
    assert steps == sorted(steps)


def test_the_program_is_as_short_as_promised() -> None:
    (program,) = blocks("python")
    lines = [line for line in program.splitlines() if line.strip()]
    assert len(lines) <= 20


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README.read_text())
    assert links
    for link in links:
        assert link.startswith("http") or (README.parent / link).exists(), link
