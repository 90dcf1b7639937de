"""What is written beside results: summaries, memo, search attributes, patches, logs, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

with workflow.unsafe.imports_passed_through():
    from tests.temporal.parity.stage import Stage, outcome, scenario

SECONDS = timedelta(seconds=20)


@activity.defn
async def noop() -> None: ...


@workflow.defn
class Summarised:
    @workflow.run
    async def run(self) -> str:
        workflow.set_current_details("first details")
        await workflow.sleep(0.01, summary="timer summary")
        await workflow.execute_activity(
            noop, start_to_close_timeout=SECONDS, summary="activity summary"
        )
        await workflow.execute_local_activity(
            noop, start_to_close_timeout=SECONDS, summary="local summary"
        )
        await workflow.execute_child_workflow(
            Small.run,
            id=f"{workflow.info().workflow_id}-child",
            static_summary="child summary",
            static_details="child details",
        )
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: False, timeout=0.01, timeout_summary="condition summary"
            )
        workflow.set_current_details("last details")
        return workflow.get_current_details()


@workflow.defn
class Small:
    @workflow.run
    async def run(self) -> None: ...


@scenario
async def summaries(stage: Stage) -> Any:
    async with stage.worker([Summarised, Small], [noop]):
        handle = await stage.start(
            Summarised, suffix="s", static_summary="my summary", static_details="my details"
        )
        result = await outcome(handle.result())
        description = await handle.describe()
        return [
            result,
            await description.static_summary(),
            await description.static_details(),
            await handle.query("__temporal_workflow_metadata"),
            await stage.history(handle),
        ]


@workflow.defn
class Grouped:
    @workflow.run
    async def run(self) -> None:
        group = workflow.create_event_group("group", label="the label")
        other = workflow.create_event_group("other")
        await workflow.sleep(0.01, event_groups=[group])
        await workflow.execute_activity(
            noop, start_to_close_timeout=SECONDS, event_groups=[group, other]
        )
        await workflow.execute_local_activity(
            noop, start_to_close_timeout=SECONDS, event_groups=[other]
        )
        with group.scope():
            await workflow.execute_child_workflow(
                Small.run, id=f"{workflow.info().workflow_id}-child"
            )
            task = asyncio.create_task(asyncio.sleep(100))
            await asyncio.sleep(0.01)
            task.cancel()
        workflow.upsert_memo({"a": 1}, event_groups=[other])
        workflow.patched("patch", event_groups=[group])
        await workflow.wait_condition(lambda: self.handled == 2)

    def __init__(self) -> None:
        self.handled = 0

    @workflow.signal
    async def sig(self) -> None:
        await workflow.execute_activity(noop, start_to_close_timeout=SECONDS)
        self.handled += 1

    @workflow.update
    async def upd(self) -> None:
        await asyncio.sleep(0.01)
        self.handled += 1


@scenario
async def event_groups(stage: Stage) -> Any:
    async with stage.worker([Grouped, Small], [noop]):
        handle = await stage.start(Grouped, suffix="g")
        await stage.until(handle, "WORKFLOW_PROPERTIES_MODIFIED")
        await handle.signal(Grouped.sig)
        await stage.until(handle, "ACTIVITY_TASK_COMPLETED", 2)
        await handle.execute_update(Grouped.upd, id="the update")
        return [await outcome(handle.result()), await stage.history(handle)]


KEYS: dict[str, Any] = {
    "Keyword": SearchAttributeKey.for_keyword("ParityKeyword"),
    "Text": SearchAttributeKey.for_text("ParityText"),
    "Int": SearchAttributeKey.for_int("ParityInt"),
    "Double": SearchAttributeKey.for_float("ParityDouble"),
    "Bool": SearchAttributeKey.for_bool("ParityBool"),
    "Datetime": SearchAttributeKey.for_datetime("ParityDatetime"),
    "KeywordList": SearchAttributeKey.for_keyword_list("ParityKeywordList"),
}
VALUES: dict[str, Any] = {
    "Keyword": "word",
    "Text": "some text",
    "Int": 7,
    "Double": 1.5,
    "Bool": True,
    "Datetime": datetime(2026, 1, 2, tzinfo=UTC),
    "KeywordList": ["a", "b"],
}


@workflow.defn
class SearchAttributes:
    @workflow.run
    async def run(self) -> list[Any]:
        found = [sorted(map(str, workflow.info().typed_search_attributes))]
        workflow.upsert_search_attributes(
            [
                KEYS["Keyword"].value_set("new"),
                KEYS["Int"].value_unset(),
                KEYS["Double"].value_set(2.5),
            ]
        )
        found.append(sorted(map(str, workflow.info().typed_search_attributes)))
        await asyncio.sleep(0.01)
        workflow.upsert_search_attributes([KEYS["KeywordList"].value_set(["c"])])
        workflow.upsert_search_attributes({"ParityText": ["untyped text"]})
        await asyncio.sleep(0.01)
        found.append(sorted(map(str, workflow.info().typed_search_attributes)))
        found.append(sorted(workflow.info().search_attributes))
        return found


@scenario
async def search_attributes(stage: Stage) -> Any:
    async with stage.worker([SearchAttributes]):
        handle = await stage.start(
            SearchAttributes,
            search_attributes=TypedSearchAttributes(
                [SearchAttributePair(KEYS[name], VALUES[name]) for name in KEYS]
            ),
        )
        result = await outcome(handle.result())
        described = (await handle.describe()).typed_search_attributes
        return [
            result,
            sorted(str(p) for p in described if "Parity" in p.key.name),
            await stage.history(handle),
        ]


@workflow.defn
class Memos:
    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = [dict(workflow.memo())]
        workflow.upsert_memo({"added": {"x": 1}, "old": None, "changed": 2})
        found.append(dict(workflow.memo()))
        await asyncio.sleep(0.01)
        found.append([workflow.memo_value("none", "default"), workflow.memo_value("changed")])
        try:
            workflow.memo_value("none")
        except KeyError as error:
            found.append(str(error))
        return found


@scenario
async def memos(stage: Stage) -> Any:
    async with stage.worker([Memos]):
        handle = await stage.start(Memos, memo={"old": 1, "changed": 1, "kept": [1]})
        result = await outcome(handle.result())
        memo = await (await handle.describe()).memo()
        return [result, sorted(memo.items()), await stage.history(handle)]


@workflow.defn(name="Patched", sandboxed=False)
class Before:
    """The first of four versions of a workflow: the life of a patch, from before it to after it."""

    def __init__(self) -> None:
        self.go = False

    @workflow.run
    async def run(self) -> str:
        await self.wait()
        return "before"

    async def wait(self) -> None:
        await workflow.wait_condition(lambda: self.go)

    @workflow.signal
    def finish(self) -> None:
        self.go = True

    @workflow.query
    def ask(self) -> str:
        return type(self).__name__


@workflow.defn(name="Patched", sandboxed=False)
class Patching(Before):
    @workflow.run
    async def run(self) -> str:
        first = workflow.patched("my-patch")
        if first:
            await workflow.execute_activity(noop, start_to_close_timeout=SECONDS)
        await self.wait()
        return f"patched {first} {workflow.patched('my-patch')} {workflow.patched('late')}"


@workflow.defn(name="Patched", sandboxed=False)
class Deprecating(Before):
    @workflow.run
    async def run(self) -> str:
        workflow.deprecate_patch("my-patch")
        await workflow.execute_activity(noop, start_to_close_timeout=SECONDS)
        await self.wait()
        return "deprecated"


@workflow.defn(name="Patched", sandboxed=False)
class After(Before):
    @workflow.run
    async def run(self) -> str:
        await workflow.execute_activity(noop, start_to_close_timeout=SECONDS)
        await self.wait()
        return "after"


VERSIONS: list[type] = [Before, Patching, Deprecating, After]


@scenario
async def patches(stage: Stage) -> Any:
    """Every version starts a run; every run is asked for by every version."""
    handles = []
    for version in VERSIONS:
        async with stage.worker([version], [noop]):
            handle = await stage.start("Patched")
            await handle.query("ask")
            if version is not VERSIONS[0]:
                await stage.until(handle, "ACTIVITY_TASK_COMPLETED")
                await handle.query("ask")
            handles.append(handle)
    found: list[Any] = []
    for handle in handles:
        history = await handle.fetch_history()
        found.append(
            [
                str(
                    (
                        await Replayer(workflows=[version]).replay_workflow(
                            history, raise_on_replay_failure=False
                        )
                    ).replay_failure
                    is None
                )
                for version in VERSIONS
            ]
        )
    for handle, version in zip(handles, [Patching, *VERSIONS[1:]], strict=True):
        await handle.signal("finish")
        async with stage.worker([version], [noop]):
            found.append(await outcome(handle.result()))
            found.append(await stage.history(handle))
    return found


@workflow.defn
class ManyPatches:
    @workflow.run
    async def run(self, turns: int) -> list[bool]:
        found = [workflow.patched(f"patch {n}") for n in range(3)]
        found += [workflow.patched("patch 1"), workflow.patched("p" * 100)]
        await asyncio.sleep(0.01)
        found += [workflow.patched(f"late {n}") for n in range(turns)]
        workflow.deprecate_patch("deprecated")
        await asyncio.sleep(0.01)
        return found

    @workflow.query
    def ask(self) -> bool:
        return workflow.patched("patch 0")


@scenario
async def many_patches(stage: Stage) -> Any:
    async with stage.worker([ManyPatches]):
        handle = await stage.start(ManyPatches, 30)
        result = await outcome(handle.result())
        history = await handle.fetch_history()
        replay = await Replayer(workflows=[ManyPatches]).replay_workflow(
            history, raise_on_replay_failure=False
        )
        return [
            result,
            str(replay.replay_failure),
            await outcome(handle.query(ManyPatches.ask)),
            await stage.history(handle),
        ]


@workflow.defn
class SignalledPatch:
    """A patch met for the first time in a signal handler, before and while replaying."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    @workflow.run
    async def run(self) -> list[bool]:
        await workflow.wait_condition(lambda: len(self.seen) > 1)
        return self.seen

    @workflow.signal
    async def sig(self) -> None:
        self.seen.append(workflow.patched("in signal"))

    @workflow.update
    async def upd(self) -> bool:
        self.seen.append(workflow.patched("in update"))
        return self.seen[-1]


