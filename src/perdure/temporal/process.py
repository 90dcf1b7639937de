"""The process a runtime was made in: sockets and loops do not survive a fork, and gRPC neither.

A forked child may make a runtime of its own, if its parent had not used gRPC yet: the threads that
drive gRPC are not copied by a fork, so that calls of the child would wait for ever.
"""

from __future__ import annotations

import os

from perdure.temporal.errors import ForkedWithGrpc

__all__ = ["HomeProcess", "grpc_process"]


class HomeProcess:
    """Remembers the process of its creation and refuses to work in another."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, action: str) -> None:
        """Raise AssertionError when this is a forked child; `action` says what was asked."""
        current = os.getpid()
        if current != self._pid:
            raise AssertionError(
                f"Cannot {action} across forks (original runtime PID is {self._pid}, current is "
                f"{current})"
            )


class _GrpcProcess:
    """The process in which gRPC was used first."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid: int | None = None

    def claim(self) -> None:
        """Say that gRPC is used now; raises `ForkedWithGrpc`."""
        if self._pid is None:
            self._pid = os.getpid()
        elif self._pid != os.getpid():
            raise ForkedWithGrpc(self._pid)


grpc_process = _GrpcProcess()
