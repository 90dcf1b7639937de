"""Changing code under running workflows: start with one version, go on with another."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    ActivityFailed,
    Break,
    Handle,
    Signal,
    Workflow,
    WorkflowContext,
    WorkflowFailed,
    activity,
    workflow,
)
from perdure.engine.errors import InvalidVersion

go = Signal("go", str)
calls: list[str] = []
Body = Callable[[WorkflowContext], Awaitable[Any]]


@activity
async def note(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


@activity(name="other")
async def other_activity(ctx: ActivityContext, what: str) -> str:
    calls.append(what)
    return what


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def code(body: Body) -> Workflow[None, Any]:
    """A release of the code of the workflow `story`."""

    @workflow(name="story")
    async def story(ctx: WorkflowContext) -> Any:
        return await body(ctx)

    return story


async def deploy(lab: Lab, old: Body, new: Body) -> Handle[Any]:
    """Run `old` until it sleeps, then let `new` go on from there, woken by the signal `go`."""
    engine = await lab.engine(code(old))
    handle = await engine.dispatch(code(old))
    await lab.asleep(handle)
    await lab.restart(code(new))
    await lab.again(handle).signal(go("on"))
    return lab.again(handle)


# -- inserted steps


async def test_a_new_step_is_inserted_where_it_stands(lab: Lab) -> None:
    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        await ctx.activity(note, "two")
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        await ctx.v(2).activity(note, "zero")
        await ctx.activity(note, "one")
        await ctx.v(2).activity(note, "half")
        await ctx.v(2).sleep(1)
        await ctx.activity(note, "two")
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    assert await handle.result() == "on"
    assert calls == ["one", "two", "zero", "half"]
    assert await lab.outline(handle) == [
        "{0.1} activity note",
        "{1} activity note",
        "{1.1} activity note",
        "{1.2} sleep",
        "{2} activity note",
        "{3} signals",
    ]


@pytest.mark.parametrize(
    ("place", "result"),
    [
        ("before", ["added", "on", "done"]),
        ("first", ["added", "on", "done"]),
        ("middle", ["on", "added", "done"]),
    ],
)
async def test_a_new_step_beside_a_half_done_join(lab: Lab, place: str, result: list[str]) -> None:
    """Its first member waits and has no event yet; its second is done, and named as the new one."""

    async def old(ctx: WorkflowContext) -> list[str]:
        return await ctx.join_all([ctx.listen(go), ctx.activity(note, "done")])

    async def new(ctx: WorkflowContext) -> list[str]:
        added = ctx.v(2).activity(note, "added")
        waits, done = ctx.listen(go), ctx.activity(note, "done")
        if place == "before":
            return [await added, *await ctx.join_all([waits, done])]
        if place == "first":
            return await ctx.join_all([added, waits, done])
        return await ctx.join_all([waits, added, done])

    handle = await deploy(lab, old, new)
    assert await handle.result() == result
    assert calls == ["done", "added"]


async def test_later_releases_insert_between_inserted_steps(lab: Lab) -> None:
    """Any number of times at any depth, and no place is given out twice."""

    def release(newest: int) -> Body:
        async def body(ctx: WorkflowContext) -> str:
            await ctx.activity(note, "1a")
            for version in range(newest, 1, -1):
                await ctx.v(version).activity(note, f"{version}a")
                await ctx.v(version).activity(note, f"{version}b")
            await ctx.activity(note, "1b")
            await ctx.listen(go)
            return await ctx.listen(go)

        return body

    engine = await lab.engine(code(release(1)))
    handle = await engine.dispatch(code(release(1)))
    await lab.asleep(handle)
    for newest in range(2, 7):
        engine = await lab.restart(code(release(newest)))
        await engine.admin.wake(str(handle.id))
        await lab.asleep(handle)
    await lab.again(handle).signal(go("once"))
    await lab.asleep(handle)
    await lab.again(handle).signal(go("done"))
    assert await lab.again(handle).result() == "done"
    assert calls == ["1a", "1b", *(f"{v}{x}" for v in range(2, 7) for x in "ab")]
    places = [line.split("}")[0] for line in await lab.outline(handle)]
    assert len(set(places)) == len(places) == 14


async def test_steps_are_inserted_into_loops_closures_and_joins(lab: Lab) -> None:
    def release(new: bool) -> Body:
        async def iteration(ctx: WorkflowContext, seen: list[str]) -> Break[list[str]] | None:
            if new:
                seen.append(await ctx.v(2).activity(note, "new in the loop"))
            seen.append(await ctx.activity(note, "loop"))
            return Break(seen) if await ctx.listen(go) == "on" else None

        async def closure(ctx: WorkflowContext) -> str:
            first = await ctx.activity(note, "closure")
            if new:
                await ctx.v(2).activity(note, "new in the closure")
            return first

        async def body(ctx: WorkflowContext) -> Any:
            members: list[Any] = [closure, ctx.activity(note, "member")]
            if new:
                members.insert(1, ctx.v(2).activity(note, "new member"))
            joined = await ctx.join(*members)
            return [joined, await ctx.loop(iteration, list[str]())]

        return body

    handle = await deploy(lab, release(False), release(True))
    assert await handle.result() == [
        ["closure", "new member", "member"],
        ["new in the loop", "loop"],
    ]
    assert sorted(calls) == sorted(
        ["closure", "member", "loop", "new in the closure", "new member", "new in the loop"]
    )


async def test_a_step_that_listens_can_be_inserted(lab: Lab) -> None:
    """The bounded wait is one place, so nothing behind it is overwritten."""
    seen: list[Any] = []

    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        await ctx.activity(note, "two")
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        await ctx.v(2).sleep(1)
        seen.append(await ctx.v(2).listen(go, timeout=5))
        await ctx.activity(note, "two")
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    await lab.until(lambda: bool(seen))
    await lab.asleep(handle)
    await handle.signal(go("second"))
    assert await handle.result() == "second"
    assert calls == ["one", "two"]
    assert set(seen) == {"on"}


async def test_versions_only_grow(lab: Lab) -> None:
    async def body(ctx: WorkflowContext) -> list[int]:
        found = []
        for versions in ((3, 2), (0,), (3, 3, 4)):
            inner = ctx
            try:
                for version in versions:
                    inner = inner.v(version)
            except InvalidVersion as error:
                found.append(error.lowest)
        try:
            await ctx.check_version(0)
        except InvalidVersion:
            found.append(0)
        return found

    engine = await lab.engine(code(body))
    assert await (await engine.dispatch(code(body))).result() == [3, 1, 0]


# -- version checks


async def test_check_version_tells_old_workflows_from_new_ones(lab: Lab) -> None:
    """The answer is absolute: the version of what follows in an old history, else the latest."""

    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "old way")
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        if await ctx.check_version(2) == 1:
            await ctx.activity(note, "old way")
        else:
            await ctx.activity(note, "new way")
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    assert await handle.result() == "on"
    assert calls == ["old way"]
    engine = lab._engines[-1]
    fresh = await engine.dispatch(code(new))
    await fresh.signal(go("fresh"))
    assert await fresh.result() == "fresh"
    assert calls == ["old way", "new way"]


async def test_a_version_once_checked_stays(lab: Lab) -> None:
    """The decision is recorded for old workflows too, so a third release cannot turn it."""
    seen: list[int] = []

    async def first(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        return await ctx.listen(go)

    def release(latest: int) -> Body:
        async def body(ctx: WorkflowContext) -> str:
            seen.append(await ctx.check_version(latest))
            if seen[-1] < 3:
                await ctx.activity(note, "one")
            return await ctx.listen(go)

        return body

    engine = await lab.engine(code(first))
    handle = await engine.dispatch(code(first))
    await lab.asleep(handle)
    for latest in (2, 3, 4):
        engine = await lab.restart(code(release(latest)))
        await engine.admin.wake(str(handle.id))
        await lab.asleep(handle)
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result() == "on"
    assert set(seen) == {1}
    assert calls == ["one"]


async def test_check_version_inside_a_later_version(lab: Lab) -> None:
    """The same on the first run and on replay, also in a context of a later version."""
    seen: list[int] = []

    async def body(ctx: WorkflowContext) -> str:
        seen.append(await ctx.v(2).check_version(3))
        return await ctx.listen(go)

    await (await deploy(lab, body, body)).result()
    assert set(seen) == {3}


# -- removed steps


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("activity", "note"),
        ("sleep", None),
        ("signals", None),
        ("branch", None),
        ("loop", None),
        ("message_send", "news"),
        ("tags", None),
        ("version_check", None),
    ],
)
async def test_a_step_can_be_removed(lab: Lab, kind: Any, name: str | None) -> None:
    from perdure import Message

    news = Message("news", str)

    async def nothing(ctx: WorkflowContext) -> None: ...

    async def once(ctx: WorkflowContext, state: None) -> Break[None]:
        await ctx.activity(other_activity, "in the loop")
        return Break(None)

    steps: dict[str, Callable[[WorkflowContext], Awaitable[Any]]] = {
        "activity": lambda ctx: ctx.activity(note, "gone"),
        "sleep": lambda ctx: ctx.sleep(0),
        "signals": lambda ctx: ctx.listen(go),
        "branch": lambda ctx: ctx.closure(nothing),
        "loop": lambda ctx: ctx.loop(once),
        "message_send": lambda ctx: ctx.message(news("x")),
        "tags": lambda ctx: ctx.set_tags({"a": 1}),
        "version_check": lambda ctx: ctx.check_version(2),
    }

    async def old(ctx: WorkflowContext) -> str:
        await ctx.signal(ctx.workflow_id, go("for the step"))
        await steps[kind](ctx)
        await ctx.activity(other_activity, "kept")
        await ctx.listen(go, timeout=0)
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        await ctx.signal(ctx.workflow_id, go("for the step"))
        await ctx.removed(kind, name)
        await ctx.activity(other_activity, "kept")
        await ctx.listen(go, timeout=0)
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    assert await handle.result() == "on"
    assert calls.count("kept") == 1
    fresh = await lab._engines[-1].dispatch(code(new))
    await lab.asleep(fresh)
    await fresh.signal(go("fresh"))
    assert await fresh.result() == "fresh"


# -- histories that do not fit


async def test_a_replaced_step_is_a_diverged_history(lab: Lab) -> None:
    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        await ctx.activity(other_activity, "one")
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    failure = caught.value.failure
    assert failure.code == "engine.history_diverged"
    for part in ("note", "other", "{1}"):
        assert part in failure.message
    assert calls == ["one"]


async def test_a_deleted_step_is_latent_history(lab: Lab) -> None:
    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        return "done early"

    handle = await deploy(lab, old, new)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    assert caught.value.failure.code == "engine.latent_history"


@pytest.mark.parametrize("wrapped", [False, True], ids=["root", "closure"])
async def test_user_code_cannot_swallow_a_misfit(lab: Lab, wrapped: bool) -> None:
    """Going on after it would write a second story over the first."""

    async def old(ctx: WorkflowContext) -> str:
        async def inner(ctx: WorkflowContext) -> None:
            await ctx.activity(note, "one")

        await (ctx.closure(inner) if wrapped else inner(ctx))
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        async def inner(ctx: WorkflowContext) -> None:
            try:
                await ctx.activity(other_activity, "changed")
            except Exception:
                calls.append("swallowed")
            await ctx.activity(other_activity, "went on")

        try:
            await (ctx.closure(inner) if wrapped else inner(ctx))
        except Exception:
            calls.append("swallowed again")
        return "as if nothing had happened"

    handle = await deploy(lab, old, new)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    assert caught.value.failure.code == "engine.history_diverged"
    assert "went on" not in calls
    assert "changed" not in calls


async def test_latent_history_in_a_closure_cannot_be_swallowed(lab: Lab) -> None:
    async def old(ctx: WorkflowContext) -> str:
        async def inner(ctx: WorkflowContext) -> None:
            await ctx.activity(note, "one")

        await ctx.closure(inner)
        return await ctx.listen(go)

    async def new(ctx: WorkflowContext) -> str:
        async def inner(ctx: WorkflowContext) -> None: ...

        try:
            await ctx.closure(inner)
        except Exception:
            calls.append("swallowed")
        return await ctx.listen(go)

    handle = await deploy(lab, old, new)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    assert caught.value.failure.code == "engine.latent_history"


async def test_a_misfit_is_mended_by_deploying_the_right_code_and_reviving(lab: Lab) -> None:
    async def old(ctx: WorkflowContext) -> str:
        await ctx.activity(note, "one")
        return await ctx.listen(go)

    async def broken(ctx: WorkflowContext) -> str:
        await ctx.activity(other_activity, "one")
        return await ctx.listen(go)

    handle = await deploy(lab, old, broken)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    engine = await lab.restart(code(old))
    await engine.admin.revive(ids=[str(handle.id)])
    assert await lab.again(handle).result() == "on"
    assert calls == ["one"]


async def test_a_join_that_no_longer_fails_is_a_diverged_history(lab: Lab) -> None:
    """It ended once with an error and left a member behind; now it would wait for that member."""

    def release(fails: bool) -> Body:
        async def body(ctx: WorkflowContext) -> str:
            async def fatal(ctx: WorkflowContext) -> None:
                if fails:
                    raise ValueError

            async def waits(ctx: WorkflowContext) -> None:
                await ctx.activity(note, "before")
                await ctx.listen(go)

            try:
                await ctx.join(fatal, waits)
            except ValueError:
                await ctx.activity(note, "compensated")
            await ctx.listen(go)
            return await ctx.listen(go)

        return body

    handle = await deploy(lab, release(True), release(False))
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    assert caught.value.failure.code == "engine.history_diverged"


@pytest.mark.parametrize("ending", ["raise", "return"])
async def test_reviving_does_not_undo_a_failure_that_history_goes_on_behind(
    lab: Lab, ending: str
) -> None:
    """Broken code dies right after a failure that the code before it had dealt with."""

    @activity(attempts=1)
    async def refuse(ctx: ActivityContext) -> None:
        calls.append("refuse")
        raise ValueError

    def release(ending: str) -> Body:
        async def body(ctx: WorkflowContext) -> str:
            try:
                await ctx.activity(refuse)
            except ActivityFailed:
                if ending == "raise":
                    raise LookupError("a bug") from None
                if ending == "return":
                    return "too early"
                await ctx.activity(note, "compensated")
            return await ctx.listen(go)

        return body

    handle = await deploy(lab, release("right"), release(ending))
    with pytest.raises(WorkflowFailed):
        await handle.result()
    engine = await lab.restart(code(release("right")))
    await engine.admin.revive(ids=[str(handle.id)])
    assert await lab.again(handle).result() == "on"
    assert calls == ["refuse", "compensated"]
