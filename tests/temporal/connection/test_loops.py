"""A client that is used from one event loop after the other."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import grpc.aio
from temporalio.client import Client


def test_a_channel_goes_with_its_loop(server: str) -> None:
    """Every `asyncio.run` is a loop of its own: its connection must not stay open for ever."""
    client = asyncio.run(Client.connect(server))
    core: Any = client.service_client._bridge_client._ref  # type: ignore[attr-defined]

    async def use() -> weakref.ref[grpc.aio.Channel]:
        await client.count_workflows()
        return weakref.ref(core.channels.get())

    used = [asyncio.run(use()) for _ in range(3)]
    gc.collect()
    assert [channel() is None for channel in used] == [True, True, False]
