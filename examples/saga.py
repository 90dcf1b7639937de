"""Undo what was done when the whole cannot be had: a trip is flight, hotel and car, or nothing.

Whatever stops the booking (a supplier, a traveller who cancels or does not pay), the same few lines
give back what was reserved, newest first. A crash in the middle of giving back only delays it.
"""

import asyncio
import sys

from perdure import (
    ActivityContext,
    ActivityFailed,
    Cancelled,
    Engine,
    Signal,
    WorkflowCancelled,
    WorkflowContext,
    activity,
    workflow,
)

paid = Signal("paid", int)


class SoldOut(Exception):
    """Asking again does not help."""


class NotPaid(Exception): ...


@activity(non_retryable=(SoldOut,))
async def reserve(_: ActivityContext, item: str) -> None:
    if "Mars" in item:
        raise SoldOut(item)
    print(f"  reserved {item}")


@activity(attempts=None)
async def give_back(_: ActivityContext, item: str) -> None:
    """Never gives up, and does not mind when there is nothing to give back."""
    print(f"  gave back {item}")


@workflow
async def book_trip(ctx: WorkflowContext, city: str) -> str:
    reserved: list[str] = []
    try:
        for item in (f"flight to {city}", f"hotel in {city}", f"car in {city}"):
            reserved.append(item)  # first: an attempt that timed out may have reserved it
            await ctx.activity(reserve, item)
        amount = await ctx.listen(paid, timeout=1)
        if amount is None:
            raise NotPaid
    except (ActivityFailed, Cancelled, NotPaid) as reason:
        for item in reversed(reserved):
            await ctx.activity(give_back, item)
        return f"{city}: nothing is booked ({type(reason).__name__})"
    return f"{city}: booked for {amount} euros"


async def main(url: str) -> list[str]:
    results: list[str] = []
    async with Engine(url, workflows=[book_trip]) as engine:
        for city in ("Oslo", "Mars", "Rome", "Nice"):
            trip = await engine.dispatch(book_trip, city)
            if city == "Oslo":
                await trip.signal(paid(900))
            if city == "Rome":
                await asyncio.sleep(0.3)
                await trip.cancel("changed my mind")
            try:
                results.append(await trip.result())
            except WorkflowCancelled as error:
                results.append(f"{city}: cancelled ({error.reason})")
    return results


if __name__ == "__main__":
    print(*asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory:")), sep="\n")
