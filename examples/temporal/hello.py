"""The official Temporal SDK on perdure's core: a workflow with an activity, a timer, a signal and
a query, then a replay of its history.

Start a server with `temporal server start-dev`, then run `python examples/temporal/hello.py`.
Nothing here but the first two lines of code knows about perdure; `python -m perdure.temporal
script.py` runs a script without even those.
"""

import perdure.temporal

perdure.temporal.install()

import asyncio  # noqa: E402
import sys  # noqa: E402
import uuid  # noqa: E402
from datetime import timedelta  # noqa: E402

from temporalio import activity, workflow  # noqa: E402
from temporalio.client import Client  # noqa: E402
from temporalio.worker import Replayer, Worker  # noqa: E402


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


async def main(target: str) -> None:
    client = await Client.connect(target)
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
    print("replayed", len(history.events), "events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:7233"))
