"""The exceptions the official SDK imports from its core."""

from __future__ import annotations

import grpc

__all__ = ["ConfigError", "PollShutdownError", "RPCError"]


class RPCError(Exception):
    """A call failed; `args` are the gRPC code, the message and the serialized status."""

    def __init__(self, code: int, message: str, details: bytes) -> None:
        super().__init__(code, message, details)

    @property
    def code(self) -> int:
        return int(self.args[0])

    @property
    def message(self) -> str:
        return str(self.args[1])

    @property
    def status(self) -> str:
        """Code and message, written as the compiled core writes them."""
        names = (code.name for code in grpc.StatusCode if code.value[0] == self.code)
        name = next(names, "UNKNOWN").title().replace("_", "")
        return f'Status {{ code: {name}, message: "{self.message}" }}'

    @property
    def details(self) -> bytes:
        """The serialized status."""
        return bytes(self.args[2])


class PollShutdownError(Exception):
    """A poll ended because its worker has nothing more to hand out."""


class ConfigError(RuntimeError):
    """A client configuration cannot be loaded."""
