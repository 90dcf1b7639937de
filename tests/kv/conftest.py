"""Stores for the tests of the key-value floor: each test runs on every driver."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.testing.store import STORE_KINDS, Store, StoreKind


@pytest.fixture(params=STORE_KINDS)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    chosen: StoreKind = request.param
    return chosen


@pytest.fixture
async def store(kind: StoreKind, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(kind, tmp_path)
    yield opened
    await opened.close()
