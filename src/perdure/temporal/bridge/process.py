"""The process a runtime was made in: sockets and loops do not survive a fork."""

from __future__ import annotations

import os

__all__ = ["HomeProcess"]


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
