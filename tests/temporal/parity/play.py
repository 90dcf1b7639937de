"""Plays scenarios, on the core that is asked for.

    python -m tests.temporal.parity.play ours|compiled ADDRESS [--record] [NAME PATTERN ...]

prints how the answers differ from the recorded ones. With `--record` the compiled core's answers
become the recorded ones; names that are not recorded yet must be given.
"""

from __future__ import annotations

import asyncio
import fnmatch
import importlib
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from temporalio.client import Client

__all__ = ["AREAS", "HEAVY", "differences", "expected", "play", "unlike"]

AREAS = [
    "info",
    "messages",
    "updates",
    "cancels",
    "children",
    "continuing",
    "failures",
    "local",
    "activities",
    "metadata",
    "concurrency",
    "converters",
    "workers",
    "skipping",
    "versions",
]
_AT_ONCE = 12
# Long ones, which only `make soak` plays.
HEAVY = {
    "activities.worker_shutdown",
    "cancels.of_local",
    "children.cancellation_abandon",
    "children.cancellation_try_cancel",
    "children.cancellation_wait_cancellation_requested",
    "children.outcomes",
    "concurrency.small_caches",
    "converters.encoded_failures",
    "converters.own_failures",
    "failures.deadlock_that_is_interrupted",
    "failures.nondeterminism",
    "failures.that_recover",
    "local.cancellation_types",
    "local.longer_than_a_task",
    "local.many_and_mixed",
    "metadata.logs",
    "metadata.patches_by_callback",
    "updates.that_fails_a_task_and_recovers",
}
_TRIES = 3
_SECONDS = 120
_HERE = Path(__file__).parent


def expected(area: str) -> dict[str, Any]:
    """What the compiled core answered, by the names of scenarios."""
    file = _HERE / "expected" / f"{area}.json"
    answers: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return answers


async def play(client: Client, names: Iterable[str]) -> dict[str, Any]:
    """The answers of scenarios."""
    from tests.temporal.parity.stage import SCENARIOS, Stage, warnings_noted

    gate = asyncio.Semaphore(_AT_ONCE)
    answers: dict[str, Any] = {}

    async def one(name: str) -> None:
        importlib.import_module(f"tests.temporal.parity.{name.partition('.')[0]}")
        async with gate:
            began = time.monotonic()
            stage = Stage.new(client)
            try:
                async with asyncio.timeout(_SECONDS):
                    answers[name] = stage.comparable(await SCENARIOS[name](stage))
            except Exception as error:
                lines = traceback.format_exception(error)
                answers[name] = f"FAILED {stage.comparable(''.join(lines)[-1500:])}"
            finally:
                stage.threads.shutdown(wait=False)
            logging.getLogger(__name__).info("%6.1f s %s", time.monotonic() - began, name)

    with warnings_noted():
        await asyncio.gather(*map(one, names))
    # As JSON has it, which knows no tuples.
    result: dict[str, Any] = json.loads(json.dumps(answers))
    return result


async def unlike(client: Client, wanted: dict[str, Any]) -> list[str]:
    """How the answers differ from those wanted.

    A server that has much to do may let a task expire, and then a history shows it: what differs
    is played again, on its own.
    """
    found = await play(client, list(wanted))
    for _ in range(_TRIES - 1):
        for name in [name for name in wanted if found[name] != wanted[name]]:
            found |= await play(client, [name])
    return differences(wanted, found)


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where two answers differ, the shortest way to say it."""
    if wanted == found:
        return []
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        pairs = [(f"{path}.{key}", wanted[key], found[key]) for key in wanted]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = [
            (f"{path}[{index}]", one, other)
            for index, (one, other) in enumerate(zip(wanted, found, strict=True))
        ]
    else:
        return [f"{path.strip('.')}: expected {wanted}, not {found}"]
    return [line for name, one, other in pairs for line in differences(one, other, name)]


def _names(patterns: list[str]) -> list[str]:
    from tests.temporal.parity.stage import SCENARIOS

    recorded = {name for area in AREAS for name in expected(area)}
    if not patterns:
        return [name for name in SCENARIOS if name in recorded]
    return [n for n in SCENARIOS if any(fnmatch.fnmatch(n, pattern) for pattern in patterns)]


def _record(answers: dict[str, Any]) -> None:
    for area in AREAS:
        kept = expected(area)
        kept |= {n: answer for n, answer in answers.items() if n.startswith(f"{area}.")}
        if kept:
            text = json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False)
            (_HERE / "expected" / f"{area}.json").write_text(text + "\n")


async def _main(address: str, *, record: bool, patterns: list[str]) -> None:
    from temporalio.client import Client

    for area in AREAS:
        importlib.import_module(f"tests.temporal.parity.{area}")
    client = await Client.connect(address)
    names = _names(patterns)
    if record:
        _record(await play(client, names))
    recorded = {name: answer for area in AREAS for name, answer in expected(area).items()}
    wanted = {name: recorded.get(name) for name in names}
    print("\n".join(await unlike(client, wanted)) or "no difference")


if __name__ == "__main__":
    core, address, *rest = sys.argv[1:]
    if core == "ours":
        from perdure.temporal import install

        install()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("temporalio").propagate = False
    logging.getLogger("temporalio").addHandler(logging.NullHandler())
    logging.getLogger(__name__).setLevel(logging.INFO)
    asyncio.run(
        _main(
            address,
            record="--record" in rest and core == "compiled",
            patterns=[argument for argument in rest if argument != "--record"],
        )
    )
