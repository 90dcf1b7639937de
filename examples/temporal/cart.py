"""Talking to a running workflow: signals tell it, queries ask it, updates do both.

Start a server with `temporal server start-dev`, then run `python examples/temporal/cart.py`, or
with `--compiled` on the SDK's own core.
"""

import sys

import perdure.temporal

if "--compiled" not in sys.argv:
    perdure.temporal.install()

import asyncio
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

PRICES = {"apple": 2, "pear": 3}


@dataclass
class Receipt:
    """What was bought, and for how much."""

    items: dict[str, int] = field(default_factory=dict)
    total: int = 0


@activity.defn
async def price_of(item: str) -> int:
    return PRICES[item]


@workflow.defn
class Cart:
    """A shopping cart that lives until it is paid."""

    def __init__(self) -> None:
        self._receipt = Receipt()
        self._paid = False

    @workflow.run
    async def run(self) -> Receipt:
        await workflow.wait_condition(lambda: self._paid and workflow.all_handlers_finished())
        return self._receipt

    @workflow.update
    async def add(self, item: str, count: int) -> int:
        """Put something into the cart; the answer is the new total."""
        price = await workflow.execute_activity(
            price_of, item, start_to_close_timeout=timedelta(seconds=10)
        )
        self._receipt.items[item] = self._receipt.items.get(item, 0) + count
        self._receipt.total += price * count
        return self._receipt.total

    @add.validator
    def check(self, item: str, count: int) -> None:
        """A refused update leaves no trace in history."""
        if item not in PRICES:
            raise ApplicationError(f"there is no {item} here")
        if count < 1:
            raise ApplicationError("at least one")

    @workflow.query
    def receipt(self) -> Receipt:
        return self._receipt

    @workflow.signal
    def pay(self) -> None:
        self._paid = True


async def main() -> None:
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "localhost:7233")
    client = await Client.connect(**settings)
    queue = f"cart-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Cart], activities=[price_of]):
        cart = await client.start_workflow(Cart.run, id=queue, task_queue=queue)
        print("total:", await cart.execute_update(Cart.add, args=["apple", 3]))
        print("total:", await cart.execute_update(Cart.add, args=["pear", 1]))
        try:
            await cart.execute_update(Cart.add, args=["plum", 1])
        except WorkflowUpdateFailedError as error:
            print("refused:", error.cause)
        print("query:", (await cart.query(Cart.receipt)).items)
        await cart.signal(Cart.pay)
        print("paid:", (await cart.result()).total)


if __name__ == "__main__":
    asyncio.run(main())
