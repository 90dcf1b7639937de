"""A worker whose workflow is in the script itself; the argument is a server."""

import asyncio
import json
import sys
import uuid
from datetime import timedelta

import perdure.temporal

if "install" in sys.argv:
    perdure.temporal.install()

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker


@activity.defn
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow.defn
class Greeting:
    @workflow.run
    async def run(self, name: str) -> str:
        await asyncio.sleep(0.01)
        return await workflow.execute_activity(
            greet, name, start_to_close_timeout=timedelta(seconds=10)
        )


async def main() -> str:
    client = await Client.connect(sys.argv[1])
    queue = str(uuid.uuid4())
    async with Worker(client, task_queue=queue, workflows=[Greeting], activities=[greet]):
        return await client.execute_workflow(Greeting.run, "file", id=queue, task_queue=queue)


if __name__ == "__main__":
    greeted = asyncio.run(main())
    json.dump([greeted, perdure.temporal.installed(), __name__], sys.stdout)
