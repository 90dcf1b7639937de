"""The headers of every call: what the user sets, who we are, and what routes the request.

Precedence, from strong to weak: the namespace the request itself names, the metadata of the call,
our own name, the metadata of the client, the API key. Keys ending in `-bin` carry bytes, all
others text. gRPC sends printable ASCII only, so other text is refused here, where the caller is
still known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["Headers", "InvalidMetadata", "Metadata", "call_metadata", "deadline_of"]

Metadata = list[tuple[str, str | bytes]]

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+")
_TEXT: Final = re.compile(r"[ -~]*")
_TIMEOUT: Final = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class InvalidMetadata(ValueError):
    """A key or value that gRPC cannot send; the SDK expects a ValueError with these texts."""


def call_metadata(metadata: Mapping[str, str | bytes]) -> Metadata:
    """The metadata of one call; raises `InvalidMetadata`."""
    pairs: Metadata = []
    for key, value in metadata.items():
        _check_types(key, value)
        if _binary(key) and isinstance(value, str):
            raise InvalidMetadata(f"Invalid metadata value for binary key {key}: expected bytes")
        if not _binary(key) and not isinstance(value, str):
            raise InvalidMetadata(f"Invalid metadata value for ASCII key {key}: expected str")
        if not _KEY.fullmatch(key):
            raise InvalidMetadata("Invalid metadata key: invalid gRPC metadata key name")
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            raise InvalidMetadata("Invalid metadata value: failed to parse metadata value")
        pairs.append((key.lower(), value if isinstance(value, str) else bytes(value)))
    return pairs


def _client_metadata(metadata: Mapping[str, str | bytes]) -> Metadata:
    """The metadata of a client; the same rules, other texts."""
    pairs: Metadata = []
    for key, value in metadata.items():
        _check_types(key, value)
        kind = "ASCII" if isinstance(value, str) else "binary"
        if not _KEY.fullmatch(key) or _binary(key) == isinstance(value, str):
            raise InvalidMetadata(
                f"Invalid {kind} header key '{key}': invalid gRPC metadata key name"
            )
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            raise InvalidMetadata(
                f"Invalid ASCII header value for key '{key}': failed to parse metadata value"
            )
        pairs.append((key.lower(), value if isinstance(value, str) else bytes(value)))
    return pairs


def _binary(key: str) -> bool:
    return key.lower().endswith("-bin")


def _check_types(key: object, value: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"{type(key).__name__!r} object is not an instance of 'str'")
    if not isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{type(value).__name__!r} object is not an instance of 'str' or 'bytes'")


def deadline_of(metadata: Metadata) -> float | None:
    """The seconds a `grpc-timeout` header asks for, if there is a readable one."""
    for key, value in metadata:
        if key == "grpc-timeout" and isinstance(value, str):
            found = _TIMEOUT.fullmatch(value)
            return None if found is None else int(found[1]) * _UNITS[found[2]]
    return None


class Headers:
    """The headers of one client; its metadata and key may change while it is connected."""

    def __init__(self, client_name: str, client_version: str) -> None:
        self._own = (("client-name", client_name), ("client-version", client_version))
        self._metadata: Metadata = []
        self._authorization: str | None = None

    def update_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Replace the metadata of all later calls; raises `InvalidMetadata`."""
        self._metadata = _client_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> bool:
        """Replace the key; whether it can be sent: if not, calls go without."""
        self._authorization = None if api_key is None else f"Bearer {api_key}"
        if self._authorization is None or _TEXT.fullmatch(self._authorization):
            return True
        self._authorization = None
        return False

    def of_call(self, own: Metadata, namespace: str | None) -> Metadata:
        """The headers of a call with this metadata, whose request names a namespace or has none."""
        headers: dict[str, str | bytes] = {}
        if self._authorization is not None:
            headers["authorization"] = self._authorization
        headers.update(self._metadata)
        headers.update(self._own)
        headers.update(own)
        headers.pop("grpc-timeout", None)
        if namespace is not None:
            headers["temporal-namespace"] = namespace
        return list(headers.items())
