"""Files of the standard library and what we want to know about each: plain code, no workflows.

The activity and the plain scan that checks it both call `read_facts`, so a difference between the
two totals can only come from a file that was lost or counted twice.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "TOP_LEVEL",
    "FileFacts",
    "Package",
    "Totals",
    "find_packages",
    "library",
    "read_facts",
    "scan",
]

TOP_LEVEL = "(modules)"
_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Package:
    """A package of the library, or all its single modules together. Paths start at `root`."""

    name: str
    root: str
    paths: list[str]


@dataclass(frozen=True)
class FileFacts:
    """What one file holds. `definitions` counts functions and classes, nested ones too."""

    path: str
    lines: int
    definitions: int
    digest: str


@dataclass
class Totals:
    """A sum over files. `checksum` is the sum of all digests, so the order does not matter."""

    files: int = 0
    lines: int = 0
    definitions: int = 0
    checksum: str = "0"

    def add(self, facts: Iterable[FileFacts]) -> None:
        """Count more files in."""
        for one in facts:
            self.merge(Totals(1, one.lines, one.definitions, one.digest))

    def merge(self, other: Totals) -> None:
        """Count another sum in."""
        self.files += other.files
        self.lines += other.lines
        self.definitions += other.definitions
        self.checksum = f"{(int(self.checksum, 16) + int(other.checksum, 16)) % 2**256:x}"


def library() -> str:
    """The folder of the running Python's standard library."""
    return sysconfig.get_paths()["stdlib"]


def find_packages(root: str, names: Iterable[str] = ()) -> list[Package]:
    """The packages below `root` by name; with `names`, only those. Raises `LookupError`."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(root).rglob("*.py")):
        parts = path.relative_to(root).parts
        if _FOREIGN.isdisjoint(parts):
            found.setdefault(parts[0] if len(parts) > 1 else TOP_LEVEL, []).append("/".join(parts))
    chosen = list(names) or sorted(found)
    if unknown := [name for name in chosen if name not in found]:
        raise LookupError(
            f"no package {', '.join(unknown)} in {root}; there are {', '.join(sorted(found))}"
        )
    return [Package(name, root, found[name]) for name in chosen]


def read_facts(root: str, path: str) -> FileFacts:
    """Read one file. Some of the library's files are broken on purpose: they define nothing."""
    source = (Path(root) / path).read_bytes()
    try:
        with warnings.catch_warnings(action="ignore"):
            nodes = ast.walk(ast.parse(source))
            definitions = sum(isinstance(node, _DEFINITIONS) for node in nodes)
    except (SyntaxError, ValueError):
        definitions = 0
    return FileFacts(path, source.count(b"\n"), definitions, hashlib.sha256(source).hexdigest())


def scan(packages: Iterable[Package]) -> Totals:
    """Read all files one after the other, as one would without an engine."""
    totals = Totals()
    for package in packages:
        totals.add(read_facts(package.root, path) for path in package.paths)
    return totals
