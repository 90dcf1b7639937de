"""A saga: each step that succeeded is undone, in reverse order, when a later one fails for good.

Start a server with `temporal server start-dev`, then run `python examples/temporal/saga.py`, or
with `--compiled` on the SDK's own core.
"""

import sys

import perdure.temporal

if "--compiled" not in sys.argv:
    perdure.temporal.install()

import asyncio
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

QUICKLY = RetryPolicy(initial_interval=timedelta(milliseconds=50))


@activity.defn
async def book(what: str) -> str:
    if what == "ship":
        raise ApplicationError("no ship sails in winter", non_retryable=True)
    if what == "hotel" and activity.info().attempt < 3:
        raise ApplicationError("the line is busy")
    print("booked", what)
    return f"{what}-{activity.info().attempt}"


@activity.defn
async def cancel(booking: str) -> None:
    print("cancelled", booking)


@workflow.defn
class Trip:
    """Books everything or nothing."""

    @workflow.run
    async def run(self, parts: list[str]) -> list[str]:
        bookings: list[str] = []
        try:
            for part in parts:
                booking = await workflow.execute_activity(
                    book, part, start_to_close_timeout=timedelta(seconds=10), retry_policy=QUICKLY
                )
                bookings.append(booking)
        except ActivityError:
            for booking in reversed(bookings):
                await workflow.execute_activity(
                    cancel, booking, start_to_close_timeout=timedelta(seconds=10)
                )
            raise
        return bookings


async def main() -> None:
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "localhost:7233")
    client = await Client.connect(**settings)
    queue = f"saga-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Trip], activities=[book, cancel]):
        summer = ["train", "hotel"]
        print(await client.execute_workflow(Trip.run, summer, id=f"{queue}-1", task_queue=queue))
        winter = ["train", "hotel", "ship"]
        try:
            await client.execute_workflow(Trip.run, winter, id=f"{queue}-2", task_queue=queue)
        except WorkflowFailureError as error:
            print("failed:", error.cause.__cause__)


if __name__ == "__main__":
    asyncio.run(main())
