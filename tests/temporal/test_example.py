"""The example of the documentation, as it is."""

from __future__ import annotations

import pytest


async def test_hello(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    from temporal import hello

    await hello.main(server)
    assert capsys.readouterr().out.split("\n") == [
        "query: ['Hello, moon!', 'Hello, world!']",
        "result: ['Hello, moon!', 'Hello, world!']",
        "replayed 24 events",
        "",
    ]
