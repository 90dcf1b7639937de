"""Versions of workers: what runs where, and what workflows know (`IT/worker_versioning_tests`).

Every workflow here is known under one name in both versions; the class that answers tells which.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import (
    BuildIdOpAddNewDefault,
    Client,
    WorkflowHandle,
    WorkflowHistory,
)
from temporalio.common import (
    AutoUpgradeVersioningOverride,
    PinnedVersioningOverride,
    RawValue,
    VersioningBehavior,
    WorkerDeploymentVersion,
)
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker, WorkerDeploymentConfig
from temporalio.workflow import ContinueAsNewVersioningBehavior, VersioningIntent


def build() -> str | None:
    version = workflow.info().get_current_deployment_version()
    return version.build_id if version else None


class Waits:
    """Says in which build it started, went on and ended."""

    def __init__(self) -> None:
        self.told = False
        self.builds: list[str | None] = []

    async def work(self) -> list[Any]:
        self.builds.append(build())
        await workflow.wait_condition(lambda: self.told)
        self.builds.append(build())
        await workflow.execute_activity(nothing, schedule_to_close_timeout=timedelta(seconds=30))
        self.builds.append(build())
        return [type(self).__name__, *self.builds]

    @workflow.signal
    def go(self) -> None:
        self.told = True

    @workflow.query
    def where(self) -> list[Any]:
        return [type(self).__name__, build()]


@activity.defn
async def nothing() -> None: ...


@workflow.defn(name="Moves", versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class Moves1(Waits):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.work()


@workflow.defn(name="Moves", versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
class Moves2(Waits):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.work()


@workflow.defn(name="Stays", versioning_behavior=VersioningBehavior.PINNED)
class Stays1(Waits):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.work()


@workflow.defn(name="Stays", versioning_behavior=VersioningBehavior.PINNED)
class Stays2(Waits):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.work()


@workflow.defn(dynamic=True)
class Anything:
    @workflow.dynamic_config
    def config(self) -> workflow.DynamicWorkflowConfig:
        return workflow.DynamicWorkflowConfig(versioning_behavior=VersioningBehavior.PINNED)

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> str | None:
        del args
        return build()


@workflow.defn(name="WithoutBehavior")
class WithoutBehavior:
    @workflow.run
    async def run(self) -> str | None:
        return build()


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class Upgrades:
    """Goes on as a new run once it hears that another version has become current."""

    @workflow.run
    async def run(self, first: bool) -> str | None:
        if not first:
            return build()
        while not workflow.info().is_target_worker_deployment_version_changed():
            await workflow.sleep(0.1)
        return workflow.continue_as_new(
            False, initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE
        )

    @workflow.query
    def where(self) -> str | None:
        return build()


@workflow.defn(versioning_behavior=VersioningBehavior.PINNED)
class Parent:
    @workflow.run
    async def run(self, child_build: str) -> list[Any]:
        here = workflow.info().get_current_deployment_version()
        assert here is not None
        version = WorkerDeploymentVersion(here.deployment_name, child_build)
        child = await workflow.start_child_workflow(
            "Moves",
            id=f"{workflow.info().workflow_id}-child",
            versioning_override=PinnedVersioningOverride(version),
        )
        await child.signal("go")
        result: list[Any] = await child
        return result


WORKFLOWS: dict[str, list[type]] = {
    "1.0": [Moves1, Stays1, Anything, WithoutBehavior, Upgrades, Parent],
    "2.0": [Moves2, Stays2, Anything, WithoutBehavior, Upgrades, Parent],
}


class Deployment:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = f"deployment-{uuid.uuid4()}"
        self.queue = str(uuid.uuid4())

    def version(self, build_id: str) -> WorkerDeploymentVersion:
        return WorkerDeploymentVersion(self.name, build_id)

    @asynccontextmanager
    async def workers(self) -> AsyncIterator[None]:
        """One worker of each version; builds of no declared behavior move on."""
        async with AsyncExitStack() as stack:
            for build_id, workflows in WORKFLOWS.items():
                config = WorkerDeploymentConfig(
                    version=self.version(build_id),
                    use_worker_versioning=True,
                    default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
                )
                worker = Worker(
                    self.client,
                    task_queue=self.queue,
                    workflows=workflows,
                    activities=[nothing],
                    deployment_config=config,
                )
                await stack.enter_async_context(worker)
            yield

    async def make_current(self, build_id: str) -> None:
        """Once the server has heard of the version."""
        while True:
            try:
                await self.client.workflow_service.set_worker_deployment_current_version(
                    SetWorkerDeploymentCurrentVersionRequest(
                        namespace=self.client.namespace,
                        deployment_name=self.name,
                        version=f"{self.name}.{build_id}",
                    )
                )
            except RPCError:
                await asyncio.sleep(0.1)
            else:
                return

    async def ramp(self, build_id: str) -> None:
        token = await self.client.workflow_service.describe_worker_deployment(
            DescribeWorkerDeploymentRequest(
                namespace=self.client.namespace, deployment_name=self.name
            )
        )
        await self.client.workflow_service.set_worker_deployment_ramping_version(
            SetWorkerDeploymentRampingVersionRequest(
                namespace=self.client.namespace,
                deployment_name=self.name,
                version=f"{self.name}.{build_id}",
                conflict_token=token.conflict_token,
                percentage=100,
            )
        )

    async def start(self, name: str, *args: Any, **options: Any) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            name, args=args, id=str(uuid.uuid4()), task_queue=self.queue, **options
        )


async def completed_by(handle: WorkflowHandle[Any, Any]) -> list[tuple[str, int]]:
    """Build and behavior of every completed task."""
    events = [
        event.workflow_task_completed_event_attributes
        async for event in handle.fetch_history_events()
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    return [(one.deployment_version.build_id, int(one.versioning_behavior)) for one in events]


async def test_what_declares_how_a_workflow_changes_versions(client: Client) -> None:
    deployment = Deployment(client)
    async with asyncio.timeout(60), deployment.workers():
        await deployment.make_current("1.0")
        moves, stays = await deployment.start("Moves"), await deployment.start("Stays")
        told_to_stay = await deployment.start(
            "Moves", versioning_override=PinnedVersioningOverride(deployment.version("1.0"))
        )
        told_to_move = await deployment.start(
            "Stays", versioning_override=AutoUpgradeVersioningOverride()
        )
        assert await moves.query("where") == ["Moves1", "1.0"]
        assert await told_to_move.query("where") == ["Stays1", "1.0"]

        await deployment.make_current("2.0")
        while (await moves.query("where"))[0] == "Moves1":
            assert await stays.query("where") == ["Stays1", "1.0"]
        for handle in (moves, stays, told_to_stay, told_to_move):
            await handle.signal("go")
        assert await moves.result() == ["Moves2", "1.0", "2.0", "2.0"]
        assert await stays.result() == ["Stays1", "1.0", "1.0", "1.0"]
        assert await told_to_stay.result() == ["Moves1", "1.0", "1.0", "1.0"]
        assert await told_to_move.result() == ["Stays2", "1.0", "2.0", "2.0"]
        assert await moves.query("where") == ["Moves2", "2.0"]

        dynamic = await deployment.start("NobodyKnowsIt")
        default = await deployment.start("WithoutBehavior")
        assert await dynamic.result() == await default.result() == "2.0"

        auto, pinned = VersioningBehavior.AUTO_UPGRADE, VersioningBehavior.PINNED
        assert await completed_by(moves) == [("1.0", auto), ("2.0", auto), ("2.0", auto)]
        assert await completed_by(stays) == [("1.0", pinned)] * 3
        assert await completed_by(dynamic) == [("2.0", pinned)]
        assert await completed_by(default) == [("2.0", auto)]

        replayer = Replayer(workflows=[Moves1, Stays1])
        for handle in (moves, stays, told_to_move):
            history = await handle.fetch_history()
            await replayer.replay_workflow(WorkflowHistory(handle.id, history.events))


async def test_a_new_run_upgrades_a_child_is_pinned_and_a_ramp_takes_all(client: Client) -> None:
    deployment = Deployment(client)
    async with asyncio.timeout(60), deployment.workers():
        await deployment.make_current("1.0")
        upgrades = await deployment.start("Upgrades", True)
        assert await upgrades.query("where") == "1.0"
        await deployment.make_current("2.0")
        assert await upgrades.result() == "2.0"
        parent = await deployment.start("Parent", "1.0")
        assert await parent.result() == ["Moves1", "1.0", "1.0", "1.0"]
        await deployment.ramp("1.0")
        ran_on = "2.0"
        while ran_on != "1.0":
            ran_on = await (await deployment.start("WithoutBehavior")).result()


@workflow.defn
class Legacy:
    """Says the build of the task, of an activity and of a child."""

    def __init__(self) -> None:
        self.told = False

    @workflow.run
    async def run(self, compatible: bool, child: bool) -> list[str]:
        builds = [workflow.info().get_current_build_id()]
        if child:
            return builds
        await workflow.wait_condition(lambda: self.told)
        intent = VersioningIntent.COMPATIBLE if compatible else VersioningIntent.DEFAULT
        builds.append(
            await workflow.execute_activity(
                "which", schedule_to_close_timeout=timedelta(seconds=30), versioning_intent=intent
            )
        )
        return builds + await workflow.execute_child_workflow(
            Legacy.run, args=[compatible, True], versioning_intent=intent
        )

    @workflow.signal
    def go(self) -> None:
        self.told = True


@pytest.fixture
async def legacy_queue(strict_server: str) -> str:
    client, queue = await Client.connect(strict_server), str(uuid.uuid4())
    await client.update_worker_build_id_compatibility(queue, BuildIdOpAddNewDefault("1.0"))
    return queue


async def test_a_new_default_build_takes_new_workflows(
    strict_server: str, legacy_queue: str
) -> None:
    client = await Client.connect(strict_server)

    async def worker(build_id: str) -> Worker:
        @activity.defn
        async def which() -> str:
            return build_id

        return Worker(
            await Client.connect(strict_server),
            task_queue=legacy_queue,
            workflows=[Legacy],
            activities=[which],
            build_id=build_id,
            use_worker_versioning=True,
        )

    async def results() -> list[str]:
        return await client.execute_workflow(
            Legacy.run,
            args=[True, False],
            id=str(uuid.uuid4()),
            task_queue=legacy_queue,
            start_signal="go",
        )

    async with asyncio.timeout(60), await worker("1.0"):
        assert await results() == ["1.0", "1.0", "1.0"]
        # A build polls only for what the server knew of it when it asked.
        await client.update_worker_build_id_compatibility(
            legacy_queue, BuildIdOpAddNewDefault("2.0")
        )
        async with await worker("2.0"):
            assert await results() == ["2.0", "2.0", "2.0"]
