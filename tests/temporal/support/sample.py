"""Workflows and activities written for the official SDK, which the tests of this folder run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

LONG = timedelta(seconds=10)
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=20))
KEYWORD = SearchAttributeKey.for_keyword("PerdureKeyword")

attempts: Counter[str] = Counter()


@activity.defn
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@activity.defn
def greet_in_thread(name: str) -> str:
    return f"Hello, {name}!"


@activity.defn
async def third_time_lucky(key: str) -> int:
    attempts[key] += 1
    if attempts[key] < 3:
        raise ApplicationError("not yet")
    return attempts[key]


@activity.defn
async def refuse() -> None:
    raise ApplicationError("never", type="Refused", non_retryable=True)


@activity.defn
async def wait_for_cancel() -> str:
    try:
        while True:
            activity.heartbeat("alive")
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        if activity.info().is_local:
            raise
        return "stopped"


@workflow.defn
class Activities:
    @workflow.run
    async def run(self) -> list[str]:
        key = workflow.info().workflow_id
        results = [
            str(
                await workflow.execute_activity(
                    third_time_lucky, key, start_to_close_timeout=LONG, retry_policy=QUICK
                )
            )
        ]
        try:
            await workflow.execute_activity(refuse, start_to_close_timeout=LONG)
        except ActivityError as error:
            results.append(str(getattr(error.cause, "type", None)))
        results += await asyncio.gather(
            *(
                workflow.execute_activity(greet, str(number), start_to_close_timeout=LONG)
                for number in range(5)
            )
        )
        results.append(
            await workflow.execute_activity(greet_in_thread, "thread", start_to_close_timeout=LONG)
        )
        return results


@workflow.defn
class LocalActivities:
    @workflow.run
    async def run(self) -> list[str]:
        key = workflow.info().workflow_id
        results = [
            str(
                await workflow.execute_local_activity(
                    third_time_lucky, key, start_to_close_timeout=LONG, retry_policy=QUICK
                )
            )
        ]
        try:
            await workflow.execute_local_activity(refuse, start_to_close_timeout=LONG)
        except ApplicationError as error:
            results.append(str(error.type))
        results += await asyncio.gather(
            *(
                workflow.execute_local_activity(greet, str(number), start_to_close_timeout=LONG)
                for number in range(5)
            )
        )
        await workflow.sleep(0.01)
        results.append(
            await workflow.execute_local_activity(greet, "later", start_to_close_timeout=LONG)
        )
        running = workflow.start_local_activity(wait_for_cancel, start_to_close_timeout=LONG)
        await asyncio.sleep(0)
        running.cancel()
        try:
            await running
        except ActivityError as error:
            results.append(type(error.cause).__name__)
        return results


@workflow.defn
class CancelsActivity:
    @workflow.run
    async def run(self) -> str:
        running = workflow.start_activity(
            wait_for_cancel,
            start_to_close_timeout=LONG,
            heartbeat_timeout=timedelta(seconds=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.2)
        running.cancel()
        return await running


@workflow.defn
class Child:
    @workflow.run
    async def run(self, mode: str) -> str:
        await workflow.sleep(0.01)
        if mode == "fail":
            raise ApplicationError("the child failed")
        await workflow.wait_condition(lambda: mode != "wait")
        return mode * 2


@workflow.defn
class Parent:
    @workflow.run
    async def run(self) -> list[str]:
        results = [await workflow.execute_child_workflow(Child.run, "ab")]
        try:
            await workflow.execute_child_workflow(Child.run, "fail")
        except ChildWorkflowError as error:
            results.append(str(error.cause))
        child = await workflow.start_child_workflow(Child.run, "wait")
        child.cancel()
        try:
            await child
        except ChildWorkflowError as error:
            results.append(type(error.cause).__name__)
        return results


@workflow.defn
class Counting:
    @workflow.run
    async def run(self, number: int) -> int:
        if number < 2:
            workflow.continue_as_new(number + 1)
        return number


@workflow.defn
class Account:
    """Updates, signals and queries."""

    def __init__(self) -> None:
        self._value = 0
        self._closed = False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self._closed)
        return self._value

    @workflow.update
    async def add(self, amount: int) -> int:
        await workflow.execute_activity(greet, "bank", start_to_close_timeout=LONG)
        self._value += amount
        return self._value

    @add.validator
    def check(self, amount: int) -> None:
        if amount < 0:
            raise ApplicationError("negative")

    @workflow.signal
    def close(self) -> None:
        self._closed = True

    @workflow.query
    def value(self) -> int:
        return self._value


@workflow.defn
class Closes:
    """Signals another workflow, then one that does not exist."""

    @workflow.run
    async def run(self, account: str) -> str:
        await workflow.get_external_workflow_handle_for(Account.run, account).signal(Account.close)
        try:
            await workflow.get_external_workflow_handle("nobody").signal("close")
        except ApplicationError as error:
            return str(error.type)
        return "no error"


@workflow.defn
class Patched:
    @workflow.run
    async def run(self) -> list[str]:
        results = ["new" if workflow.patched("first") else "old"]
        await workflow.sleep(0.01)
        workflow.deprecate_patch("second")
        workflow.upsert_search_attributes([KEYWORD.value_set("found")])
        workflow.upsert_memo({"note": "kept"})
        results.append(str(workflow.memo_value("note")))
        results.append(str(workflow.info().typed_search_attributes.get(KEYWORD)))
        return results


@workflow.defn
class TimesOut:
    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.wait_condition(lambda: False, timeout=0.05)
        except TimeoutError:
            return f"after {workflow.now() > workflow.info().start_time}"
        return "no time-out"


@workflow.defn
class Cleans:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.wait_condition(lambda: False)
        except asyncio.CancelledError:
            await workflow.execute_activity(greet, "cleaner", start_to_close_timeout=LONG)
            raise


@workflow.defn(sandboxed=False)
class FailsOneTask:
    @workflow.run
    async def run(self) -> str:
        key = workflow.info().workflow_id
        attempts[key] += 1
        if attempts[key] == 1:
            raise RuntimeError("a bug that is fixed at once")
        return "recovered"


@workflow.defn
class ManySteps:
    """A long history: activities one after the other, or timers."""

    @workflow.run
    async def run(self, activities: int, timers: int) -> int:
        for number in range(activities):
            await workflow.execute_activity(greet, str(number), start_to_close_timeout=LONG)
        for _ in range(timers):
            await workflow.sleep(0.001)
        return activities + timers


WORKFLOWS = [
    Account,
    Activities,
    CancelsActivity,
    Child,
    Cleans,
    Closes,
    Counting,
    FailsOneTask,
    LocalActivities,
    ManySteps,
    Parent,
    Patched,
    TimesOut,
]
ACTIVITIES: list[Callable[..., Any]] = [
    greet,
    greet_in_thread,
    refuse,
    third_time_lucky,
    wait_for_cancel,
]
