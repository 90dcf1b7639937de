"""Activities: attempts, back-off, bounds in time, heartbeats, state, threads and processes."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.lab import Lab

from perdure import (
    ActivityContext,
    ActivityFailed,
    Id,
    OperationContext,
    Signal,
    WorkflowContext,
    WorkflowFailed,
    activity,
    message,
    operation,
    workflow,
)
from perdure.engine.errors import InvalidOption, OperationTimedOut

go = Signal("go", str)


class Refused(Exception):
    """An error of the user's."""


class Attempts:
    """Counts attempts and notes when they began (seconds since the first)."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.at: list[float] = []

    def __len__(self) -> int:
        return len(self.at)

    def note(self) -> int:
        self.at.append(self.lab.clock.monotonic())
        return len(self.at)

    @property
    def pauses(self) -> list[float]:
        return [b - a for a, b in zip(self.at, self.at[1:], strict=False)]


# -- attempts and back-off


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_attempts_are_attempts(lab: Lab, attempts: int) -> None:
    """`attempts=1` runs once."""
    made = Attempts(lab)

    @activity(attempts=attempts)
    async def refuse(ctx: ActivityContext) -> None:
        assert ctx.attempt == made.note()
        raise Refused("no")

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        try:
            await ctx.activity(refuse)
        except ActivityFailed as error:
            return error.attempts if error.failure.message == "no" else -1
        return 0

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == attempts
    assert len(made) == attempts


async def test_no_limit_of_attempts(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=None)
    async def stubborn(ctx: ActivityContext) -> int:
        if made.note() < 12:
            raise Refused
        return ctx.attempt

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        return await ctx.activity(stubborn)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == 12


async def test_back_off_doubles_up_to_its_maximum(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=7, initial=1, factor=2, maximum=10, jitter=0)
    async def refuse(ctx: ActivityContext) -> None:
        made.note()
        raise Refused

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(refuse)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed):
        await (await engine.dispatch(work)).result()
    assert made.pauses == pytest.approx([1, 2, 4, 8, 10, 10], abs=0.1)


async def test_jitter_adds_at_most_its_size(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=10, initial=2, factor=1, jitter=3)
    async def refuse(ctx: ActivityContext) -> None:
        made.note()
        raise Refused

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(refuse)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed):
        await (await engine.dispatch(work)).result()
    assert all(2 <= pause <= 5.1 for pause in made.pauses)
    assert len({round(pause, 2) for pause in made.pauses}) > 5


async def test_the_policy_can_be_given_with_the_call(lab: Lab) -> None:
    made = Attempts(lab)

    @activity
    async def refuse(ctx: ActivityContext) -> None:
        made.note()
        raise Refused

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(refuse, attempts=3, initial=0.1, jitter=0)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed):
        await (await engine.dispatch(work)).result()
    assert len(made) == 3


def test_a_senseless_policy_is_refused_at_definition() -> None:
    for options in ({"attempts": 0}, {"factor": 0.5}, {"timeout": -1}, {"initial": float("nan")}):
        with pytest.raises(InvalidOption):

            @activity(**options)
            async def work(ctx: ActivityContext) -> None: ...


async def test_some_errors_are_not_retried(lab: Lab) -> None:
    made = Attempts(lab)

    class Worse(Refused):
        pass

    @activity(attempts=5, non_retryable=(Refused,))
    async def refuse(ctx: ActivityContext) -> None:
        made.note()
        raise Worse("for good")

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(refuse)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed):
        await (await engine.dispatch(work)).result()
    assert len(made) == 1


async def test_an_output_that_cannot_be_stored_is_not_retried(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=5)
    async def wrong(ctx: ActivityContext) -> Any:
        made.note()
        return lambda: None

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.activity(wrong)
        except ActivityFailed as error:
            return error.failure.type
        return ""

    engine = await lab.engine(work)
    assert "PayloadError" in await (await engine.dispatch(work)).result()
    assert len(made) == 1


async def test_a_long_back_off_costs_no_memory_and_survives_restarts(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=3, initial=100, factor=1, jitter=0)
    async def flaky(ctx: ActivityContext) -> int:
        if made.note() < 3:
            raise Refused
        return ctx.attempt

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        return await ctx.activity(flaky)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    found = await lab.asleep(handle)
    assert found.status.deadline is not None
    assert engine.worker is not None
    assert engine.worker.running == 0
    await lab.restart(work)
    assert await lab.again(handle).result() == 3
    assert made.pauses == pytest.approx([100, 100], abs=1)


async def test_shutdown_does_not_wait_for_a_back_off(lab: Lab) -> None:
    """Neither a back-off in memory nor a long one delays the shutdown."""

    @activity(attempts=3, initial=0.9, jitter=0)
    async def flaky(ctx: ActivityContext) -> None:
        if ctx.attempt < 2:
            raise Refused

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        await ctx.activity(flaky)
        return "done"

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.pause(0.2)
    before = lab.clock.monotonic()
    await engine.shutdown()
    assert lab.clock.monotonic() - before < 0.5
    await lab.restart(work)
    assert await lab.again(handle).result() == "done"


async def test_a_deadline_wake_does_not_delay_a_later_retry(lab: Lab) -> None:
    """The retry of one activity waits for its own back-off, not for an older deadline."""
    made = Attempts(lab)

    @activity(attempts=2, initial=0.5, jitter=0)
    async def flaky(ctx: ActivityContext) -> None:
        if made.note() == 1:
            raise Refused

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.sleep(1000)
        await ctx.activity(flaky)

    engine = await lab.engine(work)
    await (await engine.dispatch(work)).result()
    assert made.pauses == pytest.approx([0.5], abs=0.1)


# -- bounds in time


async def test_timeout_bounds_one_attempt(lab: Lab) -> None:
    made = Attempts(lab)
    cancelled: list[int] = []

    @activity(attempts=2, timeout=5, initial=1, jitter=0)
    async def slow(ctx: ActivityContext) -> None:
        made.note()
        try:
            await lab.clock.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(ctx.attempt)
            raise

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.activity(slow)
        except ActivityFailed as error:
            return error.failure.type
        return ""

    engine = await lab.engine(work)
    assert "ActivityTimedOut" in await (await engine.dispatch(work)).result()
    assert cancelled == [1, 2]
    assert made.pauses == pytest.approx([6], abs=0.1)


async def test_total_timeout_bounds_all_attempts_and_pauses(lab: Lab) -> None:
    made = Attempts(lab)

    @activity(attempts=None, timeout=4, total_timeout=10, initial=1, factor=1, jitter=0)
    async def slow(ctx: ActivityContext) -> None:
        made.note()
        await lab.clock.sleep(1000)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(slow)

    engine = await lab.engine(work)
    before = lab.clock.monotonic()
    with pytest.raises(WorkflowFailed):
        await (await engine.dispatch(work)).result(100)
    assert made.pauses == pytest.approx([5, 5], abs=0.1)
    assert lab.clock.monotonic() - before < 10 + lab.options.poll_interval + 1


async def test_durations_may_be_timedeltas(lab: Lab) -> None:
    @activity(attempts=1, timeout=timedelta(milliseconds=100))
    async def slow(ctx: ActivityContext) -> None:
        await lab.clock.sleep(1)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(slow)

    engine = await lab.engine(work)
    with pytest.raises(WorkflowFailed, match=r"0\.1 s"):
        await (await engine.dispatch(work)).result(100)


# -- heartbeats


async def test_silence_ends_an_attempt_and_the_next_one_finds_the_progress(lab: Lab) -> None:
    found: list[Any] = []

    @activity(attempts=3, timeout=None, heartbeat_timeout=3, initial=1, jitter=0)
    async def copy(ctx: ActivityContext) -> int:
        found.append(ctx.progress)
        start = (ctx.progress or {"row": 0})["row"]
        for row in range(start + 1, start + 6):
            await lab.clock.sleep(2)
            ctx.heartbeat({"row": row})
        if ctx.attempt < 3:
            await lab.clock.sleep(1000)
        return int(ctx.progress["row"])

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        return await ctx.activity(copy)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == 15
    assert found == [None, {"row": 5}, {"row": 10}]


async def test_the_progress_of_a_running_attempt_is_in_the_store(lab: Lab) -> None:
    @activity(timeout=None)
    async def copy(ctx: ActivityContext) -> None:
        for row in range(100):
            ctx.heartbeat(row)
            await lab.clock.sleep(0.5)

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(copy)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.pause(20)
    detail = await engine.admin.get(str(handle.id))
    [progress] = detail.progress
    assert (progress.what, progress.name, progress.attempt) == ("activity", "copy", 1)
    assert 30 <= progress.details <= 40
    await handle.result()


async def test_progress_survives_the_shutdown_of_its_engine(lab: Lab) -> None:
    found: list[Any] = []

    @activity(timeout=None)
    async def copy(ctx: ActivityContext) -> Any:
        found.append(ctx.progress)
        if ctx.progress is None:
            ctx.heartbeat("half")
            await lab.clock.sleep(1000)
        return ctx.progress

    @workflow
    async def work(ctx: WorkflowContext) -> Any:
        return await ctx.activity(copy)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.until(lambda: bool(found))
    await lab.pause(1)
    await engine.shutdown(timeout=1)
    await lab.restart(work)
    assert await lab.again(handle).result() == "half"
    assert found == [None, "half"]


# -- state


@dataclass
class Purse:
    coins: int = 0
    log: list[str] = field(default_factory=list)


async def test_a_failed_attempt_does_not_change_the_state(lab: Lab) -> None:
    """The state changes together with the result of the activity, or not at all."""

    @activity(attempts=3, initial=0.1, jitter=0)
    async def earn(ctx: ActivityContext) -> None:
        purse = ctx.state(Purse)
        purse.coins += 1
        if ctx.attempt < 3:
            raise Refused

    @activity
    async def count(ctx: ActivityContext) -> int:
        return ctx.state(Purse).coins

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        await ctx.activity(earn)
        return await ctx.activity(count)

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == 1


async def test_the_state_survives_an_eviction_and_can_be_replaced(lab: Lab) -> None:
    @activity
    async def start(ctx: ActivityContext) -> None:
        ctx.set_state(Purse(3))

    @activity
    async def read(ctx: ActivityContext) -> Purse:
        return ctx.state(Purse)

    @workflow
    async def work(ctx: WorkflowContext) -> Purse:
        await ctx.activity(start)
        await ctx.listen(go)
        return await ctx.activity(read)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    assert await handle.state(Purse) is None
    await lab.asleep(handle)
    assert await handle.state(Purse) == Purse(3)
    await lab.restart(work)
    await lab.again(handle).signal(go(""))
    assert await lab.again(handle).result() == Purse(3)


async def test_the_input_of_an_activity_is_its_own_copy(lab: Lab) -> None:
    @activity(attempts=2, initial=0.1)
    async def change(ctx: ActivityContext, items: list[int]) -> list[int]:
        items.append(1)
        if ctx.attempt == 1:
            raise Refused
        return items

    @workflow
    async def work(ctx: WorkflowContext) -> tuple[list[int], list[int]]:
        mine = [0]
        theirs = await ctx.activity(change, mine)
        return mine, theirs

    engine = await lab.engine(work)
    assert await (await engine.dispatch(work)).result() == ([0], [0, 1])


# -- what an activity may do


@message
@dataclass
class Said:
    what: str


@workflow
async def other(ctx: WorkflowContext, what: str) -> str:
    return what + await ctx.listen(go)


async def test_activities_may_use_the_engine(lab: Lab) -> None:
    rays: list[Id] = []

    @operation
    async def shout(ctx: OperationContext, text: str) -> str:
        rays.append(ctx.ray_id)
        return text.upper()

    @activity
    async def act(ctx: ActivityContext) -> Id:
        handle = await ctx.dispatch(other, "a", tags={"k": 1}, unique=True)
        found = await ctx.find(other, {"k": 1})
        assert found is not None
        assert found.id == handle.id
        await ctx.signal(found, go(await ctx.op(shout, "b")))
        ctx.message(Said("hello"), "topic")
        rays.append(ctx.ray_id)
        return handle.id

    @workflow
    async def work(ctx: WorkflowContext) -> Id:
        return await ctx.activity(act)

    engine = await lab.engine(work, other)
    with engine.subscribe(Said, "topic") as said:
        child = await (await engine.dispatch(work)).result()
        assert await engine.handle(other, child).result() == "aB"
        if not lab.deaf:
            assert await anext(said) == Said("hello")
    assert len(set(rays)) == 1
    assert (await engine.handle(other, child).describe()).record.ray_id == rays[0]


async def test_operations_have_a_timeout_and_raise_their_own_errors(lab: Lab) -> None:
    @operation(timeout=1)
    async def slow(ctx: OperationContext) -> None:
        await lab.clock.sleep(100)

    @operation
    async def refuse(ctx: OperationContext, text: str) -> None:
        raise Refused(text)

    engine = await lab.engine(worker=False)
    with pytest.raises(OperationTimedOut, match="slow"):
        await engine.op(slow)
    with pytest.raises(Refused, match="why"):
        await engine.op(refuse, "why")


# -- failures


async def test_a_failure_keeps_type_message_stack_and_cause(lab: Lab) -> None:
    @activity(attempts=1)
    async def refuse(ctx: ActivityContext) -> None:
        try:
            raise KeyError("root")
        except KeyError as error:
            raise Refused("because of the root") from error

    @workflow
    async def work(ctx: WorkflowContext) -> None:
        await ctx.activity(refuse)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    with pytest.raises(WorkflowFailed) as caught:
        await handle.result()
    failure = caught.value.failure
    assert failure.type.endswith("ActivityFailed")
    cause = failure.cause
    assert cause is not None
    assert cause.type.endswith("Refused")
    assert cause.message == "because of the root"
    assert "in refuse" in cause.stack
    assert cause.cause is not None
    assert cause.cause.type == "KeyError"


async def test_a_replayed_failure_is_the_same_failure(lab: Lab) -> None:
    """What the code sees of a failed activity does not depend on whether it is a replay."""
    seen: list[tuple[str, int, str, str, bool]] = []

    @activity(attempts=1)
    async def refuse(ctx: ActivityContext) -> None:
        try:
            raise KeyError("root")
        except KeyError as error:
            raise Refused("no") from error

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await ctx.activity(refuse)
        except ActivityFailed as error:
            failure = error.failure
            cause = failure.cause is not None
            seen.append((error.name, error.attempts, failure.type, failure.message, cause))
        return await ctx.listen(go)

    engine = await lab.engine(work)
    handle = await engine.dispatch(work)
    await lab.asleep(handle)
    await lab.restart(work)
    await lab.again(handle).signal(go("on"))
    assert await lab.again(handle).result() == "on"
    assert len(seen) >= 2
    assert len(set(seen)) == 1, seen


# -- threads and processes


async def test_a_plain_function_runs_in_a_thread(slow_lab: Lab) -> None:
    threads: list[int] = []

    @activity
    def crunch(ctx: ActivityContext, n: int) -> int:
        threads.append(threading.get_ident())
        ctx.heartbeat(n)
        found = ctx.wait(ctx.find(other, {"no": "one"}))
        assert found is None
        return n * 2

    @workflow
    async def work(ctx: WorkflowContext, n: int) -> int:
        return await ctx.activity(crunch, n)

    engine = await slow_lab.engine(work)
    assert await (await engine.dispatch(work, 21)).result(30) == 42
    assert threads != [threading.get_ident()]


async def test_threads_have_timeouts_and_retries_too(slow_lab: Lab) -> None:
    release = threading.Event()

    @activity(attempts=2, timeout=0.1, initial=0.01, jitter=0)
    def stuck(ctx: ActivityContext) -> int:
        if ctx.attempt == 1:
            release.wait(20)
        return ctx.attempt

    @workflow
    async def work(ctx: WorkflowContext) -> int:
        return await ctx.activity(stuck)

    engine = await slow_lab.engine(work)
    try:
        assert await (await engine.dispatch(work)).result(30) == 2
    finally:
        release.set()


async def test_a_thread_keeps_its_activity_alive_with_heartbeats(slow_lab: Lab) -> None:
    @activity(attempts=1, timeout=None, heartbeat_timeout=0.5)
    def steady(ctx: ActivityContext) -> str:
        for step in range(8):
            time.sleep(0.1)
            ctx.heartbeat(step)
        return "alive"

    @workflow
    async def work(ctx: WorkflowContext) -> str:
        return await ctx.activity(steady)

    engine = await slow_lab.engine(work)
    assert await (await engine.dispatch(work)).result(30) == "alive"


@activity(process=True, attempts=1, timeout=60)
def own_process(ctx: ActivityContext, numbers: list[int]) -> tuple[int, int, str]:
    import os

    return sum(numbers), os.getpid(), ctx.activity_name


@pytest.mark.parametrize("slow_lab", [False], ids=["bus"], indirect=True)
async def test_cpu_work_runs_in_another_process(slow_lab: Lab) -> None:
    import os

    @workflow
    async def work(ctx: WorkflowContext) -> tuple[int, int, str]:
        return await ctx.activity(own_process, [1, 2, 3])

    engine = await slow_lab.engine(work)
    total, process, name = await (await engine.dispatch(work)).result(60)
    assert (total, name) == (6, "own_process")
    assert process != os.getpid()
