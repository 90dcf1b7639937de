"""Whatever callers and user code do wrong gives a typed error, loses nothing and holds no lease."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from tests.engine.proof.stage import KEYS, Stage

from perdure import (
    ActivityContext,
    ActivityFailed,
    Break,
    Engine,
    Id,
    RetryPolicy,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    WorkflowNotFound,
    activity,
    workflow,
)
from perdure.engine.database.lease import holders
from perdure.engine.errors import InvalidOption, UnknownWorkflow
from perdure.errors import CallerError, InvalidName, LimitExceeded, PayloadError

MB = 1_000_000
text = Signal("text", str)


@dataclass
class State:
    text: str = ""


# -- what user code raises


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Nasty(Exception):
    """Nothing about it can be had without trouble, and it cannot be pickled."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    @property
    def failure(self) -> NoReturn:
        raise RuntimeError("no failure either")

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot be pickled")


class Alien(BaseException):
    """Not an `Exception`."""


def _ring() -> BaseException:
    error = ValueError("its own cause")
    error.__cause__ = RuntimeError("between")
    error.__cause__.__cause__ = error
    return error


WEIRD: dict[str, Callable[[], BaseException]] = {
    "unprintable": Unprintable,
    "nasty": Nasty,
    "alien": Alien,
    "exit": lambda: SystemExit(3),
    "cancelled": asyncio.CancelledError,
    "group": lambda: ExceptionGroup("several", [ValueError("one"), Unprintable()]),
    "ring": _ring,
    "surrogate": lambda: ValueError("\ud800 \0"),
    "long": lambda: ValueError("x" * 5 * MB),
    "stop": lambda: StopIteration(1),
    "stop_async": lambda: StopAsyncIteration(1),
    "memory": MemoryError,
}


def _weird(what: str) -> BaseException:
    return WEIRD[what]()


@activity(attempts=2, initial=0.0, jitter=0.0)
async def raises(ctx: ActivityContext, what: str) -> None:
    raise _weird(what)


@activity(attempts=2, initial=0.0, jitter=0.0, timeout=None)
def raises_in_thread(ctx: ActivityContext, what: str) -> None:
    raise _weird(what)


@workflow
async def calls(ctx: WorkflowContext, what: str) -> str:
    try:
        await ctx.activity(raises, what)
    except ActivityFailed as error:
        return f"{error.attempts} {error.failure.type}"
    return "it did not fail"


@workflow
async def calls_in_thread(ctx: WorkflowContext, what: str) -> str:
    try:
        await ctx.activity(raises_in_thread, what)
    except ActivityFailed as error:
        return f"{error.attempts} {error.failure.type}"
    return "it did not fail"


@workflow
async def breaks(ctx: WorkflowContext, what: str) -> None:
    await ctx.sleep(5)
    raise _weird(what)


@workflow
async def breaks_in_join(ctx: WorkflowContext, what: str) -> None:
    async def closure(ctx: WorkflowContext) -> None:
        await ctx.sleep(5)
        raise _weird(what)

    await ctx.join(closure, ctx.sleep(100))


# -- what user code returns and passes


@workflow
async def returns(ctx: WorkflowContext, what: str) -> int:
    values: dict[str, Any] = {"wrong type": "text", "object": object(), "coroutine": asyncio.sleep}
    result: int = values[what]
    return result


@activity
async def gives(ctx: ActivityContext, what: str) -> int:
    values: dict[str, Any] = {"wrong type": "text", "object": object(), "huge int": 1 << 70}
    result: int = values[what]
    return result


@workflow
async def passes(ctx: WorkflowContext, what: str) -> str:
    try:
        await ctx.activity(gives, what)
    except ActivityFailed as error:
        return f"{error.attempts} {error.failure.type}"
    return "it did not fail"


@activity
async def copy(ctx: ActivityContext, given: str) -> str:
    return given


@activity
async def keep(ctx: ActivityContext, given: str) -> str:
    ctx.state(State).text = given
    return given


