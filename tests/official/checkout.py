"""A checkout of the official SDK's repository, and a copy of its tests that can be run.

The checkout has a folder `temporalio` without the compiled core. Were it on the import path, it
would hide the installed package; so the tests run in a copy without it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Checkout", "CheckoutUnusable"]

_LEFT_OUT = shutil.ignore_patterns(
    "temporalio", ".*", "__pycache__", "target", "dist", "build", "node_modules", "venv"
)
_LOOPS = ("asyncio_default_fixture_loop_scope", "asyncio_default_test_loop_scope")


class CheckoutUnusable(Exception):
    """There are no tests in the folder, or they belong to another version of the SDK."""


@dataclass(frozen=True)
class Checkout:
    """A checkout whose tests can be run."""

    root: Path
    version: str
    pytest_options: dict[str, Any]

    @classmethod
    def open(cls, root: Path, *, any_version: bool) -> Checkout:
        """Look at a folder; CheckoutUnusable if its tests cannot be run here."""
        project = root / "pyproject.toml"
        if not project.is_file() or not (root / "tests").is_dir():
            raise CheckoutUnusable(
                f"{root} is no checkout of sdk-python: it needs pyproject.toml and tests/"
            )
        settings = tomllib.loads(project.read_text(encoding="utf-8"))
        version = settings.get("project", {}).get("version", "unknown")
        installed = importlib.metadata.version("temporalio")
        if version != installed and not any_version:
            raise CheckoutUnusable(
                f"the tests in {root} are of version {version}, but temporalio {installed} is "
                f"installed: check out the tag {installed}, or pass --any-version"
            )
        options = settings.get("tool", {}).get("pytest", {}).get("ini_options", {})
        return cls(root, version, options)

    def copy(self, to: Path) -> None:
        """Everything but the package itself, so that the installed one is found."""
        shutil.copytree(self.root, to, ignore=_LEFT_OUT, dirs_exist_ok=True)

    def test_files(self) -> list[str]:
        """The test files, relative to the root."""
        files = (self.root / "tests").rglob("test_*.py")
        return sorted(str(path.relative_to(self.root)) for path in files)

    def asyncio_arguments(self) -> list[str]:
        """One event loop for the session, which the fixtures and tests of the suite rely on.

        The suite says so with a fixture `event_loop`, which pytest-asyncio honours before 1.0 only.
        """
        if not importlib.util.find_spec("pytest_asyncio"):
            return []
        if int(importlib.metadata.version("pytest-asyncio").split(".")[0]) < 1:
            return []
        missing = [name for name in _LOOPS if name not in self.pytest_options]
        return [part for name in missing for part in ("-o", f"{name}=session")]
