"""Where a client connects to: the URL of the SDK as an address gRPC understands.

The scheme alone says whether TLS is spoken, as in the compiled core; a path, a query and a fragment
are ignored. A `unix` URL names a socket file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

__all__ = ["InvalidTarget", "Target", "parse_target"]

_HOST: Final = re.compile(r"[^\s/?#@<>\[\]\\^|%:]+")
_PORTS: Final = {"http": 80, "https": 443}


class InvalidTarget(ValueError):
    """The URL names no server; the SDK expects a ValueError."""

    def __init__(self, url: str, fault: str) -> None:
        super().__init__(f"invalid target URL: {fault} in {url!r}")
        self.url = url
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Target:
    """An address for gRPC, its host and port (none for a file), and whether TLS is spoken there."""

    address: str
    host: str
    port: int
    secure: bool


def parse_target(url: str) -> Target:
    """The server a URL names; raises `InvalidTarget`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        fault = "invalid port number" if "ort" in str(error) else str(error)
        raise InvalidTarget(url, fault) from None
    if parts.scheme == "unix":
        return Target(f"unix:{parts.path}", "", 0, secure=False)
    if parts.scheme not in _PORTS:
        raise InvalidTarget(url, f"unknown scheme {parts.scheme!r}")
    if parts.username is not None:
        raise InvalidTarget(url, "a user name")
    host = _host(url, parts)
    port = _PORTS[parts.scheme] if port is None else port
    # Without the scheme, a host called like one ("unix") would be taken for it.
    address = f"dns:///[{host}]:{port}" if ":" in host else f"dns:///{host}:{port}"
    return Target(address, host, port, secure=parts.scheme == "https")


def _host(url: str, parts: SplitResult) -> str:
    host = parts.hostname or ""
    if not host or parts.netloc.startswith(":"):
        raise InvalidTarget(url, "empty host")
    if not parts.netloc.startswith("[") and not _HOST.fullmatch(host):
        raise InvalidTarget(url, "invalid host name")
    return host if host.isascii() else host.encode("idna").decode()
