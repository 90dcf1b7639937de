"""The process that gets killed: it owns the store and runs the workflows.

It says on its standard output, one JSON object a line, how far each package is, and at the end the
report. It does nothing to survive: no signal handlers, no checkpoints, no clean-up at start. It
asks for the index (or finds the one that is already under way) and waits for the result.
"""

import asyncio
import sys

import msgspec

from perdure import Engine
from stdlib_index.workflows import Order, Progress, Report, index_library, index_package

__all__ = ["Line"]


class Line(msgspec.Struct):
    """One line of output: exactly one of the two is set."""

    progress: Progress | None = None
    report: Report | None = None


def _write(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def _tell_progress(engine: Engine) -> None:
    async for progress in engine.subscribe(Progress):
        _write(Line(progress=progress))


async def main(data: str, order: Order) -> None:
    """Run until the index is complete, or until somebody kills us."""
    async with Engine(f"rocksdb:{data}", workflows=[index_library, index_package]) as engine:
        teller = asyncio.create_task(_tell_progress(engine))
        handle = await engine.dispatch(index_library, order, unique="the library")
        _write(Line(report=await handle.result()))
        teller.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Order)))
