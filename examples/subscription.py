"""Change the code of a workflow while it runs.

A subscription lives for years; its code does not stay the same for years. Here the first release
starts one and stops after a while. The second release also sends a receipt after every payment. It
opens the same folder and goes on in the middle: no payment is repeated, and from the next one on
there are receipts.
"""

import asyncio
import sys
import tempfile
from dataclasses import dataclass

from perdure import ActivityContext, Break, Engine, WorkflowContext, activity, workflow

MONTH = 0.2
"""Seconds. Everything here is in a hurry."""


@dataclass
class Account:
    months: int = 0
    receipts: int = 0


@activity
async def charge(_: ActivityContext, month: int) -> None:
    print(f"  month {month}: charged")


@activity
async def send_receipt(_: ActivityContext, month: int) -> None:
    print(f"  month {month}: receipt sent")


@workflow(name="subscription")
async def first_release(ctx: WorkflowContext, months: int) -> Account:
    async def month(ctx: WorkflowContext, account: Account) -> Break[Account] | None:
        account.months += 1
        await ctx.activity(charge, account.months)
        await ctx.sleep(MONTH)
        return Break(account) if account.months == months else None

    return await ctx.loop(month, Account(), commit_every=1)


@workflow(name="subscription")
async def second_release(ctx: WorkflowContext, months: int) -> Account:
    async def month(ctx: WorkflowContext, account: Account) -> Break[Account] | None:
        account.months += 1
        await ctx.activity(charge, account.months)
        # A step of version 2: where the history is of version 1, it is put in between.
        await ctx.v(2).activity(send_receipt, account.months)
        account.receipts += 1
        await ctx.sleep(MONTH)
        return Break(account) if account.months == months else None

    return await ctx.loop(month, Account(), commit_every=1)


async def main(url: str) -> Account:
    print("first release")
    async with Engine(url, workflows=[first_release]) as engine:
        started = await engine.dispatch(first_release, 8)
        await asyncio.sleep(3.5 * MONTH)

    print("second release")
    async with Engine(url, workflows=[second_release]) as engine:
        return await engine.handle(second_release, started.id).result()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"rocksdb:{folder}"))
