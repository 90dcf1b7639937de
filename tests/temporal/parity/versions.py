"""Versions of worker deployments, and workflows that an operator pauses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkflowExecutionRequest,
    PauseWorkflowExecutionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.common import (
    PinnedVersioningOverride,
    VersioningBehavior,
    WorkerDeploymentVersion,
)
from temporalio.service import RPCError
from temporalio.worker import WorkerDeploymentConfig

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario


@activity.defn
async def noop() -> int:
    return 1


class _Versioned:
    def __init__(self) -> None:
        self.go = False
        self.seen: list[str] = []

    async def tell(self) -> list[str]:
        self.note()
        await workflow.execute_activity(noop, start_to_close_timeout=timedelta(seconds=20))
        await workflow.wait_condition(lambda: self.go)
        self.note()
        return self.seen

    def note(self) -> None:
        self.seen.append(str(workflow.info().get_current_deployment_version()))

    @workflow.signal
    def finish(self) -> None:
        self.go = True

    @workflow.query
    def ask(self) -> list[str]:
        return [*self.seen, str(workflow.info().get_current_deployment_version())]


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class Pinned(_Versioned):
    @workflow.run
    async def run(self) -> list[str]:
        return await self.tell()


@workflow.defn(versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class Upgraded(_Versioned):
    @workflow.run
    async def run(self) -> list[str]:
        return await self.tell()


@workflow.defn
class Unversioned(_Versioned):
    @workflow.run
    async def run(self) -> list[str]:
        return await self.tell()


async def make_current(stage: Stage, build_id: str) -> None:
    """Send new workflows to a version, as soon as the server knows it."""
    service = stage.client.workflow_service
    while True:
        try:
            found = await service.describe_worker_deployment(
                DescribeWorkerDeploymentRequest(namespace="default", deployment_name=stage.queue)
            )
            await service.set_worker_deployment_current_version(
                SetWorkerDeploymentCurrentVersionRequest(
                    namespace="default",
                    deployment_name=stage.queue,
                    conflict_token=found.conflict_token,
                    build_id=build_id,
                )
            )
        except RPCError:
            await asyncio.sleep(0.2)
        else:
            return


@scenario
async def of_deployments(stage: Stage) -> Any:
    """Two versions at the same time: pinned workflows stay, others go on with the current one."""
    kinds = [Pinned, Upgraded, Unversioned]

    def worker(build_id: str) -> Any:
        return stage.worker(
            kinds,
            [noop],
            deployment_config=WorkerDeploymentConfig(
                version=WorkerDeploymentVersion(stage.queue, build_id),
                use_worker_versioning=True,
                default_versioning_behavior=VersioningBehavior.PINNED,
            ),
        )

    async with worker("1.0"), worker("2.0"):
        await make_current(stage, "1.0")
        handles = [await stage.start(kind) for kind in kinds]
        for handle in handles:
            await stage.until(handle, "ACTIVITY_TASK_COMPLETED")
            await handle.query("ask")
        await make_current(stage, "2.0")
        found: list[Any] = []
        for handle in handles:
            await handle.signal("finish")
            found.append(await outcome(handle.result()))
            found.append(await handle.query("ask"))
        overridden = await stage.start(
            Upgraded,
            versioning_override=PinnedVersioningOverride(
                WorkerDeploymentVersion(stage.queue, "1.0")
            ),
        )
        await overridden.signal("finish")
        found.append(await outcome(overridden.result()))
        completed = (await handles[0].fetch_history()).events[3]
        attributes = completed.workflow_task_completed_event_attributes
        found.append([attributes.versioning_behavior, attributes.deployment_version.build_id])
        return found


@scenario
async def of_paused_workflows(stage: Stage) -> Any:
    """No task runs while a workflow is paused; what came meanwhile is not lost."""
    service = stage.client.workflow_service
    async with stage.worker([Unversioned], [noop]):
        handle = await stage.start(Unversioned)
        await stage.until(handle, "ACTIVITY_TASK_COMPLETED")
        await handle.query("ask")
        await service.pause_workflow_execution(
            PauseWorkflowExecutionRequest(
                namespace="default", workflow_id=handle.id, identity="me", reason="why"
            )
        )
        await handle.signal("finish")
        described = await service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace="default", execution=WorkflowExecution(workflow_id=handle.id)
            )
        )
        await service.unpause_workflow_execution(
            UnpauseWorkflowExecutionRequest(
                namespace="default", workflow_id=handle.id, identity="me", reason="on"
            )
        )
        status = described.workflow_execution_info.status
        return [status, len(await outcome(handle.result())), await stage.history(handle)]
