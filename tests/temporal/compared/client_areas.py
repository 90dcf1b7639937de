"""Prints what the public API of `temporalio.client` answers, area by area.

The argument is the address of a server. Names that differ from run to run are replaced by what they
are.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import (
    AsyncActivityCancelledError,
    Client,
    CloudOperationsClient,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateStage,
)
from temporalio.common import (
    QueryRejectCondition,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker
from tests.temporal.compared.area_workflows import (
    Chain,
    Failing,
    Outside,
    Talker,
    elsewhere,
    join,
    tokens,
)

KEYWORD = SearchAttributeKey.for_keyword("PerdureKeyword")
QUEUE = f"areas-{uuid.uuid4()}"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def unique() -> str:
    return f"id-{uuid.uuid4()}"


def fault(error: BaseException) -> Any:
    """An error with its causes."""
    shown: list[Any] = [type(error).__name__, UUID.sub("UUID", str(error))]
    for name in ("status", "type", "details", "non_retryable"):
        value = getattr(error, name, None)
        if value is not None:
            shown.append([name, str(value)])
    if error.__cause__ is not None:
        shown.append(fault(error.__cause__))
    return shown


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as error:
        return fault(error)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    while not await true():  # noqa: ASYNC110 - a server far away decides
        await asyncio.sleep(0.02)


async def start(
    client: Client, run: Any, *arguments: Any, **options: Any
) -> WorkflowHandle[Any, Any]:
    options.setdefault("id", unique())
    return await client.start_workflow(run, args=arguments, task_queue=QUEUE, **options)


async def starting(client: Client) -> Any:
    first = await start(
        client,
        Talker.run,
        memo={"note": 1},
        search_attributes=TypedSearchAttributes([SearchAttributePair(KEYWORD, "word")]),
        static_summary="summary",
        static_details="details",
        execution_timeout=timedelta(minutes=5),
    )
    again = await outcome(start(client, Talker.run, id=first.id))
    used = await start(
        client, Talker.run, id=first.id, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    description = await first.describe()
    await first.signal(Talker.hear, "end")
    refused = await outcome(
        start(
            client, Talker.run, id=first.id, id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE
        )
    )
    return [
        again,
        used.result_run_id == first.result_run_id,
        refused,
        await first.result(),
        description.status,
        description.workflow_type,
        await description.memo(),
        description.typed_search_attributes.get(KEYWORD),
        await description.static_summary(),
        await description.static_details(),
        await outcome(client.get_workflow_handle("never started").describe()),
        await outcome(client.get_workflow_handle("never started").result()),
        await outcome(client.execute_workflow("NoSuchTask", id="", task_queue=QUEUE)),
    ]


async def ending(client: Client) -> Any:
    found: list[Any] = []
    cancelled = await start(client, Talker.run)
    await cancelled.cancel()
    found.append(await outcome(cancelled.result()))
    terminated = await start(client, Talker.run)
    await terminated.terminate("a", 1, reason="enough")
    found.append(await outcome(terminated.result()))
    timed = await start(client, Talker.run, run_timeout=timedelta(seconds=1))
    failed = await start(client, Failing.run)
    found += [await outcome(failed.result()), await outcome(timed.result())]
    found.append(
        [(await each.describe()).status for each in (cancelled, terminated, failed, timed)]
    )
    found.append(await outcome(cancelled.cancel()))
    found.append(await outcome(terminated.terminate()))
    found.append(await outcome(client.get_workflow_handle("never started").cancel()))
    return found


async def chains(client: Client) -> Any:
    handle = await start(client, Chain.run, 1)
    first = client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
    return [
        await handle.result(),
        await outcome(first.result(follow_runs=False)),
        await first.result(),
        await client.execute_workflow("Chain", 0, id=unique(), task_queue=QUEUE, result_type=float),
        handle.first_execution_run_id == handle.result_run_id,
    ]


async def messages(client: Client) -> Any:
    handle = await start(client, Talker.run, start_signal="hear", start_signal_args=["first"])
    found: list[Any] = [await handle.query(Talker.words)]
    found.append(await outcome(handle.query(Talker.wrong)))
    found.append(await outcome(handle.query("nothing")))
    found.append(await outcome(handle.execute_update(Talker.say, "second")))
    found.append(await outcome(handle.execute_update(Talker.say, "")))
    found.append(await outcome(handle.execute_update(Talker.say, "fail")))
    found.append(await outcome(handle.execute_update("nothing", "x")))
    accepted = await handle.start_update(
        Talker.say, "third", wait_for_stage=WorkflowUpdateStage.ACCEPTED, id="my-update"
    )
    found += [accepted.id, await accepted.result()]
    found.append(await handle.get_update_handle_for(Talker.say, "my-update").result())
    found.append(
        await outcome(
            handle.get_update_handle("no-update").result(rpc_timeout=timedelta(milliseconds=300))
        )
    )
    await handle.signal("hear", "end")
    found.append(await handle.result())
    found.append(await handle.query(Talker.words))
    found.append(
        await outcome(handle.query(Talker.words, reject_condition=QueryRejectCondition.NOT_OPEN))
    )
    found.append(await outcome(handle.signal(Talker.hear, "late")))
    found.append(await outcome(handle.execute_update(Talker.say, "late")))
    return found


async def updates_with_start(client: Client) -> Any:
    def operation(policy: WorkflowIDConflictPolicy, name: str) -> Any:
        return WithStartWorkflowOperation(
            Talker.run, id=name, task_queue=QUEUE, id_conflict_policy=policy
        )

    name = unique()
    begin = operation(WorkflowIDConflictPolicy.USE_EXISTING, name)
    found: list[Any] = [
        await client.execute_update_with_start_workflow(
            Talker.say, "one", start_workflow_operation=begin
        )
    ]
    handle = await begin.workflow_handle()
    begin = operation(WorkflowIDConflictPolicy.USE_EXISTING, name)
    update = await client.start_update_with_start_workflow(
        Talker.say,
        "two",
        wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        start_workflow_operation=begin,
    )
    found += [await update.result(), (await begin.workflow_handle()).id == name]
    begin = operation(WorkflowIDConflictPolicy.FAIL, name)
    found.append(
        await outcome(
            client.execute_update_with_start_workflow(
                Talker.say, "three", start_workflow_operation=begin
            )
        )
    )
    found.append(await outcome(begin.workflow_handle()))
    begin = operation(WorkflowIDConflictPolicy.USE_EXISTING, name)
    found.append(
        await outcome(
            client.execute_update_with_start_workflow(
                Talker.say, "", start_workflow_operation=begin
            )
        )
    )
    await handle.signal("hear", "end")
    return [*found, await handle.result()]


async def histories(client: Client) -> Any:
    handle = await start(client, Chain.run, 0)
    waited = [
        event.event_type
        async for event in handle.fetch_history_events(wait_new_event=True, page_size=2)
    ]
    history = await handle.fetch_history()
    again = json.loads(history.to_json())
    return [
        waited,
        [event.event_type for event in history.events] == waited,
        len(again["events"]) == len(waited),
        history.workflow_id == handle.id,
        await outcome(client.get_workflow_handle("never started").fetch_history()),
    ]


async def lists(client: Client) -> Any:
    mark = str(uuid.uuid4())
    attributes = TypedSearchAttributes([SearchAttributePair(KEYWORD, mark)])
    for _ in range(3):
        handle = await start(client, Chain.run, 0, search_attributes=attributes)
        await handle.result()
    query = f"PerdureKeyword = '{mark}'"

    async def all_are_listed() -> bool:
        completed = f"{query} AND ExecutionStatus = 'Completed'"
        return (await client.count_workflows(completed)).count == 3

    await until(all_are_listed)
    listed = [each async for each in client.list_workflows(query, page_size=2)]
    grouped = await client.count_workflows(f"{query} GROUP BY ExecutionStatus")
    lengths = []
    async for history in client.list_workflows(query).map_histories():
        lengths.append(len(history.events))
    return [
        len(listed),
        {each.workflow_type for each in listed} == {"Chain"},
        [each async for each in client.list_workflows("WorkflowId = 'never started'")],
        len([each async for each in client.list_workflows(query, limit=2)]),
        grouped.count,
        [(group.count, list(group.group_values)) for group in grouped.groups],
        lengths,
        await outcome(client.count_workflows("no query at all")),
    ]


async def schedules(client: Client) -> Any:
    name = unique()
    action = ScheduleActionStartWorkflow(Chain.run, 0, id=f"{name}-run", task_queue=QUEUE)
    schedule = Schedule(
        action=action,
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=300))]),
        state=ScheduleState(note="a note", paused=True),
    )
    handle = await client.create_schedule(name, schedule, memo={"about": "it"})
    found: list[Any] = [await outcome(client.create_schedule(name, schedule))]
    described = await handle.describe()
    found += [
        described.schedule.state.note,
        described.schedule.state.paused,
        await described.memo(),
        described.info.num_actions,
    ]

    def change(update: ScheduleUpdateInput) -> ScheduleUpdate:
        changed = update.description.schedule
        changed.state.note = "another note"
        return ScheduleUpdate(schedule=changed)

    async def shows(note: str) -> bool:
        return (await handle.describe()).schedule.state.note == note

    await handle.update(change)
    await until(lambda: shows("another note"))
    await handle.unpause(note="on")
    await until(lambda: shows("on"))
    start_at = described.info.created_at
    await handle.backfill(
        ScheduleBackfill(start_at=start_at, end_at=start_at, overlap=ScheduleOverlapPolicy.SKIP)
    )

    async def triggered() -> bool:
        """The server may lose a trigger that comes with another change."""
        await handle.trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL)
        return (await handle.describe()).info.num_actions >= 1

    await until(triggered)
    found.append((await handle.describe()).schedule.state.paused)
    await handle.pause(note="off")
    await until(lambda: shows("off"))

    async def listed() -> bool:
        return name in [each.id async for each in await client.list_schedules()]

    await until(listed)
    await handle.delete()
    return [*found, await outcome(handle.describe()), await outcome(handle.delete())]


async def outside_activities(client: Client) -> Any:
    found: list[Any] = []

    async def begin() -> tuple[WorkflowHandle[Any, Any], bytes, str]:
        handle = await start(client, Outside.run)
        return handle, *(await tokens.get())

    handle, token, _ = await begin()
    by_token = client.get_async_activity_handle(task_token=token)
    await by_token.heartbeat("alive")
    await by_token.complete("done")
    found += [await handle.result(), await outcome(by_token.complete("twice"))]
    handle, _, activity_id = await begin()
    by_id = client.get_async_activity_handle(
        workflow_id=handle.id, run_id=None, activity_id=activity_id
    )
    await by_id.heartbeat()
    await by_id.fail(ApplicationError("failed outside", type="Outside"))
    found.append(await outcome(handle.result()))
    handle, token, _ = await begin()
    await handle.cancel()
    by_token = client.get_async_activity_handle(task_token=token)

    async def told() -> bool:
        try:
            await by_token.heartbeat()
        except AsyncActivityCancelledError as error:
            found.append(fault(error))
            return True
        return False

    await until(told)
    await by_token.report_cancellation()
    found.append(await outcome(handle.result()))
    nowhere = client.get_async_activity_handle(task_token=b"no token")
    return [*found, await outcome(nowhere.heartbeat())]


async def standalone_activities(client: Client) -> Any:
    async def run(*arguments: str, **options: Any) -> Any:
        return await client.execute_activity(
            join,
            args=arguments,
            id=options.pop("id", unique()),
            task_queue=QUEUE,
            start_to_close_timeout=timedelta(seconds=10),
            **options,
        )

    name = unique()
    found: list[Any] = [await outcome(run("a", "b", id=name)), await outcome(run("a", ""))]
    handle = client.get_activity_handle(name)
    description = await outcome(handle.describe())
    found.append(getattr(description, "status", description))
    return [*found, await outcome(client.get_activity_handle("never started").describe())]


async def deployments(client: Client) -> Any:
    from temporalio.api.workflowservice.v1 import (
        DescribeWorkerDeploymentRequest,
        ListWorkerDeploymentsRequest,
    )
    from temporalio.client import BuildIdOpAddNewDefault

    service = client.workflow_service
    listed = await service.list_worker_deployments(
        ListWorkerDeploymentsRequest(namespace=client.namespace)
    )
    missing = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name="none")
    build = str(uuid.uuid4())
    return [
        isinstance(list(listed.worker_deployments), list),
        await outcome(service.describe_worker_deployment(missing)),
        await outcome(
            # Not the queue of the other areas: it would have versions from then on.
            client.update_worker_build_id_compatibility(
                f"{QUEUE}-versioned", BuildIdOpAddNewDefault(build)
            )
        ),
        await outcome(client.get_worker_task_reachability(build_ids=[build])),
    ]


async def cloud(client: Client) -> Any:
    from temporalio.api.cloud.cloudservice.v1 import GetNamespaceRequest

    target = client.service_client.config.target_host
    operations = await CloudOperationsClient.connect(
        target_host=target, tls=False, api_key="key", version="2025-01-01"
    )
    operations.rpc_metadata = {"more": "things"}
    return await outcome(operations.cloud_service.get_namespace(GetNamespaceRequest(namespace="n")))


AREAS: list[Callable[[Client], Awaitable[Any]]] = [
    starting,
    ending,
    chains,
    messages,
    updates_with_start,
    histories,
    lists,
    schedules,
    outside_activities,
    standalone_activities,
    deployments,
    cloud,
]


@asynccontextmanager
async def worker(client: Client) -> AsyncIterator[None]:
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Talker, Chain, Failing, Outside],
        activities=[elsewhere, join],
        default_heartbeat_throttle_interval=timedelta(milliseconds=10),
    ):
        yield


async def main() -> None:
    client = await Client.connect(sys.argv[1])
    async with worker(client):
        asking = {area.__name__: asyncio.ensure_future(area(client)) for area in AREAS}
        await asyncio.wait(asking.values(), timeout=60)
        late = [name for name, task in asking.items() if not task.done()]
        assert not late, f"no answer of {late}"
        found = {name: task.result() for name, task in asking.items()}
    sys.stdout.write(UUID.sub("UUID", json.dumps(found, default=str)))


if __name__ == "__main__":
    asyncio.run(main())