@scenario
async def patches_in_handlers(stage: Stage) -> Any:
    found = []
    for cached in (1000, 0):
        async with stage.worker([SignalledPatch], max_cached_workflows=cached):
            handle = await stage.start(SignalledPatch)
            await handle.signal(SignalledPatch.sig)
            found.append(await outcome(handle.execute_update(SignalledPatch.upd, id="u")))
            found.append(await outcome(handle.result()))
    return found


@workflow.defn
class PatchCallback:
    @workflow.run
    async def run(self) -> list[bool]:
        first = [workflow.patched("yes"), workflow.patched("no")]
        await asyncio.sleep(0.01)
        return [
            *first,
            workflow.patched("yes"),
            workflow.patched("no"),
            workflow.patched("late no"),
        ]


@scenario
async def patches_by_callback(stage: Stage) -> Any:
    found: list[Any] = []
    for cached in (1000, 0):
        asked: list[str] = []

        def activate(given: Any) -> bool:
            asked.append(f"{given.patch_id} {given.workflow_info.workflow_type}")  # noqa: B023
            return "no" not in given.patch_id

        async with stage.worker(
            [PatchCallback],
            patch_activation_callback=activate,
            max_cached_workflows=cached,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            handle = await stage.start(PatchCallback)
            found += [await outcome(handle.result()), asked, await stage.history(handle)]
    return found


@workflow.defn
class Logs:
    def __init__(self) -> None:
        self.go = 0

    @workflow.run
    async def run(self) -> None:
        workflow.logger.info("in run", extra={"mine": 1})
        await asyncio.sleep(0.01)
        workflow.logger.warning("after the timer")
        await workflow.wait_condition(lambda: self.go == 2)
        workflow.logger.error("end")

    @workflow.signal
    def sig(self) -> None:
        self.go += 1
        workflow.logger.info("signal %s", self.go)

    @workflow.update
    def upd(self) -> None:
        workflow.logger.info("update")

    @upd.validator
    def check(self) -> None:
        workflow.logger.info("validator")

    @workflow.query
    def ask(self) -> int:
        workflow.logger.info("query")
        return self.go


@scenario
async def logs(stage: Stage) -> Any:
    found: list[Any] = []
    for cached in (1000, 0):
        with stage.logs(logging.INFO) as lines:
            async with stage.worker([Logs], max_cached_workflows=cached):
                handle = await stage.start(Logs)
                await stage.until(handle, "WORKFLOW_TASK_COMPLETED", 2)
                await handle.signal(Logs.sig)
                await handle.query(Logs.ask)
                await handle.execute_update(Logs.upd)
                await handle.signal(Logs.sig)
                await handle.result()
                await handle.query(Logs.ask)
        found.append([line for line in lines if "temporalio.workflow" in line])
    return found


@workflow.defn
class Prioritised:
    @workflow.run
    async def run(self, depth: int) -> list[str]:
        found = [str(workflow.info().priority)]
        if depth:
            found += await workflow.execute_child_workflow(
                Prioritised.run, 0, id=f"{workflow.info().workflow_id}-inherits"
            )
            found += await workflow.execute_child_workflow(
                Prioritised.run,
                0,
                id=f"{workflow.info().workflow_id}-own",
                priority=Priority(priority_key=1),
            )
            found.append(
                await workflow.execute_activity(tells_priority, start_to_close_timeout=SECONDS)
            )
            found.append(
                await workflow.execute_activity(
                    tells_priority,
                    start_to_close_timeout=SECONDS,
                    priority=Priority(5, "tenant", 3.0),
                )
            )
        return found


@activity.defn
async def tells_priority() -> str:
    return str(activity.info().priority)


@scenario
async def priorities(stage: Stage) -> Any:
    async with stage.worker([Prioritised], [tells_priority]):
        return [
            await stage.run(Prioritised, 1, suffix="p", priority=Priority(3, "f", 2.0)),
            await stage.run(Prioritised, 1, suffix="q"),
        ]


@workflow.defn
class Randoms:
    @workflow.run
    async def run(self) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            found.append(
                [
                    workflow.random().random(),
                    workflow.random().randint(0, 1000),
                    str(workflow.uuid4()),
                    len(str(workflow.uuid7())),
                    workflow.new_random().random(),
                    workflow.new_random(f"x{len(found)}").random(),
                ]
            )
            await asyncio.sleep(0.01)
        self.found = found
        return found

    @workflow.query
    def ask(self) -> list[Any]:
        return self.found


@scenario
async def randomness(stage: Stage) -> Any:
    async with stage.worker([Randoms], max_cached_workflows=0):
        handle = await stage.start(Randoms)
        result = await outcome(handle.result())
        again = await handle.query(Randoms.ask)
        seen = [value for row in result for value in row if value != 36]
        return [result == again, len(set(seen)) == len(seen)]


@workflow.defn
class Meters:
    @workflow.run
    async def run(self) -> bool:
        meter = workflow.metric_meter().with_additional_attributes({"own": "x"})
        counter = meter.create_counter("parity_counter", "description", "unit")
        counter.add(1)
        await asyncio.sleep(0.01)
        counter.add(2, {"more": 1})
        meter.create_histogram("parity_histogram").record(5)
        meter.create_gauge_float("parity_gauge").set(1.5)
        return True


@scenario
async def meters(stage: Stage) -> Any:
    from temporalio.client import Client
    from temporalio.runtime import (
        MetricBuffer,
        Runtime,
        TelemetryConfig,
    )

    buffer = MetricBuffer(10000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    target = stage.client.service_client.config.target_host
    client = await Client.connect(target, runtime=runtime)
    own = Stage(client, stage.prefix)
    async with own.worker([Meters], max_cached_workflows=0):
        result = await own.run(Meters)
    updates = [u for u in buffer.retrieve_updates() if u.metric.name.startswith("parity")]
    return [
        result,
        [
            [
                u.metric.name,
                str(u.metric.kind),
                u.metric.description,
                u.metric.unit,
                u.value,
                {k: v for k, v in sorted(u.attributes.items()) if k != "service_name"},
            ]
            for u in updates
        ],
    ]
