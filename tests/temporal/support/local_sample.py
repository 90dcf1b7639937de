"""What a workflow may do with local activities: one method for each scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

__all__ = ["ACTIVITIES", "EXPECTED", "Local"]


@activity.defn
async def echo(text: str) -> str:
    return text


@activity.defn
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slow"


@activity.defn
async def attempts(needed: int) -> int:
    attempt = activity.info().attempt
    if attempt < needed:
        raise ApplicationError("not yet")
    return attempt


@activity.defn
async def refuse(kind: str) -> None:
    raise ApplicationError("no", type=kind, non_retryable=kind == "Final")


@activity.defn
async def describe() -> str:
    info = activity.info()
    policy = info.retry_policy
    assert policy is not None
    return (
        f"{info.is_local} {info.attempt} {info.start_to_close_timeout}"
        f" {info.schedule_to_close_timeout} {policy.initial_interval} {policy.maximum_attempts}"
    )


@activity.defn
async def remote(text: str) -> str:
    return text


ACTIVITIES: list[Callable[..., Any]] = [echo, slow, attempts, refuse, describe, remote]


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)


def chain(error: BaseException | None) -> str:
    """The error and its causes."""
    words = []
    while error is not None:
        words.append(f"{type(error).__name__}({error})")
        error = error.__cause__
    return " <- ".join(words)


async def outcome(awaitable: Any) -> Any:
    try:
        return await awaitable
    except (Exception, asyncio.CancelledError) as error:
        return chain(error)


async def local(activity: Any, *arguments: Any, **options: Any) -> Any:
    options.setdefault("start_to_close_timeout", seconds(5))
    return await outcome(workflow.execute_local_activity(activity, args=arguments, **options))


@workflow.defn
class Local:
    def __init__(self) -> None:
        self.may_end = False

    @workflow.run
    async def run(self, scenario: str) -> Any:
        return await getattr(self, scenario)()

    @workflow.signal
    def end(self) -> None:
        self.may_end = True

    @workflow.update
    async def echo_update(self, text: str) -> str:
        result: str = await local(echo, text)
        return result

    async def one_local_activity(self) -> Any:
        return await local(echo, "one")

    async def activity_info(self) -> Any:
        return [
            await local(describe),
            await local(
                describe, start_to_close_timeout=None, schedule_to_close_timeout=seconds(9)
            ),
            await local(describe, schedule_to_close_timeout=seconds(3)),
        ]

    async def local_act_fanout(self) -> Any:
        return await asyncio.gather(*(local(echo, str(number)) for number in range(12)))

    async def chains_in_parallel(self) -> Any:
        async def steps(number: int) -> list[str]:
            return [await local(echo, f"{number}{step}") for step in range(3)]

        return await asyncio.gather(*map(steps, range(3)))

    async def local_act_retry_timer_backoff(self) -> Any:
        return await local(attempts, 3, retry_policy=RetryPolicy(initial_interval=seconds(0.05)))

    async def local_act_retry_long_backoff_uses_timer(self) -> Any:
        policy = RetryPolicy(initial_interval=seconds(0.3), backoff_coefficient=1)
        threshold = seconds(0.1)
        return await local(attempts, 3, retry_policy=policy, local_retry_threshold=threshold)

    async def attempts_run_out(self) -> Any:
        policy = RetryPolicy(initial_interval=seconds(0.05), maximum_attempts=3)
        return await local(refuse, "Again", retry_policy=policy)

    async def final_failures(self) -> Any:
        policy = RetryPolicy(non_retryable_error_types=["Listed"])
        return [await local(refuse, "Final"), await local(refuse, "Listed", retry_policy=policy)]

    async def start_to_close_timeout(self) -> Any:
        policy = RetryPolicy(maximum_attempts=2, initial_interval=seconds(0.1))
        return await local(slow, 3.0, start_to_close_timeout=seconds(0.2), retry_policy=policy)

    async def schedule_to_close_timeout(self) -> Any:
        limit = seconds(0.3)
        return await local(slow, 3.0, start_to_close_timeout=None, schedule_to_close_timeout=limit)

    async def schedule_to_close_timeout_in_backoff(self) -> Any:
        policy = RetryPolicy(initial_interval=seconds(0.3))
        return await local(
            refuse,
            "Again",
            start_to_close_timeout=None,
            schedule_to_close_timeout=seconds(0.8),
            retry_policy=policy,
        )

    async def cancel_immediate(self) -> Any:
        return [await self._cancelled(kind, late=False) for kind in _KINDS]

    async def cancel_after_act_starts(self) -> Any:
        return [await self._cancelled(kind, late=True) for kind in _KINDS]

    async def _cancelled(self, kind: workflow.ActivityCancellationType, *, late: bool) -> Any:
        handle = workflow.start_local_activity(
            slow, 2.0, start_to_close_timeout=seconds(5), cancellation_type=kind
        )
        if late:
            await local(echo, "meanwhile")
        handle.cancel()
        return await outcome(handle)

    async def local_act_then_timer_then_wait_result(self) -> Any:
        running = asyncio.create_task(local(slow, 0.5))
        await asyncio.sleep(0.1)
        return await running

    async def end_while_running(self) -> Any:
        workflow.start_local_activity(slow, 1.0, start_to_close_timeout=seconds(5))
        return await local(echo, "end")

    async def local_and_remote(self) -> Any:
        task = workflow.execute_activity(remote, "remote", start_to_close_timeout=seconds(5))
        return await asyncio.gather(local(echo, "local"), task, local(slow, 0.2))

    async def long_local_activity_with_update(self) -> Any:
        running = asyncio.create_task(local(slow, 3.0))
        await workflow.wait_condition(lambda: self.may_end)
        return await running


_KINDS = list(workflow.ActivityCancellationType)
_TIMED_OUT = "ActivityError(Local Activity timed out) <- TimeoutError(Activity timed out)"
_CANCELLED = "ActivityError(Local Activity cancelled) <- CancelledError(Activity cancelled)"
_BY_ITSELF = "ActivityError(Local Activity cancelled) <- CancelledError(Cancelled)"

EXPECTED: dict[str, Any] = {
    "one_local_activity": "one",
    "activity_info": [
        "True 1 0:00:05 None 0:00:01 0",
        "True 1 0:00:09 0:00:09 0:00:01 0",
        "True 1 0:00:03 0:00:03 0:00:01 0",
    ],
    "local_act_fanout": [str(number) for number in range(12)],
    "chains_in_parallel": [[f"{chain}{step}" for step in range(3)] for chain in range(3)],
    "local_act_retry_timer_backoff": 3,
    "local_act_retry_long_backoff_uses_timer": 3,
    "attempts_run_out": "ApplicationError(Again: no)",
    "final_failures": ["ApplicationError(Final: no)", "ApplicationError(Listed: no)"],
    "start_to_close_timeout": _TIMED_OUT,
    "schedule_to_close_timeout": _TIMED_OUT,
    "schedule_to_close_timeout_in_backoff": _TIMED_OUT,
    "cancel_immediate": ["CancelledError()"] * 3,
    "cancel_after_act_starts": [_CANCELLED, _BY_ITSELF, _CANCELLED],
    "local_act_then_timer_then_wait_result": "slow",
    "end_while_running": "end",
    "local_and_remote": ["local", "remote", "slow"],
    "long_local_activity_with_update": "slow",
}
"""What the compiled core makes of each (but it forgets the one in its backoff, which hangs)."""
