"""What a worker says when it polls and when it goes, and what it makes of bad answers."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import temporalio.api.workflowservice.v1 as messages
from google.protobuf.json_format import MessageToDict
from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.history.v1 import History
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig
from tests.temporal.support.fake_server import FakeServer, Refused, fake_server

SILENT = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="off")))
NAMES = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
VERSION = WorkerDeploymentVersion(deployment_name="deployment", build_id="1")
VERSIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "build id": {"build_id": "1"},
    "by build id": {"build_id": "1", "use_worker_versioning": True},
    "unversioned": {
        "deployment_config": WorkerDeploymentConfig(version=VERSION, use_worker_versioning=False)
    },
    "versioned": {
        "deployment_config": WorkerDeploymentConfig(
            version=VERSION,
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )
    },
}
EXECUTION = WorkflowExecution(workflow_id="workflow", run_id="run")
TYPE = WorkflowType(name="Nothing")
MALFORMED: dict[str, dict[str, Any]] = {
    "no execution": {"workflow_type": TYPE, "history": History()},
    "no type": {"workflow_execution": EXECUTION, "history": History()},
    "no history": {"workflow_execution": EXECUTION, "workflow_type": TYPE},
}
POLLS = ("PollWorkflowTaskQueue", "PollActivityTaskQueue")


@activity.defn
async def nothing() -> None:
    """Nothing to do."""


@workflow.defn
class Nothing:
    @workflow.run
    async def run(self) -> None:
        """Nothing to do."""


def new_worker(client: Client, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue="queue",
        workflows=[Nothing],
        activities=[nothing],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_task_polls=2,
        max_concurrent_activity_task_polls=1,
        max_task_queue_activities_per_second=7.5,
        **options,
    )


async def requests(*, build_ids: bool, **options: Any) -> list[Any]:
    """The requests of a worker that has nothing to do."""
    async with fake_server() as fake:
        system = messages.GetSystemInfoResponse()
        system.capabilities.build_id_based_versioning = build_ids
        system.capabilities.activity_failure_include_heartbeat = True
        fake.script("GetSystemInfo", system)
        client = await Client.connect(fake.target, identity="me", runtime=SILENT)
        async with new_worker(client, **options):
            await fake.seen("PollWorkflowTaskQueue", 2)
            await fake.seen("PollActivityTaskQueue")
        return [*polled(fake), said("ShutdownWorker", fake.requests["ShutdownWorker"][0])]


def polled(fake: FakeServer) -> list[Any]:
    found = [said(poll, request) for poll in POLLS for request in fake.requests[poll]]
    return sorted(found, key=str)


def said(rpc: str, request: Any) -> Any:
    if rpc == "ShutdownWorker":
        request.ClearField("worker_heartbeat")
    text = json.dumps(MessageToDict(request), sort_keys=True)
    return [rpc, json.loads(NAMES.sub("NAME", text))]


async def outcome(rpc: str, answer: Any) -> list[Any]:
    """What becomes of a worker whose first poll gets this answer."""
    async with fake_server() as fake:
        fake.script(rpc, answer)
        client = await Client.connect(fake.target, runtime=SILENT)
        worker = new_worker(client)
        running = asyncio.create_task(worker.run())
        await fake.seen(rpc, 2 if rpc == "PollWorkflowTaskQueue" else 1)
        await asyncio.sleep(0.05)
        alive = not running.done()
        await worker.shutdown()
        await running
        answers = [name for name in fake.requests if name.startswith("Respond")]
        return [alive, answers, len(fake.requests["ShutdownWorker"])]


async def main() -> None:
    found: dict[str, Any] = {}
    for name, options in VERSIONS.items():
        for build_ids in (False, True):
            found[f"{name}, {build_ids}"] = await requests(build_ids=build_ids, **options)
    for name, fields in MALFORMED.items():
        task = messages.PollWorkflowTaskQueueResponse(task_token=b"token", **fields)
        found[name] = await outcome("PollWorkflowTaskQueue", task)
    for code in range(1, 17):
        for rpc in POLLS:
            found[f"{rpc} {code}"] = await outcome(rpc, Refused(code))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
