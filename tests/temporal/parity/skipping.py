"""The test server that skips time."""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.testing import WorkflowEnvironment

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

HOUR = timedelta(hours=1)


@activity.defn
async def waits_for_ever() -> None:
    await asyncio.sleep(1000)


@activity.defn
async def quick(value: int) -> int:
    return value


@workflow.defn
class Sleeps:
    def __init__(self) -> None:
        self.signalled = False

    @workflow.run
    async def run(self, how: str) -> Any:
        start = workflow.time()
        found: Any = "slept"
        if how == "sleep":
            await asyncio.sleep(100 * 3600)
        elif how == "signal":
            await workflow.wait_condition(lambda: self.signalled, timeout=HOUR)
        elif how == "activity":
            try:
                await workflow.execute_activity(
                    waits_for_ever, schedule_to_close_timeout=timedelta(seconds=2)
                )
            except Exception as error:
                found = chain(error)
        elif how == "activities":
            found = []
            for n in range(3):
                await asyncio.sleep(3600)
                found.append(await workflow.execute_activity(quick, n, start_to_close_timeout=HOUR))
        elif how == "local":
            await asyncio.sleep(3600)
            found = await workflow.execute_local_activity(quick, 5, start_to_close_timeout=HOUR)
        elif how == "child":
            found = await workflow.execute_child_workflow(
                Sleeps.run, "sleep", id=f"{workflow.info().workflow_id}-child"
            )
        return [found, round((workflow.time() - start) / 3600)]

    @workflow.signal
    def sig(self) -> None:
        self.signalled = True

    @workflow.query
    def ask(self) -> bool:
        return self.signalled


@scenario
async def time_is_skipped(stage: Stage) -> Any:
    path = shutil.which("temporal-test-server")
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=path
    ) as environment:
        own = Stage(environment.client, stage.prefix)
        async with own.worker([Sleeps], [waits_for_ever, quick]):
            found: list[Any] = [
                [how, await own.run(Sleeps, how, suffix=how)]
                for how in ("sleep", "activities", "local", "child", "activity")
            ]
            handle = await own.start(Sleeps, "signal")
            before = await environment.get_current_time()
            await environment.sleep(timedelta(minutes=30))
            moved = await environment.get_current_time() - before
            found.append(moved >= timedelta(minutes=30))
            await handle.signal(Sleeps.sig)
            found.append(await handle.query(Sleeps.ask))
            found.append(await outcome(handle.result()))
            handle = await own.start(Sleeps, "sleep", run_timeout=HOUR)
            found.append(await outcome(handle.result()))
            return found
