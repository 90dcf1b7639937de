"""Starting workflows, finding them by tags, uniqueness, handles and results."""

import asyncio

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    Engine,
    Handle,
    Id,
    ResultTimeout,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    WorkflowNotFound,
    activity,
    workflow,
)
from perdure.engine.errors import (
    DuplicateName,
    EngineNotRunning,
    InvalidDefinition,
    UnknownWorkflow,
)
from perdure.errors import InvalidName, PayloadError

go = Signal("go", str)


@workflow
async def wait(ctx: WorkflowContext, value: int = 0) -> str:
    return f"{value} {await ctx.listen(go)}"


@workflow
async def quick(ctx: WorkflowContext, value: int) -> int:
    return value


# -- tags


async def test_find_needs_all_given_tags_and_no_more(lab: Lab) -> None:
    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait, 1, tags={"a": "x", "b": 1})
    right: list[dict[str, str | int | bool]] = [{}, {"a": "x"}, {"b": 1}, {"b": 1, "a": "x"}]
    for tags in right:
        found = await engine.find(wait, tags)
        assert found is not None
        assert found.id == handle.id
    others: list[dict[str, str | int | bool]] = [
        {"a": "y"},
        {"a": "x", "b": 2},
        {"c": 1},
        {"b": "1"},
        {"b": True},
    ]
    for wrong in others:
        assert await engine.find(wait, wrong) is None


async def test_only_open_workflows_are_found(lab: Lab) -> None:
    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait, 1, tags={"a": 1})
    await handle.signal(go(""))
    await handle.result()
    assert await engine.find(wait, {"a": 1}) is None


async def test_set_tags_replaces_all_tags_at_once(lab: Lab) -> None:
    """The old ones find nothing, the new ones do, and so does the search without tags."""

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.set_tags({"b": 2, "c": 3})
        await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work, tags={"a": 1, "b": 1})
    await lab.asleep(handle)
    for tags in ({}, {"b": 2}, {"b": 2, "c": 3}):
        found = await engine.find(work, tags)
        assert found is not None
        assert found.id == handle.id
    for tags in ({"a": 1}, {"b": 1}):
        assert await engine.find(work, tags) is None
    await lab.restart(work)
    await lab.again(handle).signal(go(""))
    await lab.again(handle).result()


# -- uniqueness


async def test_unique_returns_the_open_workflow_with_these_tags(lab: Lab) -> None:
    engine = await lab.engine(wait)
    first = await engine.dispatch(wait, 1, tags={"order": 7}, unique=True)
    again = await engine.dispatch(wait, 2, tags={"order": 7}, unique=True)
    other = await engine.dispatch(wait, 3, tags={"order": 8}, unique=True)
    assert again.id == first.id != other.id
    await first.signal(go("x"))
    assert await again.result() == "1 x"
    fresh = await engine.dispatch(wait, 4, tags={"order": 7}, unique=True)
    assert fresh.id != first.id


async def test_a_business_key_is_unique_by_name_and_key(lab: Lab) -> None:
    engine = await lab.engine(wait, quick)
    first = await engine.dispatch(wait, 1, unique="order-7")
    again = await engine.dispatch(wait, 2, unique="order-7")
    other = await engine.dispatch(quick, 3, unique="order-7")
    assert again.id == first.id
    assert await other.result() == 3
    await first.signal(go("x"))
    await first.result()
    assert (await engine.dispatch(wait, 4, unique="order-7")).id != first.id


@pytest.mark.parametrize("unique", [True, "key"])
async def test_concurrent_dispatches_agree_on_one(lab: Lab, unique: bool | str) -> None:
    engine = await lab.engine(wait)
    handles = await asyncio.gather(
        *(engine.dispatch(wait, n, tags={"t": 1}, unique=unique) for n in range(20))
    )
    assert len({handle.id for handle in handles}) == 1


async def test_the_same_id_twice_is_harmless(lab: Lab) -> None:
    engine = await lab.engine(quick)
    id = Id.new()
    handles = [await engine.dispatch(quick, n, id=id) for n in (1, 2)]
    assert [await handle.result() for handle in handles] == [1, 1]


# -- names and inputs


async def test_workflows_can_be_dispatched_by_name(lab: Lab) -> None:
    engine = await lab.engine(quick)
    handle: Handle[int] = await engine.dispatch("quick", 5)
    assert await handle.result() == 5


