"""A test that every team with long-lived workflows wants: does today's code still fit the histories
of yesterday? Here a history is recorded, replayed by the same code, by code with a change that is
guarded by `patched`, and by code with the same change unguarded.

Start a server with `temporal server start-dev`, then run `python examples/temporal/replay_test.py`,
or with `--compiled` on the SDK's own core. A real project keeps the JSON in files beside its tests.
"""

import sys

import perdure.temporal

if "--compiled" not in sys.argv:
    perdure.temporal.install()

import asyncio
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.envconfig import ClientConfig
from temporalio.worker import Replayer, Worker
from temporalio.workflow import NondeterminismError

SHORT = timedelta(seconds=10)


@activity.defn
async def charge(amount: int) -> str:
    return f"charged {amount}"


@activity.defn
async def check_fraud(amount: int) -> None:
    pass


@workflow.defn(name="Payment")
class Payment:
    @workflow.run
    async def run(self, amount: int) -> str:
        return await workflow.execute_activity(charge, amount, start_to_close_timeout=SHORT)


@workflow.defn(name="Payment")
class GuardedPayment:
    @workflow.run
    async def run(self, amount: int) -> str:
        if workflow.patched("check-fraud"):
            await workflow.execute_activity(check_fraud, amount, start_to_close_timeout=SHORT)
        return await workflow.execute_activity(charge, amount, start_to_close_timeout=SHORT)


@workflow.defn(name="Payment")
class CarelessPayment:
    @workflow.run
    async def run(self, amount: int) -> str:
        await workflow.execute_activity(check_fraud, amount, start_to_close_timeout=SHORT)
        return await workflow.execute_activity(charge, amount, start_to_close_timeout=SHORT)


async def record() -> str:
    """The history of a payment, as JSON."""
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "localhost:7233")
    client = await Client.connect(**settings)
    queue = f"payment-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Payment], activities=[charge]):
        handle = await client.start_workflow(Payment.run, 12, id=queue, task_queue=queue)
        print("recorded:", await handle.result())
    return (await handle.fetch_history()).to_json()


async def fits(definition: type, recorded: str) -> str:
    """What the Replayer says of this code and that history."""
    history = WorkflowHistory.from_json("payment", recorded)
    try:
        await Replayer(workflows=[definition]).replay_workflow(history)
    except NondeterminismError as error:
        print(error, file=sys.stderr)
        return "does not fit"
    return "fits"


async def main() -> None:
    recorded = await record()
    for definition in (Payment, GuardedPayment, CarelessPayment):
        print(f"{definition.__name__}:", await fits(definition, recorded))


if __name__ == "__main__":
    asyncio.run(main())
