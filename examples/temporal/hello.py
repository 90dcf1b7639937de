"""The official Temporal SDK on perdure's core: a workflow with an activity, a timer, a signal and
a query, then a replay of its history.

Start a server with `temporal server start-dev`, then run `python examples/temporal/hello.py`, or
with `--compiled` on the SDK's own core. Another server is named by TEMPORAL_ADDRESS.

Nothing here but the lines about `install` knows about perdure; `python -m perdure.temporal
script.py` runs a script without even those.
"""

import sys

import perdure.temporal

if "--compiled" not in sys.argv:
    perdure.temporal.install()

import asyncio
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import Replayer, Worker


@activity.defn
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@workflow.defn
class Hello:
    def __init__(self) -> None:
        self._greetings: list[str] = []
        self._enough = False

    @workflow.run
    async def run(self, name: str) -> list[str]:
        greeting = await workflow.execute_activity(
            greet, name, start_to_close_timeout=timedelta(seconds=10)
        )
        self._greetings.append(greeting)
        await workflow.sleep(timedelta(milliseconds=100))
        await workflow.wait_condition(lambda: self._enough)
        return self._greetings

    @workflow.signal
    async def also(self, name: str) -> None:
        greeting = await workflow.execute_activity(
            greet, name, start_to_close_timeout=timedelta(seconds=10)
        )
        self._greetings.append(greeting)

    @workflow.signal
    def enough(self) -> None:
        self._enough = True

    @workflow.query
    def greetings(self) -> list[str]:
        return self._greetings


async def main() -> None:
    settings = ClientConfig.load_client_connect_config()
    settings.setdefault("target_host", "localhost:7233")
    client = await Client.connect(**settings)
    queue = f"hello-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Hello], activities=[greet]):
        handle = await client.start_workflow(Hello.run, "world", id=queue, task_queue=queue)
        await handle.signal(Hello.also, "moon")
        await asyncio.sleep(1)
        print("query:", sorted(await handle.query(Hello.greetings)))
        await handle.signal(Hello.enough)
        print("result:", sorted(await handle.result()))
    history = await handle.fetch_history()
    await Replayer(workflows=[Hello]).replay_workflow(history)
    print("replayed without a difference")


if __name__ == "__main__":
    asyncio.run(main())
