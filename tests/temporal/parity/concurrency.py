"""asyncio inside workflows, and small caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.worker import Replayer

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, chain, outcome, scenario

SECONDS = timedelta(seconds=20)


@activity.defn
async def after(seconds: float, value: Any) -> Any:
    await asyncio.sleep(seconds)
    return value


@activity.defn
async def fails(text: str) -> None:
    from temporalio.exceptions import ApplicationError

    raise ApplicationError(text, non_retryable=True)


def act(seconds: float, value: Any) -> Any:
    return workflow.execute_activity(after, args=[seconds, value], start_to_close_timeout=SECONDS)


@workflow.defn
class Waiting:
    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = []
        tasks = [asyncio.create_task(act(n * 0.3, n)) for n in range(3)]
        done, pending = await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        found.append([len(done) > 0, len(done) + len(pending)])
        done, pending = await workflow.wait(tasks, timeout=1000)
        found.append([len(done), len(pending)])
        for future in workflow.as_completed([act(0.4, "late"), act(0, "early")]):
            found.append(await future)
        try:
            for future in workflow.as_completed([act(0, 1), asyncio.sleep(100)], timeout=0.01):
                found.append(await future)
        except TimeoutError as error:
            found.append(type(error).__name__)
        found.append(await asyncio.gather(act(0, 1), asyncio.sleep(0.01, 2), act(0, 3)))
        found.append(
            [str(x) for x in await asyncio.gather(act(0, 1), self.raises(), return_exceptions=True)]
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                group.create_task(
                    workflow.execute_activity(fails, "group", start_to_close_timeout=SECONDS)
                )
        except* BaseException as errors:
            found.append([chain(error)[-1] for error in errors.exceptions])
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(100)
        except TimeoutError:
            found.append("asyncio.timeout")
        try:
            await asyncio.wait_for(act(0.3, 1), timeout=10)
            await asyncio.wait_for(asyncio.Event().wait(), timeout=0.01)
        except TimeoutError:
            found.append("wait_for")
        return found

    async def raises(self) -> None:
        raise ValueError("raised")


@scenario
async def waiting(stage: Stage) -> Any:
    async with stage.worker([Waiting], [after, fails]):
        handle = await stage.start(Waiting)
        result = await outcome(handle.result())
        replay = await Replayer(workflows=[Waiting]).replay_workflow(
            await handle.fetch_history(), raise_on_replay_failure=False
        )
        return [result, str(replay.replay_failure)]


@workflow.defn
class Primitives:
    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = []
        semaphore, lock, queue = asyncio.Semaphore(2), asyncio.Lock(), asyncio.Queue[int](2)
        event, condition = asyncio.Event(), asyncio.Condition()
        running, most = 0, 0

        async def limited(n: int) -> None:
            nonlocal running, most
            async with semaphore:
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.01)
                running -= 1
                async with lock:
                    found.append(n)

        async def produce() -> None:
            for n in range(5):
                await queue.put(n)
            await queue.put(-1)

        async def consume() -> list[int]:
            got = []
            while (n := await queue.get()) >= 0:
                got.append(n)
            event.set()
            return got

        async def notified() -> str:
            async with condition:
                await condition.wait()
                return "notified"

        waiter = asyncio.create_task(notified())
        await asyncio.gather(*(limited(n) for n in range(5)))
        found.append(most)
        _, got = await asyncio.gather(produce(), consume())
        await event.wait()
        async with condition:
            condition.notify_all()
        found += [got, await waiter]
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        loop.call_later(0.01, called.set_result, "called later")
        found.append(await called)
        handle = loop.call_later(5, found.append, "never")
        handle.cancel()
        found.append([n async for n in self.counting()])
        return found

    async def counting(self) -> AsyncIterator[int]:
        for n in range(3):
            await asyncio.sleep(0.001)
            yield n


@scenario
async def primitives(stage: Stage) -> Any:
    async with stage.worker([Primitives]):
        return await stage.run(Primitives)


@workflow.defn
class Conditions:
    def __init__(self) -> None:
        self.value = 0

    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = []
        first = asyncio.create_task(workflow.wait_condition(lambda: self.value > 0))
        second = asyncio.create_task(workflow.wait_condition(lambda: self.value > 1))
        await first
        found.append(second.done())
        self.value = 2
        await second
        try:
            await workflow.wait_condition(lambda: self.value > 5, timeout=0.01)
        except TimeoutError as error:
            found.append(repr(error))
        await workflow.wait_condition(lambda: self.value > 1, timeout=100)
        await workflow.wait_condition(lambda: self.value > 1)
        return found

    @workflow.signal
    def add(self) -> None:
        self.value += 1


@scenario
async def conditions(stage: Stage) -> Any:
    async with stage.worker([Conditions]):
        handle = await stage.start(Conditions)
        await stage.until(handle, "WORKFLOW_TASK_COMPLETED")
        await handle.signal(Conditions.add)
        return [await outcome(handle.result()), await stage.history(handle)]


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, count: int) -> list[int]:
        found = []
        for n in range(count):
            found.append(await act(0, n))
            if n % 2:
                await asyncio.sleep(0.001)
        return found

    @workflow.query
    def ask(self) -> str:
        return "asked"


@scenario
async def small_caches(stage: Stage) -> Any:
    found = []
    for size in (0, 1):
        async with stage.worker([Steps], [after], max_cached_workflows=size):
            handles = [await stage.start(Steps, 3) for _ in range(4)]
            answers = asyncio.gather(*(handle.query(Steps.ask) for handle in handles))
            found.append([await outcome(handle.result()) for handle in handles])
            found.append(await answers)
    return found


@scenario
async def one_task_at_a_time(stage: Stage) -> Any:
    async with stage.worker(
        [Steps],
        [after],
        max_cached_workflows=0,
        max_concurrent_workflow_tasks=1,
        max_concurrent_workflow_task_polls=1,
        max_concurrent_activities=1,
        max_concurrent_activity_task_polls=1,
    ):
        handles = [await stage.start(Steps, 2) for _ in range(3)]
        return [await outcome(handle.result()) for handle in handles]


@workflow.defn
class ManyThings:
    @workflow.run
    async def run(self, count: int) -> int:
        timers = [asyncio.create_task(asyncio.sleep(0.001 * (n + 1), n)) for n in range(count)]
        cancelled = [asyncio.create_task(asyncio.sleep(100)) for _ in range(count)]
        await timers[0]
        for task in cancelled:
            task.cancel()
        results = await asyncio.gather(*timers, *cancelled, return_exceptions=True)
        return sum(isinstance(result, int) for result in results)


@scenario
async def many_timers(stage: Stage) -> Any:
    async with stage.worker([ManyThings]):
        return await stage.run(ManyThings, 30)
