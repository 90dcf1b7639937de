"""The code in docs/workflows.md is run as it stands there.

Blocks that only define things are executed first; then blocks that await run in order against an
engine that knows every workflow of the page. What a line `print(...)  # text` promises must be
printed.
"""

import ast
import asyncio
import contextlib
import io
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure import Engine, Workflow

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)

RESULTS: list[tuple[str, Any, Any]] = [
    ("download", "perdure.org", re.compile(r"perdure\.org after 3 attempts: [0-9a-f]{8}")),
    ("backup", 5, "copied from file 3 on"),
    ("remind", 0.001, "in time, ticket 36"),
    ("double", 21, 42),
    ("family", 1, [2, 20, 200]),
    ("trip", "Oslo", "8 8 3"),
    ("album", [1, 2, 3], "2 of 3"),
    ("collect", 50, "400 characters"),
    ("careful", None, "no, so we did without"),
    ("subscribe", "Ada", "8 8"),
    ("greet", "Ada", "hello Ada"),
    ("deliver", "book", "book by drone"),
]


def awaits(block: str) -> bool:
    """Whether the block awaits something outside of its functions."""
    try:
        compile(block, str(PAGE), "exec")
    except SyntaxError:
        return True
    return False


def promised(block: str) -> list[str]:
    return re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)


@pytest.fixture
async def page() -> AsyncIterator[dict[str, Any]]:
    """The names that the page defines, and an engine with its workflows."""
    module = ModuleType("docs_workflows")
    sys.modules[module.__name__] = module
    names = vars(module)
    for block in BLOCKS:
        if not awaits(block):
            exec(compile(block, str(PAGE), "exec"), names)
    workflows = [value for value in names.values() if isinstance(value, Workflow)]
    async with Engine("memory:", workflows=workflows) as names["engine"]:
        yield names
    del sys.modules[module.__name__]


async def test_what_the_page_prints_is_true(page: dict[str, Any]) -> None:
    live = [block for block in BLOCKS if awaits(block)]
    assert live
    for block in live:
        code = compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            await asyncio.wait_for(eval(code, page), 30)
        assert printed.getvalue().splitlines() == promised(block)


@pytest.mark.parametrize(("name", "argument", "expected"), RESULTS)
async def test_the_workflows_of_the_page_run(
    page: dict[str, Any], name: str, argument: Any, expected: Any
) -> None:
    handle = await page["engine"].dispatch(page[name], argument)
    result = await handle.result(timeout=30)
    if isinstance(expected, re.Pattern):
        assert expected.fullmatch(result)
    else:
        assert result == expected


def test_no_workflow_of_the_page_is_left_out() -> None:
    text = "\n".join(BLOCKS)
    defined = set(re.findall(r"@workflow\nasync def (\w+)", text))
    shown = set(re.findall(r"engine\.dispatch\((\w+)", text))
    assert defined == shown | {name for name, _, _ in RESULTS}


def test_links_inside_the_page_lead_somewhere() -> None:
    text = PAGE.read_text()
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings}
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        assert not path or (PAGE.parent / path).exists(), link
        assert path or anchor in anchors, link