async def test_a_workflow_of_a_name_nobody_serves_waits_for_somebody(lab: Lab) -> None:
    engine = await lab.engine(worker=False)
    handle = await engine.dispatch(quick, 5)
    with pytest.raises(ResultTimeout):
        await handle.result(20)
    await lab.restart(quick)
    assert await lab.again(handle).result() == 5


async def test_an_engine_that_runs_workflows_refuses_those_it_does_not_know(lab: Lab) -> None:
    engine = await lab.engine(wait)
    with pytest.raises(UnknownWorkflow, match="wait"):
        await engine.dispatch(quick, 1)


async def test_bad_names_and_inputs_are_refused_at_once(lab: Lab) -> None:
    engine = await lab.engine(quick)
    with pytest.raises(InvalidName):
        await engine.dispatch("No Such Name", 1)
    with pytest.raises(PayloadError):
        await engine.dispatch(quick, object())  # type: ignore[misc]


def test_two_definitions_of_one_name_are_refused() -> None:
    @workflow(name="quick")
    async def impostor(ctx: WorkflowContext) -> None: ...

    with pytest.raises(DuplicateName, match="quick"):
        Engine("memory:", workflows=[quick, impostor])


def test_definitions_are_checked_when_they_are_made() -> None:
    with pytest.raises(InvalidName):

        @workflow(name="Bad-Name")
        async def named(ctx: WorkflowContext) -> None: ...

    with pytest.raises(InvalidDefinition, match="async"):

        @workflow  # type: ignore[arg-type]
        def plain(ctx: WorkflowContext) -> None: ...

    with pytest.raises(InvalidDefinition, match="ctx"):

        @activity  # type: ignore[arg-type]
        async def many(ctx: ActivityContext, a: int, b: int) -> None: ...


async def test_an_engine_that_is_not_running_says_so() -> None:
    with pytest.raises(EngineNotRunning):
        await Engine("memory:", workflows=[quick]).dispatch(quick, 1)


# -- results


async def test_result_has_a_timeout_and_may_be_asked_again(lab: Lab) -> None:
    engine = await lab.engine(wait)
    handle = await engine.dispatch(wait, 1)
    before = lab.clock.monotonic()
    with pytest.raises(ResultTimeout, match="7 s"):
        await handle.result(timeout=7)
    assert lab.clock.monotonic() - before == pytest.approx(7, abs=0.1)
    await handle.signal(go("x"))
    assert await handle.result() == "1 x"
    assert await handle.result(0) == "1 x"


async def test_the_result_of_nobody(lab: Lab) -> None:
    engine = await lab.engine(worker=False)
    with pytest.raises(WorkflowNotFound):
        await engine.handle(quick, Id.new()).result()
    with pytest.raises(WorkflowNotFound):
        await engine.handle(quick, Id.new()).describe()


async def test_a_failure_is_raised_with_what_happened(lab: Lab) -> None:
    @workflow
    async def dies(ctx: WorkflowContext) -> None:
        try:
            raise KeyError("root")
        except KeyError as error:
            raise ValueError("on top") from error

    engine = await lab.engine(dies)
    handle = await engine.dispatch(dies)
    with pytest.raises(WorkflowFailed, match="on top") as caught:
        await handle.result()
    assert caught.value.workflow_id == handle.id
    assert caught.value.failure.cause is not None
    assert caught.value.failure.cause.type == "KeyError"


async def test_a_handle_can_be_made_from_the_text_of_an_id(lab: Lab) -> None:
    engine = await lab.engine(quick)
    handle = await engine.dispatch(quick, 3)
    assert await engine.handle(quick, str(handle.id)).result() == 3
    assert await engine.handle(None, str(handle.id)).result() == 3


async def test_many_workflows_at_once(lab: Lab) -> None:
    @workflow
    async def busy(ctx: WorkflowContext, n: int) -> int:
        await ctx.sleep(n % 7)
        return n

    engine = await lab.engine(busy)
    handles = [await engine.dispatch(busy, n) for n in range(200)]
    assert [await handle.result() for handle in handles] == list(range(200))


async def test_two_engines_share_one_store(lab: Lab) -> None:
    first = await lab.engine(quick)
    await lab.engine(quick)
    handles = [await first.dispatch(quick, n) for n in range(50)]
    assert [await handle.result() for handle in handles] == list(range(50))
