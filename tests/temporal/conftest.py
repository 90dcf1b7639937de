"""A real Temporal server for the tests of this folder, started once by the official SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

ATTRIBUTES = [
    "PerdureKeyword=Keyword",
    *(
        f"Parity{kind}={kind}"
        for kind in ("Keyword", "Text", "Int", "Double", "Bool", "Datetime", "KeywordList")
    ),
]
OPTIONS = [
    "nexusoperation.enableStandalone=true",
    "history.enableSignalWithStartFromWorkflow=true",
    "system.forceSearchAttributesCacheRefreshOnRead=true",
    "limit.historyCount.suggestContinueAsNew=50",
    "system.enableEagerWorkflowStart=true",
    "frontend.enableExecuteMultiOperation=true",
    "frontend.workerVersioningWorkflowAPIs=true",
    "frontend.workerVersioningDataAPIs=true",
    "system.enableDeploymentVersions=true",
    "frontend.activityAPIsEnabled=true",
    "activity.enableStandalone=true",
    "frontend.WorkflowPauseEnabled=true",
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[str]:
    """The address of the server."""
    async with await WorkflowEnvironment.start_local(
        ui=False,
        dev_server_log_level="never",
        dev_server_startup_timeout=timedelta(seconds=60),
        dev_server_extra_args=[
            *(a for name in ATTRIBUTES for a in ("--search-attribute", name)),
            *(a for option in OPTIONS for a in ("--dynamic-config-value", option)),
        ],
    ) as environment:
        yield environment.client.service_client.config.target_host


STRICT = {
    "limit.blobSize.error": "100000",
    "limit.blobSize.warn": "50000",
    "limit.memoSize.error": "3000",
    "history.enableWorkflowTaskCompletionPagination": "true",
    "frontend.WorkerCommandsEnabled": "true",
    "system.enableCancelActivityWorkerCommand": "true",
    "frontend.enableCancelWorkerPollsOnShutdown": "true",
    "frontend.workerVersioningDataAPIs": "true",
    "frontend.workerVersioningWorkflowAPIs": "true",
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def strict_server() -> AsyncIterator[str]:
    """The address of a server with small limits and all capabilities of namespaces."""
    async with await WorkflowEnvironment.start_local(
        ui=False,
        dev_server_log_level="never",
        dev_server_startup_timeout=timedelta(seconds=60),
        dev_server_extra_args=[
            argument
            for name, value in STRICT.items()
            for argument in ("--dynamic-config-value", f"{name}={value}")
        ],
    ) as environment:
        yield environment.client.service_client.config.target_host


@pytest.fixture
async def client(server: str) -> Client:
    """A client of its own for every test, on the loop of the test."""
    return await Client.connect(server)
