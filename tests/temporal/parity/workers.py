"""Workers themselves: their options, their life, their errors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, Plugin as ClientPlugin
from temporalio.worker import (
    Plugin,
    PollerBehaviorAutoscaling,
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkerConfig,
    WorkerTuner,
)

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)


@workflow.defn
class Simple:
    @workflow.run
    async def run(self, value: int = 1) -> int:
        return await workflow.execute_activity(inc, value, start_to_close_timeout=SECONDS)


@activity.defn
async def inc(value: int) -> int:
    return value + 1


@scenario
async def life(stage: Stage) -> Any:
    worker = stage.worker([Simple], [inc])
    found: list[Any] = [worker.is_running, worker.is_shutdown, worker.task_queue == stage.queue]
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)
    found += [worker.is_running, worker.is_shutdown]
    found.append(await stage.run(Simple))
    await asyncio.gather(worker.shutdown(), worker.shutdown())
    await task
    found += [worker.is_running, worker.is_shutdown]
    await worker.shutdown()
    return found


@scenario
async def body_that_raises(stage: Stage) -> Any:
    found: list[Any] = []
    try:
        async with stage.worker([Simple], [inc]):
            raise ValueError("from the body")
    except ValueError as error:
        found.append(str(error))
    worker = stage.worker([Simple], [inc])
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        found.append("cancelled")
    found.append([worker.is_running, worker.is_shutdown])
    return found


@scenario
async def refused_options(stage: Stage) -> Any:
    found: list[Any] = []
    for arguments, options in (
        (([], []), {}),
        (([Simple, Simple], []), {}),
        (([Simple], [inc, inc]), {}),
        (([int], []), {}),
        (([Simple], [print]), {}),
        (([Simple], []), {"max_concurrent_workflow_tasks": 1}),
        (([Simple], []), {"max_concurrent_workflow_task_polls": 1}),
        (([Simple], []), {"tuner": WorkerTuner.create_fixed(), "max_concurrent_activities": 1}),
        (([Simple], []), {"use_worker_versioning": True}),
        (([Simple], []), {"max_cached_workflows": -1}),
        (([Simple], []), {"sticky_queue_schedule_to_start_timeout": timedelta(seconds=-1)}),
        (([Simple], []), {"task_queue": ""}),
    ):
        try:
            worker = stage.worker(*arguments, **options)
            found.append("made")
            del worker
        except BaseException as error:
            found.append(chain(error)[0])
    return found


@scenario
async def of_a_missing_namespace(stage: Stage) -> Any:
    target = stage.client.service_client.config.target_host
    client = await Client.connect(target, namespace="no-such-namespace")
    worker = stage.worker([Simple], [inc], client=client)
    return [line[:110] for line in await outcome(worker.run())]


@scenario
async def fatal_errors(stage: Stage) -> Any:
    """A namespace that goes away is told by the callback and by the body."""
    seen: list[Any] = []

    async def note(error: BaseException) -> None:
        seen.append(chain(error)[0][:60])

    target = stage.client.service_client.config.target_host
    client = await Client.connect(target, namespace="no-such-namespace-2")
    try:
        async with stage.worker([Simple], client=client, on_fatal_error=note):
            await asyncio.sleep(30)
    except BaseException as error:
        return [seen, chain(error)[0][:60]]
    return "nothing"


@scenario
async def another_client(stage: Stage) -> Any:
    target = stage.client.service_client.config.target_host
    other = await Client.connect(target, identity="the other one")
    async with stage.worker([Simple], [inc], max_cached_workflows=0) as worker:
        first = await stage.start(Simple)
        found = [await outcome(first.result())]
        worker.client = other
        second = await stage.start(Simple, 5)
        found.append(await outcome(second.result()))
        wrong = await Client.connect(target, namespace="another-namespace", lazy=True)
        try:
            worker.client = wrong
        except Exception as error:
            found.append(chain(error))
        return found


@scenario
async def identities_and_build_ids(stage: Stage) -> Any:
    async with stage.worker(
        [Simple], [inc], identity="my identity", build_id="my-build", debug_mode=True
    ):
        handle = await stage.start(Simple)
        await handle.result()
        history = (await handle.fetch_history()).events
        found: list[Any] = []
        for event in history:
            for name in (
                "workflow_task_completed",
                "workflow_task_started",
                "activity_task_started",
            ):
                attributes = getattr(event, f"{name}_event_attributes")
                if event.HasField(f"{name}_event_attributes"):  # type: ignore[arg-type]
                    version = attributes.worker_version
                    found.append(
                        [name, attributes.identity, version.build_id, version.use_versioning]
                    )
        return found


@scenario
async def two_of_one_queue(stage: Stage) -> Any:
    found: list[Any] = []
    async with stage.worker([Simple], [inc]):
        try:
            async with stage.worker([Simple], [inc]):
                found.append("both")
        except Exception as error:
            found.append(chain(error)[0][:170])
        found.append(await stage.run(Simple))
    return found


@scenario
async def autoscaling(stage: Stage) -> Any:
    async with stage.worker(
        [Simple],
        [inc],
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(initial=2),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(maximum=10),
    ):
        return await asyncio.gather(*(stage.run(Simple, n) for n in range(20)))


class OwnPlugin(ClientPlugin, Plugin):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def configure_client(self, config: Any) -> Any:
        self.seen.append("client")
        return config

    async def connect_service_client(self, config: Any, next: Any) -> Any:
        self.seen.append("connect")
        return await next(config)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        self.seen.append("worker")
        config["task_queue"] = config["task_queue"] + "-plugged"
        return config

    async def run_worker(self, worker: Any, next: Any) -> None:
        self.seen.append("run")
        await next(worker)
        self.seen.append("ran")

    def configure_replayer(self, config: Any) -> Any:
        self.seen.append("replayer")
        return config

    def run_replayer(self, replayer: Any, histories: Any, next: Any) -> Any:
        self.seen.append("replay")
        return next(replayer, histories)


@scenario
async def plugins(stage: Stage) -> Any:
    plugin = OwnPlugin()
    target = stage.client.service_client.config.target_host
    client = await Client.connect(target, plugins=[plugin])
    async with stage.worker([Simple], [inc], client=client) as worker:
        handle = await stage.start(Simple, task_queue=worker.task_queue)
        result = await outcome(handle.result())
    await Replayer(workflows=[Simple], plugins=[plugin]).replay_workflow(
        await handle.fetch_history()
    )
    return [result, plugin.seen]


@scenario
async def unsandboxed(stage: Stage) -> Any:
    async with stage.worker(
        [Simple],
        [inc],
        workflow_runner=UnsandboxedWorkflowRunner(),
        disable_safe_workflow_eviction=True,
        max_cached_workflows=0,
    ):
        return [await stage.run(Simple), await stage.run(Simple, 7)]


@workflow.defn
class HoldsFinally:
    @workflow.run
    async def run(self, identifier: str) -> None:
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            with workflow.unsafe.sandbox_unrestricted():
                CLEANED.append(identifier)
            await asyncio.sleep(1)

    @workflow.query
    def ask(self) -> str:
        return "alive"


CLEANED: list[str] = []


@scenario
async def evictions_clean_up(stage: Stage) -> Any:
    """Finally blocks run when a run leaves the cache, and nothing of it comes out."""
    with stage.logs() as lines:
        async with stage.worker(
            [HoldsFinally], workflow_runner=UnsandboxedWorkflowRunner(), max_cached_workflows=1
        ):
            first = await stage.start(HoldsFinally, stage.name("1"))
            await first.query(HoldsFinally.ask)
            second = await stage.start(HoldsFinally, stage.name("2"))
            await second.query(HoldsFinally.ask)
            while stage.name("1") not in CLEANED:
                await asyncio.sleep(0.05)
            answers = [await first.query(HoldsFinally.ask), await second.query(HoldsFinally.ask)]
            for handle in (first, second):
                await handle.terminate()
        return [answers, lines]
