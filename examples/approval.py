"""Ask a person and wait for the answer, but not for ever.

The workflow may wait for a second or for a month: while it waits it is a few rows on disk, without
a thread, a timer or memory. On a store in a folder (`python approval.py rocksdb:./approvals`) it
waits on when the program is stopped and started again, until the same deadline.
"""

import asyncio
import sys
from dataclasses import dataclass

from perdure import ActivityContext, Engine, WorkflowContext, activity, signal, workflow


@dataclass(frozen=True)
class Expense:
    employee: str
    euros: int
    days_to_answer: float


@signal
@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str


@activity
async def send_mail(_: ActivityContext, text: str) -> None:
    print(f"  mail: {text}")


@workflow
async def approve_expense(ctx: WorkflowContext, expense: Expense) -> str:
    what = f"{expense.euros} euros for {expense.employee}"
    await ctx.activity(send_mail, f"Please decide: {what}")

    decision = await ctx.listen(Decision, timeout=expense.days_to_answer * 86_400)
    if decision is None:
        answer = f"{what}: nobody answered in time"
    else:
        answer = f"{what}: {'approved' if decision.approved else 'refused'} by {decision.by}"

    await ctx.activity(send_mail, answer)
    return answer


async def main(url: str) -> list[str]:
    async with Engine(url, workflows=[approve_expense]) as engine:
        two_seconds = 2 / 86_400
        lunch = await engine.dispatch(approve_expense, Expense("Ada", 40, two_seconds))
        yacht = await engine.dispatch(approve_expense, Expense("Bob", 4_000_000, two_seconds))

        await lunch.signal(Decision(approved=True, by="Grace"))
        return [await lunch.result(), await yacht.result()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