@workflow
async def large(ctx: WorkflowContext, given: str) -> str:
    """Carries its input through every place where a value can be."""
    await ctx.activity(copy, given)
    await ctx.activity(keep, given[: len(given) // 2])
    assert await ctx.listen(text, timeout=1000) == given
    assert await ctx.call(echo, given) == given
    await ctx.inline(echo, given)

    async def body(ctx: WorkflowContext, state: list[str]) -> Break[str] | None:
        state[0] = state[0][::-1]
        return Break(state[0])

    assert await ctx.loop(body, [given]) == given[::-1]
    return given


@workflow
async def echo(ctx: WorkflowContext, given: str) -> str:
    return given


@workflow
async def too_large(ctx: WorkflowContext, where: str) -> str:
    huge = "x" * (200 * MB)
    try:
        if where == "activity":
            await ctx.activity(copy, huge)
        elif where == "child":
            await ctx.call(echo, huge)
        elif where == "signal":
            await ctx.signal(ctx.workflow_id, text(huge))
        elif where == "loop":
            await ctx.loop(_never, huge)
    except LimitExceeded as error:
        return f"{error.limit}"
    return huge


async def _never(ctx: WorkflowContext, state: str) -> Break[None]:
    raise AssertionError


@activity
async def outgrows(ctx: ActivityContext, where: str) -> str:
    huge = "x" * (200 * MB if where != "both" else 7 * MB)
    if where != "output":
        ctx.state(State).text = huge
    return huge if where != "state" else ""


@workflow
async def outgrown(ctx: WorkflowContext, where: str) -> str:
    try:
        await ctx.activity(outgrows, where)
    except ActivityFailed as error:
        return f"{error.attempts} {error.failure.type}"
    return "it did not fail"


@workflow
async def waits(ctx: WorkflowContext) -> str:
    return await ctx.listen(text)


@workflow
async def dispatches_unknown(ctx: WorkflowContext) -> str:
    child = await ctx.dispatch(unregistered)
    return str(child.id)


@workflow
async def unregistered(ctx: WorkflowContext) -> str:
    return "ran"


BAD_TIMES: dict[str, Any] = {
    "negative": -1.0,
    "nan": math.nan,
    "infinite": math.inf,
    "huge": 1e300,
    "negative delta": timedelta(days=-1),
    "huge delta": timedelta.max,
}


@workflow
async def times(ctx: WorkflowContext, what: str) -> list[str]:
    bad = BAD_TIMES[what]
    attempts: list[Callable[[], Any]] = [
        lambda: ctx.sleep(bad),
        lambda: ctx.listen(text, timeout=bad),
        lambda: ctx.activity(copy, "", timeout=bad),
        lambda: ctx.activity(copy, "", initial=bad),
        lambda: ctx.sleep_until(datetime.now()),  # noqa: DTZ005 - that is the point
        lambda: ctx.sleep_until(-1),
        lambda: ctx.sleep_until(1 << 70),
        lambda: ctx.listen(text, until=datetime(2020, 1, 1, tzinfo=UTC), timeout=1),
        lambda: ctx.listen_many(text, n=0),
        lambda: ctx.loop(_never, "", commit_every=0),
    ]
    codes = []
    for attempt in attempts:
        try:
            await attempt()
        except CallerError as error:
            codes.append(error.code)
        else:
            codes.append("accepted")
    return codes


@pytest.fixture
async def engine(stage: Stage) -> AsyncIterator[Engine]:
    yield await stage.engine(
        calls,
        calls_in_thread,
        breaks,
        breaks_in_join,
        returns,
        passes,
        large,
        echo,
        too_large,
        outgrown,
        waits,
        dispatches_unknown,
        times,
    )
    await stage.pass_time(60)
    assert await holders(stage.database, KEYS) == [], "a lease leaked"


@pytest.mark.parametrize("what", WEIRD)
async def test_an_activity_raises_something_weird(stage: Stage, engine: Engine, what: str) -> None:
    handle = await engine.dispatch(calls, what)
    result = await stage.until(handle.result(), within=60)
    assert result.startswith("2 "), result


@pytest.mark.parametrize("what", WEIRD)
async def test_a_sync_activity_raises_something_weird(
    stage: Stage, engine: Engine, what: str
) -> None:
    handle = await engine.dispatch(calls_in_thread, what)
    # Threads take real time, in which the clock must not run ahead.
    for _ in range(2_000):
        await asyncio.sleep(0.01)
        await stage.pass_time(0.01)
        if (await handle.describe()).state == "complete":
            break
    result = await stage.until(handle.result(), within=1)
    assert result.startswith("2 "), result


@pytest.mark.parametrize("definition", [breaks, breaks_in_join], ids=lambda d: str(d.name))
@pytest.mark.parametrize("what", WEIRD)
async def test_a_workflow_raises_something_weird(
    stage: Stage, engine: Engine, definition: Any, what: str
) -> None:
    handle = await engine.dispatch(definition, what)
    with pytest.raises(WorkflowFailed) as caught:
        await stage.until(handle.result(), within=200)
    failure = caught.value.failure
    if not what.startswith("stop"):
        assert failure.type.rpartition(".")[2] == type(WEIRD[what]()).__name__
    assert len(failure.message) < 20_000
    assert await stage.counts() == {definition.name: {"dead": 1}}


@pytest.mark.parametrize("what", ["wrong type", "object", "coroutine"])
async def test_a_workflow_returns_nonsense(stage: Stage, engine: Engine, what: str) -> None:
    handle = await engine.dispatch(returns, what)
    with pytest.raises(WorkflowFailed) as caught:
        await stage.until(handle.result(), within=60)
    assert caught.value.failure.code == "caller.payload"


@pytest.mark.parametrize("what", ["wrong type", "object", "huge int"])
async def test_an_activity_returns_nonsense(stage: Stage, engine: Engine, what: str) -> None:
    handle = await engine.dispatch(passes, what)
    result = await stage.until(handle.result(), within=60)
    assert result == "1 perdure.errors.PayloadError", "there is no use in trying that again"


# -- sizes


async def test_five_megabytes_go_everywhere(stage: Stage, engine: Engine) -> None:
    given = "".join(map(str, range(10_000))) * (5 * MB // 38_890)
    assert len(given) > 4.9 * MB
    handle = await engine.dispatch(large, given)
    await handle.signal(text(given))
    assert await stage.until(handle.result(), within=2000) == given
    state = await handle.state(State)
    assert state == State(given[: len(given) // 2])


@pytest.mark.parametrize("where", ["activity", "child", "signal", "loop"])
async def test_two_hundred_megabytes_are_refused(stage: Stage, engine: Engine, where: str) -> None:
    handle = await engine.dispatch(too_large, where)
    assert await stage.until(handle.result(), within=60) == "8388608"


async def test_an_output_of_two_hundred_megabytes_kills(stage: Stage, engine: Engine) -> None:
    handle = await engine.dispatch(too_large, "output")
    with pytest.raises(WorkflowFailed, match="8,388,608"):
        await stage.until(handle.result(), within=60)


@pytest.mark.parametrize("where", ["output", "state", "both"])
async def test_an_activity_that_outgrows_its_bounds(
    stage: Stage, engine: Engine, where: str
) -> None:
    handle = await engine.dispatch(outgrown, where)
    kind = (
        "perdure.kv.errors.TransactionTooLarge"
        if where == "both"
        else "perdure.errors.LimitExceeded"
    )
    assert await stage.until(handle.result(), within=60) == f"1 {kind}"
    assert await handle.state(State) is None


async def test_too_large_from_outside(stage: Stage, engine: Engine) -> None:
    huge = "x" * (200 * MB)
    with pytest.raises(LimitExceeded, match="8,388,608"):
        await engine.dispatch(echo, huge)
    handle = await engine.dispatch(waits)
    with pytest.raises(LimitExceeded, match="8,388,608"):
        await handle.signal(text(huge))
    await handle.signal(text("small"))
    assert await stage.until(handle.result(), within=60) == "small"


# -- names, tags, keys


@pytest.mark.parametrize("name", ["", "Upper", "with space", "x" * 101, "ü", "a\n", "a\0b", "a.b"])
async def test_invalid_names(stage: Stage, engine: Engine, name: str) -> None:
    with pytest.raises(InvalidName):
        await engine.dispatch(name)
    with pytest.raises(InvalidName):
        Signal(name, int)
    with pytest.raises(InvalidName):
        workflow(name=name)(unregistered.function)


@pytest.mark.parametrize(
    "tags",
    [
        {"k": 1.5},
        {"k": None},
        {"k": [1]},
        {"k": 1 << 63},
        {1: "k"},
        {"k": "\ud800"},
        {"\ud800": "k"},
        {"k": "x" * 1025},
        {"x" * 129: 1},
        {str(n): n for n in range(33)},
        {str(n): n for n in range(100_000)},
    ],
    ids=lambda tags: repr(tags)[:20],
)
async def test_invalid_tags(stage: Stage, engine: Engine, tags: Any) -> None:
    with pytest.raises((PayloadError, LimitExceeded)):
        await engine.dispatch(waits, tags=tags)
    assert await stage.counts() == {}


@pytest.mark.parametrize("unique", ["\ud800", "x" * 1025, "ü" * 600])
async def test_invalid_unique_keys(stage: Stage, engine: Engine, unique: str) -> None:
    with pytest.raises((PayloadError, LimitExceeded)):
        await engine.dispatch(waits, unique=unique)
    assert await stage.counts() == {}


async def test_any_text_is_a_tag_and_a_key(stage: Stage, engine: Engine) -> None:
    texts = [
        "",
        "\0",
        "\0\xff",
        "a\0",
        "a",
        "a\0b",
        "ü",
        "\U0001f600",
        "\u00e9",
        "e\u0301",
        "\uffff",
        " ",
    ]
    handles = {}
    for given in texts:
        handle = await engine.dispatch(waits, tags={given: given}, unique=given)
        assert (await engine.dispatch(waits, unique=given)).id == handle.id
        handles[given] = handle.id
    assert len(set(handles.values())) == len(texts)
    for given, workflow_id in handles.items():
        found = await engine.find(waits, {given: given})
        assert found is not None
        assert found.id == workflow_id
    assert await engine.find(waits, {"a": "a\0"}) is None
    for workflow_id in handles.values():
        await engine.signal(workflow_id, text("done"))
        await stage.until(engine.handle(waits, workflow_id).result(), within=60)
    assert await stage.leftovers() == []


async def test_equal_looking_tags_are_three(stage: Stage, engine: Engine) -> None:
    values: tuple[str | int, ...] = (1, "1", True)
    ids = [(await engine.dispatch(waits, tags={"k": value})).id for value in values]
    for value, workflow_id in zip(values, ids, strict=True):
        found = await engine.find(waits, {"k": value})
        assert found is not None
        assert found.id == workflow_id


# -- times, names that lead nowhere, wrong types


@pytest.mark.parametrize("what", BAD_TIMES)
async def test_impossible_times(stage: Stage, engine: Engine, what: str) -> None:
    handle = await engine.dispatch(times, what)
    codes = await stage.until(handle.result(), within=60)
    assert codes == ["engine.invalid_option"] * 10


@pytest.mark.parametrize("bad", BAD_TIMES.values(), ids=str)
async def test_impossible_policies(bad: Any) -> None:
    for name in ("initial", "maximum", "timeout", "total_timeout", "heartbeat_timeout", "jitter"):
        with pytest.raises(InvalidOption):
            RetryPolicy(**{name: bad})


async def test_names_that_nobody_serves(stage: Stage, engine: Engine) -> None:
    with pytest.raises(UnknownWorkflow, match="unregistered"):
        await engine.dispatch(unregistered)
    # By its name it may be for another worker; a child too. It waits for one that knows it.
    handle = await engine.dispatch("unregistered")
    parent = await engine.dispatch(dispatches_unknown)
    child = await stage.until(parent.result(), within=60)
    await stage.pass_time(100)
    assert (await handle.describe()).state == "sleeping"
    other = await stage.engine(unregistered)
    for workflow_id in (handle.id, Id.parse(child)):
        assert await stage.until(other.handle(unregistered, workflow_id).result()) == "ran"


@pytest.mark.parametrize("value", [object(), {1 << 70: 1}, lambda: 1, "\ud800", [object()]])
async def test_values_that_cannot_be_stored(stage: Stage, engine: Engine, value: Any) -> None:
    with pytest.raises(PayloadError):
        await engine.dispatch(echo, value)
    handle = await engine.dispatch(waits)
    with pytest.raises(PayloadError):
        await handle.signal(text(value))
    await handle.signal(text("fine"))
    assert await stage.until(handle.result(), within=60) == "fine"


async def test_input_of_another_type(stage: Stage, engine: Engine) -> None:
    # By name alone nobody knows the type before the workflow runs.
    handle = await engine.dispatch(echo.name, 5)
    with pytest.raises(WorkflowFailed) as caught:
        await stage.until(handle.result(), within=60)
    assert caught.value.failure.code == "caller.payload"


async def test_a_signal_of_another_type(stage: Stage, engine: Engine) -> None:
    # Sent by a program that has another idea of what the signal carries.
    handle = await engine.dispatch(waits)
    await handle.signal(Signal(text.name, int)(5))
    with pytest.raises(WorkflowFailed) as caught:
        await stage.until(handle.result(), within=60)
    assert caught.value.failure.code == "caller.payload"


async def test_ids_that_lead_nowhere(stage: Stage, engine: Engine) -> None:
    handle = engine.handle(waits, Id.new())
    for call in (handle.signal(text("")), handle.cancel(), handle.terminate(), handle.result()):
        with pytest.raises(WorkflowNotFound):
            await call
    with pytest.raises(CallerError):
        engine.handle(waits, "no id")
