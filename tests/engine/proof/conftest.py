"""The stage of the proofs. At its end, whatever went wrong behind the scenes fails the test."""

from collections.abc import AsyncIterator

import pytest
from tests.engine.proof.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()
