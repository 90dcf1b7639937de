"""Prints how servers are started, by an executable that only writes down its arguments."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.common import SearchAttributeKey
from temporalio.testing import WorkflowEnvironment

FOLDER = Path(sys.argv[1])
EXECUTABLE = FOLDER / "server"
WRITTEN = FOLDER / "arguments"
DEV: list[dict[str, Any]] = [
    {},
    {
        "namespace": "space",
        "ip": "127.0.0.1",
        "port": 12345,
        "ui": True,
        "dev_server_log_format": "json",
        "dev_server_log_level": "debug",
        "dev_server_database_filename": "x.db",
        "dev_server_extra_args": ["--more", "things"],
        "dev_server_download_version": "v1.2.3",
        "dev_server_download_ttl": timedelta(days=1),
        "download_dest_dir": str(FOLDER),
    },
    {
        "ui_port": 8999,
        "search_attributes": [
            SearchAttributeKey.for_keyword("word"),
            SearchAttributeKey.for_datetime("moment"),
        ],
    },
]
SKIPPING: list[dict[str, Any]] = [
    {"port": 12346},
    {"test_server_extra_args": ["more"], "test_server_download_version": "v1.2.3"},
]
FAULTS: list[Any] = [str(FOLDER / "missing"), str(FOLDER)]


async def started(start: Callable[..., Awaitable[Any]], **options: Any) -> Any:
    WRITTEN.unlink(missing_ok=True)
    try:
        await start(**options)
    except RuntimeError as error:
        text = str(error).split("ephemeral server at")[0].split("it exited")[0]
    else:
        raise AssertionError("nothing can have started")
    if not WRITTEN.exists():
        return [text, None]
    words = WRITTEN.read_text().split("\n")[:-1]
    return [text, ["PORT" if word.isdigit() and len(word) == 5 else word for word in words]]


async def main() -> None:
    EXECUTABLE.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {WRITTEN}\nexit 1\n")
    EXECUTABLE.chmod(EXECUTABLE.stat().st_mode | stat.S_IXUSR)
    os.environ.pop("TEMPORAL_ADDRESS", None)
    soon = timedelta(milliseconds=300)
    found = []
    for options in DEV:
        found.append(
            await started(
                WorkflowEnvironment.start_local,
                dev_server_existing_path=str(EXECUTABLE),
                dev_server_startup_timeout=soon,
                **options,
            )
        )
    for options in SKIPPING:
        found.append(
            await started(
                WorkflowEnvironment.start_time_skipping,
                test_server_existing_path=str(EXECUTABLE),
                test_server_startup_timeout=soon,
                **options,
            )
        )
    for path in FAULTS:
        found.append(await started(WorkflowEnvironment.start_local, dev_server_existing_path=path))
    found.append(
        await started(
            WorkflowEnvironment.start_local,
            dev_server_existing_path=str(EXECUTABLE),
            ip="300.1.1.1",
        )
    )
    json.dump(found, sys.stdout)


asyncio.run(main())
