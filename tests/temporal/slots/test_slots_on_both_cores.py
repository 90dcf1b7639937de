"""Slots and polls on both cores: the same calls, the same requests, the same refusals."""

from __future__ import annotations

import asyncio

from tests.temporal.support.cores import on_both_cores


async def test_custom_suppliers_and_refused_workers(server: str) -> None:
    official, ours = await asyncio.to_thread(on_both_cores, "slots.py", server)
    assert ours.pop("out") == 0
    del official["out"]  # the compiled core may lose a permit that is given while it stops
    assert ours == official


def test_polls_and_their_errors() -> None:
    official, ours = on_both_cores("polls.py")
    for name, expected in official.items():
        assert ours[name] == expected, name
