"""Watching a worker's workflow stream: `PERDURE_TRACE` and `PERDURE_RECORD`.

`PERDURE_TRACE=1` prints every input and every action of every run to standard error.
`PERDURE_RECORD=folder` writes all inputs to one file per worker there, for
`python -m perdure.temporal.replay_inputs`. Without them a worker has the plain stream, so nothing
is paid.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from perdure.core.actions import Action
from perdure.core.input_log import InputLog
from perdure.core.inputs import Input
from perdure.core.stream_settings import StreamSettings
from perdure.core.trace import describe_action, describe_input, is_bookkeeping
from perdure.core.workflow_stream import WorkflowStream
from perdure.errors import PerdureError
from perdure.temporal.errors import RecordFolderUnusable

__all__ = ["RECORD", "TRACE", "new_stream"]

TRACE: Final = "PERDURE_TRACE"
RECORD: Final = "PERDURE_RECORD"

_numbers = count(1)


def new_stream(settings: StreamSettings) -> WorkflowStream:
    """The stream of a worker, watched if the environment asks for it.

    Raises `RecordFolderUnusable` if the folder of `PERDURE_RECORD` cannot be written to.
    """
    traced = os.environ.get(TRACE, "") not in {"", "0"}
    folder = os.environ.get(RECORD, "")
    if not traced and not folder:
        return WorkflowStream(settings)
    write = _recorder(Path(folder), settings) if folder else None
    return _WatchedStream(settings, _print if traced else None, write)


class _WatchedStream(WorkflowStream):
    """A stream that tells what it is given and what it does."""

    __slots__ = ("_log", "_print", "_write")

    def __init__(
        self,
        settings: StreamSettings,
        say: Callable[[str], None] | None,
        write: Callable[[str], None] | None,
    ) -> None:
        super().__init__(settings)
        self._print = say
        self._write = write
        self._log = InputLog()
        if write is not None:
            write(self._log.header(settings))

    def handle(self, given: Input) -> list[Action]:
        told = describe_input(given)
        try:
            actions = super().handle(given)
        except PerdureError as refusal:
            refused = f"refused: {refusal.message}"
            self._tell(given, told, did=[refused], shown=[refused])
            raise
        did = [describe_action(action) for action in actions]
        shown = [words for words, a in zip(did, actions, strict=True) if not is_bookkeeping(a)]
        self._tell(given, told, did=did, shown=shown)
        return actions

    def _tell(self, given: Input, told: str, *, did: list[str], shown: list[str]) -> None:
        if self._print is not None:
            self._print("\n".join([f"-> {told}", *(f"   <- {line}" for line in shown)]))
        if self._write is not None:
            self._write(self._log.entry(given, did))


def _print(text: str) -> None:
    time = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
    print("\n".join(f"{time} {line}" for line in text.split("\n")), file=sys.stderr)  # noqa: T201


def _recorder(folder: Path, settings: StreamSettings) -> Callable[[str], None]:
    queue = re.sub(r"[^\w.-]", "_", settings.task_queue)
    path = folder / f"{queue}-{os.getpid()}-{next(_numbers)}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise RecordFolderUnusable(str(folder), error.strerror or str(error)) from error

    def write(line: str) -> None:
        # Opened for each line, so that a killed process leaves everything it was given.
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    return write
