"""Makes a program on which the cores disagree smaller, while they disagree in the same way."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.temporal.fuzz.programs import marked

__all__ = ["shrunk"]

Program = dict[str, Any]


async def shrunk(
    program: Program, fails: Callable[[Program], Awaitable[bool]], said: Callable[[Program], None]
) -> Program:
    """The smallest program found; `fails` tries one, `said` hears of each step."""
    while True:
        for candidate in _smaller(program):
            if await fails(candidate):
                program = candidate
                said(program)
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    for path in _paths(program):
        for change in (_remove, *map(_replace_by, range(4))):
            candidate = copy.deepcopy(program)
            if change(candidate, path):
                yield _marked_again(candidate)


def _paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every step and every action, the outer ones first."""
    if isinstance(node, dict):
        if path and ("op" in node or "act" in node):
            yield path
        for key, value in node.items():
            yield from _paths(value, (*path, key))
    elif isinstance(node, list):
        for number in reversed(range(len(node))):
            yield from _paths(node[number], (*path, number))


def _parent(program: Program, path: tuple[Any, ...]) -> Any:
    node: Any = program
    for key in path[:-1]:
        node = node[key]
    return node


def _remove(program: Program, path: tuple[Any, ...]) -> bool:
    parent = _parent(program, path)
    if not isinstance(parent, list) or (path[-2] == "steps" and len(parent) == 1):
        return False
    if parent[path[-1]].get("act") == "poke":
        return False  # a wait might then never end, on any core
    del parent[path[-1]]
    return True


def _replace_by(choice: int) -> Callable[[Program, tuple[Any, ...]], bool]:
    """Replace a step by one of its parts, or by nearly nothing."""

    def replace(program: Program, path: tuple[Any, ...]) -> bool:
        parent = _parent(program, path)
        step = parent[path[-1]]
        nothing = {"op": "yield"}
        if "op" not in step or step in (nothing, {"op": "forever"}):
            return False
        parts = [step["body"]] if "body" in step else step.get("steps", [])
        options = [*parts, nothing]
        if choice >= len(options):
            return False
        parent[path[-1]] = options[choice]
        return True

    return replace


def _marked_again(node: Any) -> Any:
    if isinstance(node, dict):
        for value in node.values():
            _marked_again(value)
        if node.get("op") in {"first", "cancel"}:
            marked(node)
    elif isinstance(node, list):
        for value in node:
            _marked_again(value)
    return node
